//! One recorded value of a `dump.json`: tensor, scalar, null, or a container of values.
//!
//! The older tool writes a leaf as a map whose key `type` (or `class_type`) holds a **string**; any other map is a
//! container. A user's own dict may have a key `type` as well, then with a map as its value.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::json::{Key, Node, Token, bare_number};
use probe_dump::{
    Checksum, Number, Op, RecordedDType, RecordedStatistics, Scalar, Slot, SlotSide, TensorMetadata,
    TensorRecord, Value,
};

/// Kind of the placeholder for an invalid record: a tensor without dtype or with invalid sizes, a type without a value, or a map that is
/// neither a record nor contains any.
const DAMAGED: &str = "damaged record";

/// Returns the placeholder, which [`take_damaged`] later reports for the part.
pub(super) fn damaged() -> Value {
    Value::Scalar(Scalar::printed(DAMAGED, ""))
}

/// Removes the placeholders of damaged records from an op; returns the paths of their slots.
pub(super) fn take_damaged(op: &mut Op) -> Vec<Box<str>> {
    let is_damaged =
        |value: &Value| matches!(value, Value::Scalar(Scalar::Printed(printed)) if &*printed.kind == DAMAGED);
    let damaged = op.slots.iter_mut().filter(|slot| is_damaged(&slot.value));
    damaged
        .map(|slot| {
            slot.value = Value::Unsupported;
            slot.path.clone()
        })
        .collect()
}

/// Receiver of the leaves of an op block: appends slots under a growing path.
pub(super) struct SlotSink<'a> {
    pub(super) slots: &'a mut Vec<Slot>,
    pub(super) path: &'a mut String,
    pub(super) side: SlotSide,
}

impl SlotSink<'_> {
    fn push(&mut self, value: Value) {
        self.slots.push(Slot::new(self.path.as_str(), self.side, value));
    }

    /// Runs `inner` with `.part` appended to the path.
    pub(super) fn below<T>(
        &mut self,
        part: fmt::Arguments<'_>,
        inner: impl FnOnce(&mut SlotSink<'_>) -> T,
    ) -> T {
        let length = self.path.len();
        fmt::Write::write_fmt(self.path, format_args!(".{part}")).unwrap_or_default();
        let result = inner(&mut SlotSink { slots: self.slots, path: self.path, side: self.side });
        self.path.truncate(length);
        result
    }
}

/// Reads one value and everything below it into a [`SlotSink`].
pub(super) struct LeafSeed<'a, 'b>(pub(super) &'a mut SlotSink<'b>);

impl<'de> DeserializeSeed<'de> for LeafSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for LeafSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a recorded value (null, list or map)")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.0.push(Value::None);
        Ok(())
    }

    // Bare scalars do not occur in the format, except inside point-to-point operations; keep them.
    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.0.push(Value::Scalar(Scalar::Number(Number::Bool(value))));
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.0.push(Value::Scalar(Scalar::Number(Number::Int(value))));
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.0.push(Value::Scalar(Scalar::Number(
            i64::try_from(value).map_or(Number::UInt(value), Number::Int),
        )));
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.0.push(Value::Scalar(Scalar::Number(Number::Float(value))));
        Ok(())
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        self.0.push(Value::Scalar(text_scalar(value)));
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut index = 0_usize;
        let sink = self.0;
        loop {
            let found =
                sink.below(format_args!("{index}"), |inner| items.next_element_seed(LeafSeed(inner)))?;
            if found.is_none() {
                return Ok(());
            }
            index += 1;
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let sink = self.0;
        let Some(Key(first)) = entries.next_key()? else {
            sink.push(Value::Unsupported);
            return Ok(());
        };
        // Leaves begin with their type. Everything else takes the general path, which does not depend on order.
        if first == "type" {
            match entries.next_value::<Node<'de>>()? {
                Node::Text(kind) => {
                    let mut leaf = Leaf { kind, ..Leaf::default() };
                    while let Some(Key(key)) = entries.next_key()? {
                        leaf.field(&key, &mut entries)?;
                    }
                    sink.push(leaf.into_value(last_key(sink.path)));
                    return Ok(());
                }
                node => {
                    let mut map = vec![(first, node)];
                    while let Some(Key(key)) = entries.next_key()? {
                        map.push((key, entries.next_value()?));
                    }
                    push_map(sink, map);
                    return Ok(());
                }
            }
        }
        let mut map = vec![(first, entries.next_value()?)];
        while let Some(Key(key)) = entries.next_key()? {
            map.push((key, entries.next_value()?));
        }
        push_map(sink, map);
        Ok(())
    }
}

fn last_key(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// Adds a parsed value of any kind.
fn push_node(sink: &mut SlotSink<'_>, node: Node<'_>) {
    match node {
        Node::Null => sink.push(Value::None),
        Node::Number(number) => sink.push(Value::Scalar(Scalar::Number(number))),
        Node::Text(text) => {
            let scalar =
                bare_number(&text).map_or_else(|| text_scalar(&text), |n| Scalar::Number(Number::Float(n)));
            sink.push(Value::Scalar(scalar));
        }
        Node::List(items) => {
            for (index, item) in items.into_iter().enumerate() {
                sink.below(format_args!("{index}"), |inner| push_node(inner, item));
            }
        }
        Node::Map(map) => push_map(sink, map),
    }
}

fn push_map(sink: &mut SlotSink<'_>, map: Vec<(Cow<'_, str>, Node<'_>)>) {
    if map.is_empty() {
        return sink.push(Value::Unsupported);
    }
    if map.iter().any(|(key, value)| key == "type" && matches!(value, Node::Text(_))) {
        let mut leaf = Leaf::default();
        for (key, value) in map {
            leaf.set(&key, value);
        }
        let value = leaf.into_value(last_key(sink.path));
        return sink.push(value);
    }
    // Containers hold records, so a bare value is a field of a record whose type was lost. Point-to-point operations, which do have
    // bare values, are recognised by their class.
    let is_bare = |value: &Node<'_>| matches!(value, Node::Number(_) | Node::Text(_));
    let classed = map.iter().any(|(key, _)| key == "class_type");
    if !classed && map.iter().any(|(_, value)| is_bare(value)) {
        return sink.push(damaged());
    }
    for (key, value) in map {
        if key == "class_type" {
            continue;
        }
        sink.below(format_args!("{key}"), |inner| push_node(inner, value));
    }
}

/// Fields that a leaf may have, as named in the file.
#[derive(Default)]
struct Leaf<'a> {
    kind: Cow<'a, str>,
    dtype: Option<Cow<'a, str>>,
    shape: Option<Vec<u64>>,
    statistics: RecordedStatistics,
    requires_grad: Option<bool>,
    checksum: Option<Checksum>,
    data: Option<Box<str>>,
    placement: Option<Box<str>>,
    value: Option<Node<'a>>,
}

impl<'a> Leaf<'a> {
    /// Reads the value of `key`, directly if its type is certain.
    fn field<'de: 'a, A: MapAccess<'de>>(&mut self, key: &str, entries: &mut A) -> Result<(), A::Error> {
        // Nearly all keys are these, hundreds of thousands of times, so they bypass the general
        // path.
        let statistic = match key {
            "Max" => &mut self.statistics.max,
            "Min" => &mut self.statistics.min,
            "Mean" => {
                self.statistics.mean = entries.next_value::<Token>()?.number().map(Number::as_f64);
                return Ok(());
            }
            "Norm" => {
                self.statistics.norm = entries.next_value::<Token>()?.number().map(Number::as_f64);
                return Ok(());
            }
            "dtype" => {
                self.dtype = Some(entries.next_value::<Key<'de>>()?.0);
                return Ok(());
            }
            "data_name" => {
                self.data = Some((&*entries.next_value::<Key<'de>>()?.0).into());
                return Ok(());
            }
            "shape" => {
                self.shape = entries.next_value::<Token>()?.sizes();
                return Ok(());
            }
            "Max_except_inf_nan" | "Min_except_inf_nan" | "group_id" => {
                entries.next_value::<IgnoredAny>()?;
                return Ok(());
            }
            _ => {
                let node = entries.next_value::<Node<'de>>()?;
                self.set(key, node);
                return Ok(());
            }
        };
        *statistic = entries.next_value::<Token>()?.number();
        Ok(())
    }

    fn set(&mut self, key: &str, node: Node<'a>) {
        match (key, node) {
            ("type", Node::Text(kind)) => self.kind = kind,
            ("dtype", Node::Text(text)) => self.dtype = Some(text),
            ("shape", Node::List(sizes)) => {
                self.shape = sizes
                    .iter()
                    .map(|size| match size {
                        Node::Number(Number::Int(size)) => u64::try_from(*size).ok(),
                        _ => None,
                    })
                    .collect();
            }
            ("Max", node) => self.statistics.max = node.number(),
            ("Min", node) => self.statistics.min = node.number(),
            ("Mean", node) => self.statistics.mean = node.number().map(Number::as_f64),
            ("Norm", node) => self.statistics.norm = node.number().map(Number::as_f64),
            ("requires_grad", Node::Number(Number::Bool(flag))) => self.requires_grad = Some(flag),
            ("md5", Node::Text(text)) if bare_number(&text).is_none() => {
                self.checksum = Some(checksum(&text));
            }
            ("md5", node) => self.checksum = node.number().map(|number| Checksum::Value(number.as_f64())),
            ("data_name", Node::Text(name)) => self.data = Some((&*name).into()),
            ("device_mesh" | "placements", node) => {
                let before = self.placement.take().unwrap_or_default();
                self.placement = Some(format!("{before}{key} {node} ").into());
            }
            ("value" | "format" | "group_ranks", node) => self.value = Some(node),
            _ => {}
        }
    }

    fn into_value(self, argument: &str) -> Value {
        if let (Some(dtype), Some(shape)) = (&self.dtype, self.shape) {
            return Value::Tensor(Arc::new(TensorRecord {
                statistics: self.statistics.into(),
                checksum: self.checksum,
                data: self.data.as_deref().map(Into::into),
                ..TensorRecord::from(TensorMetadata {
                    requires_grad: self.requires_grad,
                    placement: self.placement.map(|text| text.trim_end().into()),
                    ..TensorMetadata::new(RecordedDType::parse(dtype), shape.into())
                })
            }));
        }
        if self.dtype.is_some() || self.kind.ends_with("Tensor") {
            return damaged();
        }
        let Some(value) = self.value else {
            return damaged();
        };
        match (&*self.kind, value) {
            ("torch.device", value) => Value::Scalar(Scalar::Device(value.to_string().into())),
            ("str", Node::Text(text)) if argument == "device" || is_device(&text) => {
                Value::Scalar(Scalar::Device((&*text).into()))
            }
            ("str", Node::Text(text)) => Value::Scalar(Scalar::Text((&*text).into())),
            (_, Node::Number(number)) => Value::Scalar(Scalar::Number(number)),
            (_, Node::Text(text)) if bare_number(&text).is_some() => {
                Value::Scalar(Scalar::Number(Number::Float(bare_number(&text).unwrap_or(f64::NAN))))
            }
            ("NoneType", _) => Value::None,
            (kind, value) => Value::Scalar(Scalar::printed(kind, value.to_string())),
        }
    }
}

fn text_scalar(text: &str) -> Scalar {
    if is_device(text) { Scalar::Device(text.into()) } else { Scalar::Text(text.into()) }
}

/// Returns true for `cpu`, `cuda`, `npu:0` and the like.
fn is_device(text: &str) -> bool {
    let (kind, index) = text.split_once(':').unwrap_or((text, "0"));
    matches!(kind, "cpu" | "cuda" | "npu" | "xpu" | "mps" | "meta" | "hpu" | "mlu")
        && (index == "None" || (!index.is_empty() && index.bytes().all(|b| b.is_ascii_digit())))
}

fn checksum(text: &str) -> Checksum {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok().map(Checksum::Xor),
        None if text.len() == 8 => u32::from_str_radix(text, 16).ok().map(Checksum::Crc32),
        None => None,
    };
    parsed.unwrap_or_else(|| Checksum::Text(text.into()))
}

#[cfg(test)]
mod tests {
    use super::super::json::quote_bare_numbers;
    use super::*;

    fn slots(text: &str) -> Vec<(String, Value)> {
        let mut bytes = text.as_bytes().to_vec();
        quote_bare_numbers(&mut bytes);
        let (mut slots, mut path) = (Vec::new(), "input".to_owned());
        let mut sink = SlotSink { slots: &mut slots, path: &mut path, side: SlotSide::Input };
        let mut json = serde_json::Deserializer::from_slice(&bytes);
        LeafSeed(&mut sink).deserialize(&mut json).unwrap();
        assert_eq!(path, "input");
        slots.into_iter().map(|slot| (slot.path.to_string(), slot.value)).collect()
    }

    fn only(text: &str) -> Value {
        let mut all = slots(text);
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0).1
    }

    #[test]
    fn a_tensor_leaf_is_read_whatever_the_order_of_its_keys() {
        let text = r#"{"type":"torch.Tensor","dtype":"torch.float32","shape":[3,4],"Max":1.5,"Min":-Infinity,"Mean":NaN,"Norm":null,"requires_grad":true,"md5":"00c0ffee","data_name":"x.pt"}"#;
        let sorted = r#"{"Max":1.5,"Mean":NaN,"Min":-Infinity,"Norm":null,"data_name":"x.pt","dtype":"torch.float32","md5":"00c0ffee","requires_grad":true,"shape":[3,4],"type":"torch.Tensor"}"#;
        for text in [text, sorted] {
            let Value::Tensor(record) = only(text) else { panic!("a tensor") };
            assert_eq!(record.dtype, RecordedDType::Known(probe_dump::DType::F32));
            assert_eq!(*record.shape, [3, 4]);
            assert_eq!(record.statistics.max(), Some(Number::Float(1.5)));
            assert_eq!(record.statistics.min(), Some(Number::Float(f64::NEG_INFINITY)));
            assert!(record.statistics.mean().unwrap().is_nan());
            assert_eq!(record.statistics.norm(), None);
            assert_eq!(record.checksum, Some(Checksum::Crc32(0x00c0_ffee)));
            assert_eq!(record.data.as_deref(), Some("x.pt"));
            assert_eq!(record.requires_grad, Some(true));
        }
    }

    #[test]
    fn containers_and_odd_values_become_slots() {
        let found = slots(
            r#"{"a":{"type":"int","value":1},"b":[{"type":"float","value":1.5},null],"dt":{},
                "sl":{"type":"slice","value":[0,null,2]},"nan":{"type":"float","value":NaN},
                "type":{"type":"str","value":"x"},"empty":[],"mem":{"type":"torch.memory_format","format":"channels_last"},
                "dev":{"type":"torch.device","value":"cpu:None"},"d2":{"type":"str","value":"cuda:1"},"s":{"type":"str","value":""}}"#,
        );
        let shown: Vec<String> = found
            .iter()
            .map(|(path, value)| match value {
                Value::Scalar(scalar) => format!("{path}={scalar}"),
                other => format!("{path}={other:?}"),
            })
            .collect();
        assert_eq!(
            shown,
            [
                "input.a=1",
                "input.b.0=1.5",
                "input.b.1=None",
                "input.dt=Unsupported",
                "input.sl=slice([0, None, 2])",
                "input.nan=NaN",
                "input.type=\"x\"",
                "input.mem=torch.memory_format(channels_last)",
                "input.dev=cpu:None",
                "input.d2=cuda:1",
                "input.s=\"\"",
            ]
        );
    }

    #[test]
    fn tensors_with_impossible_sizes_are_taken_out_and_named() {
        for shape in ["[-1,2]", "[1.5]", "\"x\"", "null"] {
            let text =
                format!(r#"{{"type":"torch.Tensor","dtype":"torch.float32","shape":{shape},"Max":1.0}}"#);
            let value = only(&text);
            let mut op = Op::new(probe_dump::OpName::parse("A.a.0.forward"));
            op.slots.push(Slot::new("input.0", SlotSide::Input, value));
            assert_eq!(take_damaged(&mut op), ["input.0".into()], "{shape}");
            assert_eq!(op.slots[0].value, Value::Unsupported);
        }
    }

    #[test]
    fn records_that_lost_their_type_are_taken_out_and_named() {
        for text in [
            r#"{"tyqe":"torch.Tensor","dtype":"torch.float32","shape":[2],"Max":1.0}"#,
            r#"{"type":null,"dtype":"torch.float32","shape":[2],"Max":1.0}"#,
            r#"{"type":7,"value":1}"#,
            r#"{"t":"int","value":1}"#,
            r#"{"type":"int"}"#,
            r#"{"type":"torch.Xensoq","dtyqe":"torch.float32","shape":[2]}"#,
        ] {
            assert_eq!(only(text), damaged(), "{text}");
        }
        // Anything that is not a record is left unchanged.
        assert_eq!(only("{}"), Value::Unsupported);
        assert_eq!(only(r#"{"type":null}"#), Value::None);
        let paths: Vec<String> =
            slots(r#"{"class_type":"torch.distributed.P2POp","tensor":{"type":"int","value":1},"op":"isend","peer":1}"#)
                .into_iter()
                .map(|(path, _)| path)
                .collect();
        assert_eq!(paths, ["input.tensor", "input.op", "input.peer"]);
    }

    #[test]
    fn process_groups_are_known_by_their_ranks() {
        let a = only(r#"{"type":"torch.ProcessGroup","group_ranks":[0,1],"group_id":"aaaaaaaa"}"#);
        let b = only(r#"{"type":"torch.ProcessGroup","group_ranks":[0,1],"group_id":"bbbbbbbb"}"#);
        assert_eq!(a, b);
    }

    #[test]
    fn checksums_are_told_apart_by_their_form() {
        assert_eq!(checksum("0x0000000000000010"), Checksum::Xor(16));
        assert_eq!(checksum("zz"), Checksum::Text("zz".into()));
        let zero_d = only(
            r#"{"type":"torch.Tensor","dtype":"torch.float32","shape":[],"md5":1.25,"requires_grad":false}"#,
        );
        assert_eq!(zero_d.tensor().unwrap().checksum, Some(Checksum::Value(1.25)));
    }
}
