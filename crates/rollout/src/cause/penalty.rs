//! Logit processors of the engine that the trainer lacks: penalties on tokens that occurred before.

use std::collections::HashSet;

use super::{Case, Cause};
use crate::measure::{Measures, chance_beyond};
use crate::table::NO_ID;

/// Difference of the means of repeated and new tokens, in standard deviations of d, from which a penalty is named. Penalties gave 1.75
/// to 1.9; of the other causes, a temperature left 1.2 and all others at most 0.6.
const APART: f64 = 1.5;
/// Standard errors by which the means must differ.
const SURE: f64 = 6.0;
/// Fewest tokens of each kind.
const FEWEST: f64 = 8.0;

/// Sums of d of one kind of tokens.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    n: f64,
    d: f64,
    square: f64,
}

impl Sums {
    fn add(&mut self, d: f64) {
        self.n += 1.0;
        self.d += d;
        self.square += d * d;
    }

    fn mean(&self) -> f64 {
        self.d / self.n.max(1.0)
    }

    fn variance(&self) -> f64 {
        (self.square / self.n.max(1.0) - self.mean().powi(2)).max(0.0)
    }
}

/// Names a penalty, in case d of tokens that occurred before in their response, or in the whole sample, lies apart from d of new ones.
pub(super) fn penalty(case: &mut Case<'_>, rest: &Measures) -> bool {
    if rest.mean_abs <= case.bound {
        return false;
    }
    let [response, sample] = [false, true].map(|prompt| kinds(case, prompt));
    let apart = |[new, old]: &[Sums; 2]| {
        let all = Sums { n: new.n + old.n, d: new.d + old.d, square: new.square + old.square };
        (old.mean() - new.mean()) / all.variance().sqrt().max(1e-12)
    };
    let (kinds, place) = if apart(&sample).abs() > apart(&response).abs() {
        (sample, "sample, prompt included")
    } else {
        (response, "response")
    };
    let [new, old] = kinds;
    let error = (new.variance() / new.n.max(1.0) + old.variance() / old.n.max(1.0)).sqrt().max(1e-12);
    let sure = (old.mean() - new.mean()) / error;
    if new.n < FEWEST || old.n < FEWEST || apart(&kinds).abs() < APART || sure.abs() < SURE {
        return false;
    }
    let side = if sure > 0.0 { "rollout" } else { "trainer" };
    let evidence = format!(
        "d of {} tokens that occurred before in their {place} is {:+.3} on average, of {} new ones {:+.3}: the {side} takes off repeated tokens",
        old.n,
        old.mean(),
        new.n,
        new.mean()
    );
    let before = case.pairs.total();
    case.clear();
    case.found(Cause::Penalty, before, evidence, Some(chance_beyond(sure)), Vec::new());
    true
}

/// Returns the sums of new and of repeated tokens. With `prompt`, tokens of the prompt count as occurred.
fn kinds(case: &Case<'_>, prompt: bool) -> [Sums; 2] {
    let mut kinds = [Sums::default(); 2];
    let tokens = &case.table.tokens;
    for row in &case.pairs.rows {
        let places = &case.pairs.place[row.range.clone()];
        let Some(first) = places.first() else { continue };
        let start = if prompt { case.table.samples[row.sample].range.start } else { *first };
        let (mut seen, mut next) = (HashSet::new(), start);
        for (at, place) in row.range.clone().zip(places) {
            while next < *place {
                seen.insert(tokens.ids[next]);
                next += 1;
            }
            let id = tokens.ids[*place];
            if id != NO_ID {
                kinds[usize::from(seen.contains(&id))]
                    .add(f64::from(case.pairs.p[at]) - f64::from(case.pairs.g[at]));
            }
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use crate::RolloutOptions;
    use crate::align::Joined;
    use crate::cause::{Cause, explain};
    use crate::options::Precision;
    use crate::table::{Builder, Sample, Token};

    #[test]
    fn a_penalty_on_nine_tokens_is_named() {
        let mut builder = Builder::default();
        for row in 0..4_u32 {
            let name = row.to_string().into();
            builder.begin(Sample { step: 0, name, named: true, range: 0..0, padding: None, version: None });
            for position in 0..13 {
                // Nine of the 52 tokens occurred before in their row.
                let repeated = position >= 11 || (row == 0 && position == 10);
                let spread = 0.05 * (f64::from((7 * row + 5 * position) % 9) - 4.0);
                let d = if repeated { 0.68 } else { -0.21 } + spread;
                builder.token(Token {
                    id: 100 * row + if repeated { 0 } else { position },
                    position,
                    rollout: Some(-2.0),
                    trainer: Some(crate::read::narrow(d - 2.0)),
                    counted: true,
                });
            }
        }
        let options = RolloutOptions { precision: Some(Precision::Float32), ..RolloutOptions::default() };
        let joined = Joined::of_one(builder.finish().unwrap());
        let explained = explain(&joined, 0..4, (None, None), &options);
        let found: Vec<Cause> = explained.findings.iter().map(|finding| finding.cause).collect();
        assert_eq!(found, [Cause::Penalty], "{:?}", explained.findings);
        assert!(explained.findings[0].evidence.starts_with("d of 9 tokens"), "{:?}", explained.findings);
    }
}
