//! Result of a shard as JSON; every number round-trips bit-exactly.

use serde::{Deserialize, Serialize};

use probe_compare::{Fold, Place, SideFold};
use probe_judge::{Counts, Incomplete, Note, Role, RunJudge, Verdict};
use probe_report::culprit::Culprit;

/// Serialized form of a [`Fold`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    counts: Tallies,
    sides: [SideState; 2],
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refused: Option<(Place, String)>,
    findings: Vec<Culprit>,
    notes: Vec<(Option<Place>, String)>,
    incomplete: Vec<(Option<Place>, String, String)>,
    /// Bits of binary32, because there are hundreds of thousands of short numbers.
    ratios: Vec<u32>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SideState {
    ops: u64,
    first: Option<(Place, String, String)>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tallies {
    parts: u64,
    ops_paired: u64,
    ops_baseline_only: u64,
    ops_candidate_only: u64,
    verdicts: [u64; Verdict::ALL.len()],
    roles: [u64; Role::ALL.len()],
    bytes: u64,
}

impl From<&Fold> for State {
    fn from(fold: &Fold) -> Self {
        let RunJudge { findings, counts, notes, incomplete, ratios, ranks_as_one: _ } = &fold.run;
        let Counts { parts, ops_paired, ops_baseline_only, ops_candidate_only, verdicts, roles, bytes } =
            *counts;
        let told = |(part, Incomplete { place, reason }): &(Option<Place>, Incomplete)| {
            (*part, place.clone(), reason.clone())
        };
        Self {
            counts: Tallies {
                parts,
                ops_paired,
                ops_baseline_only,
                ops_candidate_only,
                verdicts,
                roles,
                bytes,
            },
            sides: fold.sides.clone().map(|SideFold { ops, first }| SideState { ops, first }),
            refused: fold.refused.clone(),
            findings: findings.iter().map(Into::into).collect(),
            notes: notes.iter().map(|Note { part, text }| (*part, text.clone())).collect(),
            incomplete: incomplete.iter().map(told).collect(),
            ratios: ratios.iter().map(|ratio| ratio.to_bits()).collect(),
        }
    }
}

impl State {
    /// Returns the fold.
    pub(super) fn into_fold(self) -> Fold {
        let Tallies { parts, ops_paired, ops_baseline_only, ops_candidate_only, verdicts, roles, bytes } =
            self.counts;
        let run = RunJudge {
            findings: self.findings.into_iter().map(Into::into).collect(),
            counts: Counts {
                parts,
                ops_paired,
                ops_baseline_only,
                ops_candidate_only,
                verdicts,
                roles,
                bytes,
            },
            notes: self.notes.into_iter().map(|(part, text)| Note { part, text }).collect(),
            incomplete: self
                .incomplete
                .into_iter()
                .map(|(part, place, reason)| (part, Incomplete { place, reason }))
                .collect(),
            ratios: self.ratios.into_iter().map(f32::from_bits).collect(),
            // Shards hold pairs of ranks.
            ranks_as_one: false,
        };
        let sides = self.sides.map(|SideState { ops, first }| SideFold { ops, first });
        Fold { run, sides, refused: self.refused }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use probe_judge::{Cause, ErrorPlace, Extremes, Finding, LargestError, Located, ReferenceErrors};
    use probe_measure::{ALL_METRICS, Basis, Metric};

    /// A finding in which no field has the value that an empty one has.
    fn finding() -> Finding {
        let located = |value| Located { index: vec![1, 2], value };
        Finding {
            step: 3,
            rank: 5,
            order: 7,
            op: "Functional.gelu.1.forward".into(),
            slot: "output.0".into(),
            cause: Cause::NonFinite,
            role: Role::Amplifies,
            metrics: ALL_METRICS.map(|metric| match metric {
                Metric::RelL2 => (metric, Some(1.0 / 3.0)),
                Metric::MaxRelErr => (metric, Some(f64::INFINITY)),
                Metric::Cosine => (metric, Some(f64::NAN)),
                _ => (metric, None),
            }),
            basis: Some(Basis::Sketch),
            reference: ReferenceErrors { baseline: Some(0.1), candidate: Some(f64::NEG_INFINITY) },
            place: Some(ErrorPlace {
                shape: vec![4, 8],
                largest: Some(LargestError { index: vec![0, 1], baseline: -0.0, candidate: 5e-324 }),
                extremes: Some(Box::new(Extremes {
                    greatest: [located(0.1), located(0.2)],
                    least: [located(-1.0), located(f64::MIN)],
                })),
                region: Some(vec![0..4, 2..3]),
            }),
            reason: "inputs \"agree\"".into(),
            followers: 11,
            stack: vec!["File model.py, line 3, in forward".into()],
            source: Some("model.py:3".into()),
            module: Some("layers.0".into()),
            below: vec!["aclnnGelu".into()],
            caller: Some("Aten.gelu.0.forward".into()),
            collectives: 13,
        }
    }

    #[test]
    fn a_fold_comes_back_whole() {
        let place = (3, 5);
        let part = Some(place);
        let fold = Fold {
            run: RunJudge {
                findings: vec![finding()],
                counts: Counts { parts: 1, ops_paired: 2, bytes: 3, ..Counts::default() },
                notes: vec![Note { part, text: "a note".into() }],
                incomplete: vec![(part, Incomplete { place: "a.pt".into(), reason: "truncated".into() })],
                ratios: vec![0.5, f32::MIN_POSITIVE],
                ranks_as_one: false,
            },
            sides: [3, 4].map(|ops| SideFold { ops, first: Some((place, "task".into(), "L1".into())) }),
            refused: Some((place, "different tasks".into())),
        };
        let text = serde_json::to_string(&State::from(&fold)).unwrap();
        let back: State = serde_json::from_str(&text).unwrap();
        // NaN is not equal to itself, but its text is.
        assert_eq!(format!("{:?}", back.into_fold()), format!("{fold:?}"));
    }

    #[test]
    fn words_and_metrics_that_are_not_known_are_refused() {
        let text = serde_json::to_string(&Culprit::from(&finding())).unwrap();
        for (from, to, message) in [
            ("\"non-finite\"", "\"magic\"", "unknown cause \"magic\""),
            ("\"cosine\"", "\"sine\"", "missing field `cosine`"),
            ("\"cosine\"", "\"sine\":1,\"cosine\"", "unknown metric \"sine\""),
            ("\"step\"", "\"stop\"", "unknown field `stop`"),
        ] {
            let error = serde_json::from_str::<Culprit>(&text.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
