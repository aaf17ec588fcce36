//! Options of functions, whatever call has them: calls of a batch and of its parts need not pair.

use std::collections::{BTreeMap, HashSet};

use crate::Cause;
use crate::candidate::Candidate;
use crate::flow::Flow;
use crate::ops::{is_default, parameter};
use probe_dump::{Number, Phase, Scalar, Value};

/// Values of one option that are not its default, with the first call of each side that gives them.
#[derive(Default)]
struct Given {
    sides: [BTreeMap<String, usize>; 2],
    /// True if the default of the option is known, so that a call without it says which value it has.
    has_default: bool,
}

/// Returns the first call of a function to which one side gives a word or a switch in some call, and the other side
/// another one, or none, in each.
pub(super) fn other_option(flow: &Flow<'_>) -> Option<Candidate> {
    let mut options: BTreeMap<(&str, &str), Given> = BTreeMap::new();
    let mut called: [HashSet<&str>; 2] = Default::default();
    for (op, node) in flow.nodes.iter().enumerate() {
        if node.op.name.phase() != Phase::Forward || node.traits.optimizes {
            continue;
        }
        for (side, call) in <[_; 2]>::from(flow.pair.op(&flow.pair.ops[op])).into_iter().enumerate() {
            let Some(call) = call else { continue };
            called[side].insert(node.base);
            for slot in call.slots.iter().filter(|slot| !slot.side.is_result()) {
                let named = parameter(node.base, &slot.path).zip(option_of(&slot.value));
                let Some((name, scalar)) = named else { continue };
                let default = is_default(node.base, name, scalar);
                if default != Some(true) {
                    let given = options.entry((node.base, name)).or_default();
                    given.has_default |= default.is_some();
                    given.sides[side].entry(scalar.to_string()).or_insert(op);
                }
            }
        }
    }
    let named = options.into_iter().filter_map(|((base, name), given)| {
        given.candidate(name, [0, 1].map(|side: usize| called[side].contains(base)))
    });
    named.min_by_key(|candidate| candidate.op)
}

impl Given {
    /// Returns the first call with a value that the other side gives to none; `called` tells for each side if it calls the
    /// function at all.
    fn candidate(&self, name: &str, called: [bool; 2]) -> Option<Candidate> {
        let own = [0, 1].map(|side: usize| {
            let others = &self.sides[1 - side];
            self.sides[side].iter().find(|(value, _)| !others.contains_key(*value))
        });
        let op = own.iter().flatten().map(|(_, op)| **op).min()?;
        let said = |side: usize| match own[side] {
            Some((value, _)) => Some(value.as_str()),
            None => {
                (self.has_default && self.sides[side].is_empty() && called[side]).then_some("the default")
            }
        };
        let said = format!("{name} {} against {}", said(0)?, said(1)?);
        Some(Candidate { said, ..Candidate::at(op, None, Cause::Argument) })
    }
}

/// Returns a word or a switch.
fn option_of(value: &Value) -> Option<&Scalar> {
    match value {
        Value::Scalar(scalar @ (Scalar::Text(_) | Scalar::Number(Number::Bool(_)))) => Some(scalar),
        _ => None,
    }
}
