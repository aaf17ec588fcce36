//! Result of a shard as JSON; every number round-trips bit-exactly.

use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use probe_compare::{Fold, Place, SideFold};
use probe_judge::{
    Cause, Counts, ErrorPlace, Extremes, Finding, Incomplete, LargestError, Located, Note, ReferenceErrors,
    Role, RunJudge, Verdict,
};
use probe_measure::{ALL_METRICS, Basis};

/// Serialized form of a [`Fold`].
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    counts: Tallies,
    sides: [Side; 2],
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refused: Option<(Place, String)>,
    findings: Vec<Found>,
    notes: Vec<(Option<Place>, String)>,
    incomplete: Vec<(Option<Place>, String, String)>,
    /// Bits of binary32, because there are hundreds of thousands of short numbers.
    ratios: Vec<u32>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Side {
    ops: u64,
    first: Option<(Place, String, String)>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
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

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Found {
    step: u64,
    rank: u32,
    order: usize,
    op: String,
    slot: String,
    cause: String,
    role: String,
    metrics: Vec<Option<Exact>>,
    basis: Option<String>,
    reference: [Option<Exact>; 2],
    place: Option<FoundPlace>,
    reason: String,
    followers: u64,
    stack: Vec<String>,
    source: Option<String>,
    module: Option<String>,
    #[serde(default)]
    below: Vec<String>,
    #[serde(default)]
    caller: Option<String>,
    collectives: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FoundPlace {
    shape: Vec<u64>,
    largest: Option<(Vec<u64>, Exact, Exact)>,
    /// Largest and smallest element of the baseline and of the candidate.
    #[serde(default)]
    extremes: Option<[FoundSides; 2]>,
    region: Option<Vec<(u64, u64)>>,
}

/// Index and value of an element of the baseline and of one of the candidate.
type FoundSides = [(Vec<u64>, Exact); 2];

/// A binary64 that may be non-finite, which JSON cannot express.
#[derive(Debug, Clone, Copy)]
struct Exact(f64);

impl Serialize for Exact {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_finite() { serializer.serialize_f64(self.0) } else { serializer.collect_str(&self.0) }
    }
}

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;

        impl Visitor<'_> for Number {
            type Value = Exact;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, NaN, inf or -inf")
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Exact, E> {
                Ok(Exact(value))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Exact, E> {
                text.parse().map(Exact).map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }

        deserializer.deserialize_any(Number)
    }
}

impl From<&Fold> for State {
    fn from(fold: &Fold) -> Self {
        let RunJudge { findings, counts, notes, incomplete, ratios } = &fold.run;
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
            sides: fold.sides.clone().map(|SideFold { ops, first }| Side { ops, first }),
            refused: fold.refused.clone(),
            findings: findings.iter().map(Into::into).collect(),
            notes: notes.iter().map(|Note { part, text }| (*part, text.clone())).collect(),
            incomplete: incomplete.iter().map(told).collect(),
            ratios: ratios.iter().map(|ratio| ratio.to_bits()).collect(),
        }
    }
}

impl State {
    /// Returns the fold, or a reason if a word is unknown.
    pub(super) fn into_fold(self) -> Result<Fold, String> {
        let Tallies { parts, ops_paired, ops_baseline_only, ops_candidate_only, verdicts, roles, bytes } =
            self.counts;
        let findings = self.findings.into_iter().map(Found::into_finding).collect::<Result<_, _>>()?;
        let run = RunJudge {
            findings,
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
        };
        let sides = self.sides.map(|Side { ops, first }| SideFold { ops, first });
        Ok(Fold { run, sides, refused: self.refused })
    }
}

impl From<&Finding> for Found {
    fn from(finding: &Finding) -> Self {
        let place =
            finding.place.as_ref().map(|ErrorPlace { shape, largest, extremes, region }| FoundPlace {
                shape: shape.clone(),
                largest: largest.as_ref().map(|LargestError { index, baseline, candidate }| {
                    (index.clone(), Exact(*baseline), Exact(*candidate))
                }),
                extremes: extremes.as_deref().map(|Extremes { greatest, least }| {
                    [greatest, least].map(|sides| {
                        sides.each_ref().map(|Located { index, value }| (index.clone(), Exact(*value)))
                    })
                }),
                region: region
                    .as_ref()
                    .map(|region| region.iter().map(|range| (range.start, range.end)).collect()),
            });
        Self {
            step: finding.step,
            rank: finding.rank,
            order: finding.order,
            op: finding.op.clone(),
            slot: finding.slot.clone(),
            cause: finding.cause.name().into(),
            role: finding.role.name().into(),
            metrics: finding.metrics.iter().map(|(_, value)| value.map(Exact)).collect(),
            basis: finding.basis.map(|basis| basis.name().into()),
            reference: [finding.reference.baseline.map(Exact), finding.reference.candidate.map(Exact)],
            place,
            reason: finding.reason.clone(),
            followers: finding.followers,
            stack: finding.stack.clone(),
            source: finding.source.clone(),
            module: finding.module.clone(),
            below: finding.below.clone(),
            caller: finding.caller.clone(),
            collectives: finding.collectives,
        }
    }
}

impl Found {
    fn into_finding(self) -> Result<Finding, String> {
        let unknown = |what: &str, word: &str| format!("unknown {what} {word:?}");
        let cause = Cause::ALL.into_iter().find(|cause| cause.name() == self.cause);
        let role = Role::ALL.into_iter().find(|role| role.name() == self.role);
        let basis = |word: &String| {
            Basis::ALL.into_iter().find(|basis| basis.name() == *word).ok_or_else(|| unknown("basis", word))
        };
        if self.metrics.len() != ALL_METRICS.len() {
            return Err(format!("{} metrics instead of {}", self.metrics.len(), ALL_METRICS.len()));
        }
        let value = |value: Option<Exact>| value.map(|value| value.0);
        let mut metrics = ALL_METRICS.map(|metric| (metric, None));
        for (metric, found) in metrics.iter_mut().zip(&self.metrics) {
            metric.1 = value(*found);
        }
        let [baseline, candidate] = self.reference.map(value);
        let place = self.place.map(|FoundPlace { shape, largest, extremes, region }| ErrorPlace {
            shape,
            largest: largest.map(|(index, b, c)| LargestError { index, baseline: b.0, candidate: c.0 }),
            extremes: extremes.map(|extremes| {
                let [greatest, least] =
                    extremes.map(|sides| sides.map(|(index, value)| Located { index, value: value.0 }));
                Box::new(Extremes { greatest, least })
            }),
            region: region.map(|region| region.into_iter().map(|(start, end)| start..end).collect()),
        });
        Ok(Finding {
            step: self.step,
            rank: self.rank,
            order: self.order,
            op: self.op,
            slot: self.slot,
            cause: cause.ok_or_else(|| unknown("cause", &self.cause))?,
            role: role.ok_or_else(|| unknown("role", &self.role))?,
            metrics,
            basis: self.basis.as_ref().map(basis).transpose()?,
            reference: ReferenceErrors { baseline, candidate },
            place,
            reason: self.reason,
            followers: self.followers,
            stack: self.stack,
            source: self.source,
            module: self.module,
            below: self.below,
            caller: self.caller,
            collectives: self.collectives,
        })
    }
}
