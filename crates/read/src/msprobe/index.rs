//! `dump.json` and `debug.json`: the record of every op, in execution order.
//!
//! Parsed in one streaming pass. Ops are kept as they are completed, so a truncated file (from a capture killed
//! while writing) still yields its head.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::json::{Key, Node, quote_bare_numbers};
use super::leaf::{LeafSeed, SlotSink, damaged};
use probe_dump::{Checksum, Op, OpKind, OpName, Phase, Slot, SlotName, SlotSide, Task};

/// Content of an index file.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) task: String,
    pub(super) level: String,
    pub(super) framework: String,
    /// True if the key `data` was found.
    pub(super) has_data: bool,
    pub(super) ops: Vec<Op>,
}

/// Parses an index; bare numbers are quoted in place. On a syntax error returns everything before it, together with the
/// error.
pub(super) fn parse(bytes: &mut [u8]) -> (Index, Option<serde_json::Error>) {
    quote_bare_numbers(bytes);
    let mut index = Index::default();
    // If the whole text is valid UTF-8, strings need not be validated one by one; the other path reports where it is
    // not.
    let result = match str::from_utf8(bytes) {
        Ok(text) => fill(&mut index, serde_json::Deserializer::from_str(text)),
        Err(_) => fill(&mut index, serde_json::Deserializer::from_slice(bytes)),
    };
    (index, result.err())
}

fn fill<'de, R: serde_json::de::Read<'de>>(
    index: &mut Index,
    mut json: serde_json::Deserializer<R>,
) -> serde_json::Result<()> {
    json.deserialize_map(IndexVisitor(index)).and_then(|()| json.end())
}

impl Index {
    /// Returns the task in this tool's terms. The header does not distinguish checksum modes; the leaves
    /// do.
    pub(super) fn recorded_task(&self) -> Option<Task> {
        let checksum = || {
            self.ops
                .iter()
                .flat_map(|op| &op.slots)
                .filter_map(|slot| slot.value.tensor()?.checksum.as_ref())
                .find(|checksum| !matches!(checksum, Checksum::Value(_)))
        };
        match self.task.as_str() {
            "tensor" => Some(Task::Tensor),
            "structure" => Some(Task::Structure),
            "statistics" | "" => Some(match checksum() {
                Some(Checksum::Xor(_)) => Task::Xor,
                Some(_) => Task::Checksum,
                None => Task::Statistics,
            }),
            _ => None,
        }
    }
}

struct IndexVisitor<'a>(&'a mut Index);

impl<'de> Visitor<'de> for IndexVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map with the keys task, level and data")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(Key(key)) = entries.next_key()? {
            match &*key {
                "data" => {
                    self.0.has_data = true;
                    entries.next_value_seed(OpsSeed(&mut self.0.ops))?;
                }
                "task" | "level" | "framework" => {
                    if let Node::Text(text) = entries.next_value()? {
                        let field = match &*key {
                            "task" => &mut self.0.task,
                            "level" => &mut self.0.level,
                            _ => &mut self.0.framework,
                        };
                        *field = text.into_owned();
                    }
                }
                _ => {
                    entries.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

struct OpsSeed<'a>(&'a mut Vec<Op>);

impl<'de> DeserializeSeed<'de> for OpsSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for OpsSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of op names")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(Key(key)) = entries.next_key()? {
            let name = OpName::parse(&key);
            let mut slots = Vec::new();
            entries.next_value_seed(BlockSeed { name: &name, slots: &mut slots })?;
            if name.phase() == Phase::ParameterGradient {
                unwrap_single_items(&mut slots);
            }
            // The format lists outputs before parameters; reports and judges want the inputs of an op first.
            slots.sort_by_key(|slot| slot.side);
            self.0.push(Op { slots, ..Op::new(name) });
        }
        Ok(())
    }
}

/// Unwraps parameter gradients, which are lists of one: `grad.weight.0` becomes `grad.weight`.
fn unwrap_single_items(slots: &mut [Slot]) {
    let several: Vec<String> =
        slots.iter().filter_map(|slot| slot.path.strip_suffix(".1").map(str::to_owned)).collect();
    for slot in slots {
        if let Some(stem) = slot.path.strip_suffix(".0")
            && !several.iter().any(|other| other == stem)
        {
            slot.name = SlotName { path: stem.into(), side: slot.side }.into();
        }
    }
}

struct BlockSeed<'a> {
    name: &'a OpName,
    slots: &'a mut Vec<Slot>,
}

impl<'de> DeserializeSeed<'de> for BlockSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let mut path = String::new();
        if self.name.kind() == OpKind::Saved {
            path.push_str("value");
            let mut sink = SlotSink { slots: self.slots, path: &mut path, side: SlotSide::Output };
            return LeafSeed(&mut sink).deserialize(deserializer);
        }
        if self.name.phase() == Phase::ParameterGradient {
            path.push_str("grad");
            let mut sink = SlotSink { slots: self.slots, path: &mut path, side: SlotSide::Gradient };
            return EntriesSeed(&mut sink).deserialize(deserializer);
        }
        deserializer.deserialize_any(BlockVisitor { slots: self.slots, path })
    }
}

struct BlockVisitor<'a> {
    slots: &'a mut Vec<Slot>,
    path: String,
}

impl<'de> Visitor<'de> for BlockVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of inputs and outputs")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<(), A::Error> {
        while let Some(Key(key)) = entries.next_key()? {
            let (path, side, mapped) = match &*key {
                "input_args" | "input" => ("input", SlotSide::Input, false),
                "input_kwargs" => ("kwarg", SlotSide::Input, true),
                "output" => ("output", SlotSide::Output, false),
                "parameters" => ("parameter", SlotSide::Parameter, true),
                _ => {
                    self.unknown(&key, &mut entries)?;
                    continue;
                }
            };
            self.path.clear();
            self.path.push_str(path);
            let mut sink = SlotSink { slots: self.slots, path: &mut self.path, side };
            if mapped {
                entries.next_value_seed(EntriesSeed(&mut sink))?;
            } else {
                entries.next_value_seed(LeafSeed(&mut sink))?;
            }
        }
        Ok(())
    }
}

impl BlockVisitor<'_> {
    /// Reads an entry under a name that none has. If it holds tensors, they are the inputs or results of an op whose file is damaged, and would be
    /// lost without a word.
    fn unknown<'de, A: MapAccess<'de>>(&mut self, key: &str, entries: &mut A) -> Result<(), A::Error> {
        let mut lost = Vec::new();
        self.path.clear();
        self.path.push_str(key);
        let mut sink = SlotSink { slots: &mut lost, path: &mut self.path, side: SlotSide::Input };
        entries.next_value_seed(LeafSeed(&mut sink))?;
        if lost.iter().any(|slot| slot.value.tensor().is_some()) {
            self.slots.push(Slot::new(key, SlotSide::Input, damaged()));
        }
        Ok(())
    }
}

/// A map with user-chosen keys (keyword arguments, parameters): never a leaf itself.
struct EntriesSeed<'a, 'b>(&'a mut SlotSink<'b>);

impl<'de> DeserializeSeed<'de> for EntriesSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for EntriesSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of named values")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(Key(key)) = entries.next_key()? {
            self.0.below(format_args!("{key}"), |inner| entries.next_value_seed(LeafSeed(inner)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENSOR: &str = r#"{"type":"torch.Tensor","dtype":"torch.float32","shape":[2],"Max":1.0,"Min":0.0,"Mean":0.5,"Norm":1.0,"requires_grad":true}"#;

    fn paths(op: &Op) -> Vec<&str> {
        op.slots.iter().map(|slot| &*slot.path).collect()
    }

    #[test]
    fn blocks_of_every_kind_become_slots_in_a_fixed_order() {
        let text = format!(
            r#"{{"task":"statistics","level":"mix","framework":"pytorch","dump_data_dir":null,"data":{{
              "Module.fc.Linear.forward.0":{{"input_args":[{TENSOR}],"input_kwargs":{{}},"output":[{TENSOR}],"parameters":{{"weight":{TENSOR},"bias":{TENSOR}}}}},
              "Functional.gelu.0.forward":{{"input_args":[{TENSOR}],"input_kwargs":{{"approximate":{{"type":"str","value":"none"}}}},"output":[[{TENSOR},null]]}},
              "Functional.gelu.0.backward":{{"input":[{TENSOR}],"output":[]}},
              "Module.fc.Linear.parameters_grad.0":{{"weight":[{TENSOR}],"bias":[null]}}
            }}}}"#
        );
        let (index, fault) = parse(&mut text.into_bytes());
        assert!(fault.is_none(), "{fault:?}");
        assert_eq!(index.recorded_task(), Some(Task::Statistics));
        assert_eq!(paths(&index.ops[0]), ["input.0", "parameter.weight", "parameter.bias", "output.0"]);
        assert_eq!(paths(&index.ops[1]), ["input.0", "kwarg.approximate", "output.0.0", "output.0.1"]);
        assert_eq!(paths(&index.ops[2]), ["input.0"]);
        assert_eq!(paths(&index.ops[3]), ["grad.weight", "grad.bias"]);
    }

    #[test]
    fn tensors_under_an_unknown_name_are_damage() {
        let text = format!(
            r#"{{"task":"statistics","level":"L1","data":{{"A.a.0.forward":{{"input_azgs":[{TENSOR}],"is_recompute":true,"output":[{TENSOR}]}}}}}}"#
        );
        let (mut index, fault) = parse(&mut text.into_bytes());
        assert!(fault.is_none());
        assert_eq!(paths(&index.ops[0]), ["input_azgs", "output.0"]);
        assert_eq!(super::super::leaf::take_damaged(&mut index.ops[0]), ["input_azgs".into()]);
    }

    #[test]
    fn a_truncated_index_keeps_its_complete_head() {
        let text = format!(
            r#"{{"task":"statistics","level":"L1","data":{{"A.a.0.forward":{{"output":[{TENSOR}]}},"A.a.1.forward":{{"output":[{TENSOR}]"#
        );
        let (index, fault) = parse(&mut text.into_bytes());
        assert!(fault.is_some_and(|fault| fault.is_eof()));
        assert_eq!(index.ops.len(), 1);
    }

    #[test]
    fn saved_variables_are_values_without_a_block() {
        let text = format!(
            r#"{{"task":"tensor","level":"debug","data":{{"x.0.debug":{TENSOR},"y_grad.0.debug":[{TENSOR},{{"a":{TENSOR}}}]}}}}"#
        );
        let (index, fault) = parse(&mut text.into_bytes());
        assert!(fault.is_none());
        assert_eq!(paths(&index.ops[0]), ["value"]);
        assert_eq!(paths(&index.ops[1]), ["value.0", "value.1.a"]);
    }
}
