//! The verdict of one pair of slots.

use super::judged::{Difference, JudgedSlot, SlotContext, verdict};
use super::rulebook::{RuleBook, RuleKey};
use super::tensor::TensorJudge;
use super::tolerance::Rules;
use super::{Verdict, value};
use crate::dump::{Scalar, Slot, Value};
use crate::measure::Evidence;

/// Judges one pair of slots.
pub(super) fn judge_slot(
    op: &str,
    pair: (Option<&Slot>, Option<&Slot>),
    evidence: &Evidence,
    context: SlotContext,
    rules: &Rules,
    book: &mut RuleBook,
) -> JudgedSlot {
    let (b, c) = match pair {
        (Some(b), Some(c)) => (b, c),
        (Some(only), None) => return one_sided(only, "baseline"),
        (None, Some(only)) => return one_sided(only, "candidate"),
        (None, None) => return verdict(Verdict::Unknown, Difference::None, ""),
    };
    let dtype = b.value.tensor().and_then(|record| record.dtype.known());
    let rule = rules.find(op, &b.path, dtype);
    if let Some((index, rule)) = rule
        && rule.ignores()
    {
        let mut judged = verdict(Verdict::Unknown, Difference::None, "not judged: excluded by a user rule");
        judged.judgement.rule = Some(book.index(RuleKey::User(index), || rule.to_string()));
        return judged;
    }
    match (&b.value, &c.value) {
        (Value::Tensor(x), Value::Tensor(y)) => {
            let mut judge = TensorJudge { baseline: x, candidate: y, context, book };
            let judged = judge.judge(evidence);
            match rule {
                Some((index, rule)) => judge.override_by(judged, index, rule, evidence),
                None => judged,
            }
        }
        (Value::Scalar(x), Value::Scalar(y)) => {
            value::judge_scalars(x, y, context.led.explained, context.mixed_run)
        }
        (Value::None, Value::None) => verdict(Verdict::BitEqual, Difference::None, "").exact(),
        (Value::Unsupported, _) | (_, Value::Unsupported) => {
            verdict(Verdict::Unknown, Difference::None, "the capture could not record this value")
        }
        (x, y) => {
            let reason = format!("{} in the baseline, {} in the candidate", kind_of(x), kind_of(y));
            let difference = if matches!((x, y), (Value::Tensor(_), _) | (_, Value::Tensor(_))) {
                Difference::Missing
            } else {
                Difference::Argument
            };
            verdict(
                if difference == Difference::Missing { Verdict::Missing } else { Verdict::Differs },
                difference,
                &reason,
            )
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

fn one_sided(slot: &Slot, side: &str) -> JudgedSlot {
    match &slot.value {
        // A default passed explicitly on one side, or the name of a device: says nothing about numbers.
        Value::None | Value::Unsupported => verdict(
            Verdict::Unknown,
            Difference::None,
            &format!("{} in the {side}, absent on the other side", kind_of(&slot.value)),
        ),
        Value::Scalar(Scalar::Device(device)) => {
            verdict(Verdict::Unknown, Difference::None, &format!("device {device}, given in the {side} only"))
        }
        _ => verdict(Verdict::Missing, Difference::Missing, &format!("recorded in the {side} only")),
    }
}
