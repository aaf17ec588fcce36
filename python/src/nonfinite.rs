//! Finds the op that makes a NaN or an infinity of inputs that have none.

use probe::capture::{OpRecord, SlotRecord, SlotValue};
use probe::dump::{Counts, Number, OpKind, OpName, Scalar};

/// Kinds of values that are not finite.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Kinds {
    nan: bool,
    infinite: bool,
}

impl Kinds {
    fn of(value: &SlotValue) -> Self {
        match value {
            SlotValue::Tensor(facts) => facts.observation.as_ref().map_or_else(Self::default, |found| {
                let Counts { nan, positive_infinite, negative_infinite, .. } = found.counts;
                Self { nan: nan > 0, infinite: positive_infinite + negative_infinite > 0 }
            }),
            SlotValue::Scalar(Scalar::Number(Number::Float(number))) => {
                Self { nan: number.is_nan(), infinite: number.is_infinite() }
            }
            _ => Self::default(),
        }
    }

    const fn with(self, other: Self) -> Self {
        Self { nan: self.nan || other.nan, infinite: self.infinite || other.infinite }
    }
}

/// Returns the first result of an op that has a NaN where no input has one, or an infinity where all inputs are
/// finite, with the counts: `Torch.log.0.forward output.0: 1 NaN, 2 Inf of 8 elements`. None if there is none.
///
/// A plain number counts as an input: `masked_fill(mask, -inf)` makes what it was asked for. Memory that nothing has
/// been written to says nothing. Modules may fill masks inside, so negative infinities of theirs are left out.
pub(crate) fn introduced(op: &OpRecord) -> Option<String> {
    let name = OpName::parse(&op.name);
    let api = name.api().rsplit('.').next().unwrap_or_default().trim_start_matches("new_");
    if api.starts_with("empty") || api.starts_with("resize") {
        return None;
    }
    let is_module = name.kind() == OpKind::Module;
    let (results, inputs): (Vec<&SlotRecord>, Vec<&SlotRecord>) =
        op.slots.iter().partition(|slot| slot.side.is_result());
    let given = inputs.iter().fold(Kinds::default(), |all, slot| all.with(Kinds::of(&slot.value)));
    results.into_iter().find_map(|slot| {
        let SlotValue::Tensor(facts) = &slot.value else { return None };
        let counts = facts.observation.as_ref()?.counts;
        let infinite = counts.positive_infinite + if is_module { 0 } else { counts.negative_infinite };
        let is_new = (counts.nan > 0 && !given.nan) || (infinite > 0 && given == Kinds::default());
        is_new.then(|| format!("{} {}: {}", op.name, slot.path, described(counts)))
    })
}

fn described(counts: Counts) -> String {
    let infinite = counts.positive_infinite + counts.negative_infinite;
    let kinds: Vec<String> = [(counts.nan, "NaN"), (infinite, "Inf")]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, kind)| format!("{count} {kind}"))
        .collect();
    format!(
        "{} of {} element{}",
        kinds.join(", "),
        counts.elements,
        if counts.elements == 1 { "" } else { "s" }
    )
}
