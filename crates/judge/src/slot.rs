//! Facts about one pair of slots of any content.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use super::difference::{Difference, Fact, FactNumber, Facts, SlotFact};
use super::rulebook::{RuleBook, RuleKey};
use super::slot_view::SlotView;
use super::{Verdict, argument, tensor, user_rule};
use probe_dump::{Scalar, Slot, SlotSide, TensorRecord, Value};

/// Arguments without effect on any number: they say where and in which order a result is kept, and what is returned beside it.
const WITHOUT_EFFECT: [&str; 9] = [
    "kwarg.inplace",
    "kwarg.memory_format",
    "kwarg.non_blocking",
    "kwarg.pin_memory",
    "kwarg.need_weights",
    "kwarg.output_attentions",
    "kwarg.output_hidden_states",
    "kwarg.return_dict",
    "kwarg.use_cache",
];

/// Facts that several slots share. Results of one op are inputs of the next, and most arguments are equal on
/// both sides: two of three slots of a part share the fact of another.
#[derive(Default)]
pub(super) struct Shared {
    /// Indexed by the records.
    tensors: HashMap<(*const TensorRecord, *const TensorRecord), FactNumber>,
    /// The fact of equal values that are not tensors.
    equal: Option<FactNumber>,
}

impl SlotView<'_> {
    /// Returns the fact of the two slots, reusing it for tensors that were seen before.
    pub(super) fn shared_fact(
        &self,
        pair: (Option<&Slot>, Option<&Slot>),
        book: &mut RuleBook,
        shared: &mut Shared,
        facts: &mut Facts,
    ) -> SlotFact {
        let side = pair.0.or(pair.1).map_or(SlotSide::Input, |slot| slot.side);
        let mut own = || facts.add(self.fact(pair, book));
        // Rules match slots by name, and the contents of uninitialised memory depend on the reader.
        let alone = self.uninitialised || self.rules.any();
        let fact = match (pair.0.map(|slot| &slot.value), pair.1.map(|slot| &slot.value)) {
            _ if alone => own(),
            (Some(Value::Tensor(b)), Some(Value::Tensor(c))) => {
                *shared.tensors.entry((Arc::as_ptr(b), Arc::as_ptr(c))).or_insert_with(own)
            }
            (Some(b @ (Value::Scalar(_) | Value::None)), Some(c)) if b == c => {
                *shared.equal.get_or_insert_with(own)
            }
            _ => own(),
        };
        SlotFact { side, fact }
    }

    fn fact(&self, pair: (Option<&Slot>, Option<&Slot>), book: &mut RuleBook) -> Fact {
        let (b, c) = match pair {
            (Some(b), Some(c)) => (b, c),
            (Some(only), _) => return one_sided(only, "baseline"),
            (_, Some(only)) => return one_sided(only, "candidate"),
            (None, None) => {
                return Fact::certain(Verdict::Unknown, Difference::None, "");
            }
        };
        let dtype = b.value.tensor().and_then(|record| record.dtype.known());
        let rule = self.rules.find(self.op, &b.path, dtype);
        if let Some((index, rule)) = rule
            && rule.ignores()
        {
            let reason = "not judged: excluded by a user rule";
            let mut fact = Fact::certain(Verdict::Unknown, Difference::None, reason);
            fact.judgement.rule = Some(book.index(RuleKey::User(index), || rule.to_string()));
            return fact;
        }
        match (&b.value, &c.value) {
            (Value::Tensor(x), Value::Tensor(y)) => {
                let mut fact = tensor::compare(b.side, (x, y), self, book);
                if let Some((index, rule)) = rule {
                    user_rule::apply(&mut fact, index, rule, self.evidence, book);
                }
                fact
            }
            (Value::Scalar(x), Value::Scalar(y)) if x != y && WITHOUT_EFFECT.contains(&&*b.path) => {
                Fact::certain(
                    Verdict::Close,
                    Difference::None,
                    &format!("{x} against {y}: what is kept or returned besides changes no number"),
                )
            }
            (Value::Scalar(x), Value::Scalar(y)) => argument::compare(x, y, self.setting.mixed.is_some()),
            (Value::None, Value::None) => Fact::certain(Verdict::BitEqual, Difference::None, "").equal(),
            (Value::Unsupported, _) | (_, Value::Unsupported) => {
                Fact::certain(Verdict::Unknown, Difference::None, "the capture could not record this value")
            }
            (Value::Tensor(x), Value::Scalar(y)) if argument::is_number_of(x, y) => {
                Fact::certain(Verdict::Close, Difference::None, "all elements are the candidate's number")
            }
            (Value::Scalar(x), Value::Tensor(y)) if argument::is_number_of(y, x) => {
                Fact::certain(Verdict::Close, Difference::None, "all elements are the baseline's number")
            }
            (x, y) => {
                let reason = format!("{} in the baseline, {} in the candidate", shown(x), shown(y));
                if matches!((x, y), (Value::Tensor(_), _) | (_, Value::Tensor(_))) {
                    Fact::certain(Verdict::Missing, Difference::Missing, &reason)
                } else {
                    Fact::certain(Verdict::Differs, Difference::Argument, &reason)
                }
            }
        }
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Tensor(_) => "a tensor",
        Value::Scalar(_) => "a scalar",
        Value::None => "None",
        Value::Unsupported => "an unrecorded value",
    }
}

/// Describes a value where the other side has one of another kind: a number by itself, other values by their kind.
fn shown(value: &Value) -> Cow<'static, str> {
    match value {
        Value::Scalar(scalar @ Scalar::Number(_)) => scalar.to_string().into(),
        other => kind_of(other).into(),
    }
}

fn one_sided(slot: &Slot, side: &str) -> Fact {
    let unknown = |reason: &str| Fact::certain(Verdict::Unknown, Difference::None, reason);
    match &slot.value {
        // A default passed explicitly on one side, or a device name: no information about numbers.
        Value::None | Value::Unsupported => {
            unknown(&format!("{} in the {side}, absent on the other side", kind_of(&slot.value)))
        }
        Value::Scalar(Scalar::Device(device)) => {
            unknown(&format!("device {device}, given in the {side} only"))
        }
        value => {
            let said = match value {
                Value::Scalar(scalar) => format!("{scalar} in the {side} only"),
                _ => format!("recorded in the {side} only"),
            };
            let mut fact = Fact::certain(Verdict::Missing, Difference::Missing, &said);
            fact.is_tensor = slot.value.tensor().is_some();
            fact
        }
    }
}
