//! Contexts that occur several times in one step, as in groups of samples of one prompt: a side that gives the same token after the
//! same tokens other values depends on what else is in its batch.

use std::collections::HashMap;

use super::Case;
use crate::table::{NO_ID, ROLLOUT, TRAINER};

/// Tokens of each response that are looked at: samples of one prompt part soon.
const HEAD: usize = 8;

/// Values of one token after one context.
#[derive(Debug, Default)]
struct Repeated {
    count: u64,
    low: [f32; 2],
    high: [f32; 2],
}

/// Notes how far values of equal tokens in equal contexts lie apart on each side: the least noise that the pair can have.
pub(super) fn note(case: &mut Case<'_>) {
    let tokens = &case.table.tokens;
    let mut contexts: HashMap<u128, Repeated> = HashMap::new();
    for sample in &case.table.samples[case.samples.clone()] {
        let mut context = 0_u128;
        let mut seen = 0;
        for place in sample.range.clone() {
            // A prompt that was not recorded, or not to its start, says nothing of the context.
            if tokens.ids[place] == NO_ID || tokens.positions[sample.range.start] != 0 || seen == HEAD {
                break;
            }
            context = extended(context, tokens.ids[place]);
            if tokens.flags[place] & (ROLLOUT | TRAINER) != ROLLOUT | TRAINER {
                continue;
            }
            seen += 1;
            let values = [tokens.rollout[place], tokens.trainer[place]];
            let known = contexts.entry(context).or_insert(Repeated { count: 0, low: values, high: values });
            known.count += 1;
            for (side, value) in values.into_iter().enumerate() {
                known.low[side] = known.low[side].min(value);
                known.high[side] = known.high[side].max(value);
            }
        }
    }
    let repeated: Vec<&Repeated> = contexts.values().filter(|context| context.count > 1).collect();
    if repeated.is_empty() {
        return;
    }
    // In ascending order, so that the sum does not depend on the order of the map.
    let mean = |side: usize| {
        let mut spreads: Vec<f32> =
            repeated.iter().map(|context| context.high[side] - context.low[side]).collect();
        spreads.sort_by(f32::total_cmp);
        spreads.iter().map(|spread| f64::from(*spread)).sum::<f64>() / spreads.len() as f64
    };
    let (rollout, trainer) = (mean(0), mean(1));
    if rollout > 0.0 || trainer > 0.0 {
        case.notes.push(format!(
            "values of equal tokens after equal tokens (of {}) lie {rollout:.2e} apart on average in the rollout and {trainer:.2e} in the trainer, \
             as each depends on what else is in its batch",
            if repeated.len() == 1 { "one context".to_owned() } else { format!("{} contexts", repeated.len()) }
        ));
    }
}

/// Returns the hash of a context that is one token longer.
fn extended(context: u128, id: u32) -> u128 {
    (context ^ u128::from(id))
        .wrapping_add(1)
        .wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b_u128)
        .rotate_left(47)
}
