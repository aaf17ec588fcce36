//! A finding as files hold it: `report.json`, what is printed, the page, and the results of shards.
//!
//! This is the only such form. Both conversions name every field, so that a field that is added to [`Finding`] must be added here.

#[cfg(feature = "schema")]
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};

use probe_dump::{Exact, Word};
use probe_judge as judge;
use probe_judge::{Cause, ErrorPlace, Finding, LargestError, ReferenceErrors, Role};
use probe_measure::{ALL_METRICS, Basis, Metric};

/// An op at fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Culprit {
    /// Iteration.
    pub step: u64,
    /// Rank.
    pub rank: u32,
    /// Place of the op in execution order within its step and rank, from 0.
    pub order: usize,
    /// Full op name.
    pub op: String,
    /// Path of the slot that shows the fault; empty for an op without partner.
    pub slot: String,
    /// Kind of fault.
    pub cause: Word<Cause>,
    /// Role of the op in the spread of error.
    pub role: Word<Role>,
    /// Metrics of the slot by name; null if undefined or unknown.
    pub metrics: Metrics,
    /// True if the metrics are not exact: estimates from sketches, or lower bounds from recorded statistics.
    pub estimated: bool,
    /// Basis of the metrics: `data` (exact), `sketch` (within 20 %) or `statistics` (lower bounds); null if there are none.
    pub basis: Option<Word<Basis>>,
    /// Relative l2 error of the baseline against the reference run; null if unknown or without a reference.
    pub reference_error_baseline: Option<Exact>,
    /// Relative l2 error of the candidate against the reference run; null if unknown or without a reference.
    pub reference_error_candidate: Option<Exact>,
    /// Position of the error in the tensor, or of the extremes if elements were not compared; null if neither is known.
    pub place: Option<Spot>,
    /// The reason in words.
    pub reason: String,
    /// Ops of its step and rank that differ because of it.
    pub followers: u64,
    /// Call stack, innermost first, without framework frames; empty if not recorded.
    pub stack: Vec<String>,
    /// Source line of the innermost user frame as `file:line`; null if not recorded.
    pub source: Option<String>,
    /// Path of the module it belongs to; null if unknown.
    pub module: Option<String>,
    /// Operators that it launched in the runtime, if the candidate recorded them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub below: Vec<String>,
    /// For operators recorded in the runtime: the framework op that launched it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// Number of collectives before it in its step and rank.
    pub collectives: u64,
}

/// Position of an error in a tensor. Indices refer to the baseline's shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Spot {
    /// Sizes of the dimensions.
    pub shape: Vec<u64>,
    /// The largest error among the elements that are finite on both sides; null if they are equal or were not compared.
    pub largest: Option<Largest>,
    /// The greatest and the least element of both sides, if elements were not compared but the positions of these were recorded; null
    /// otherwise.
    pub extremes: Option<Extremes>,
    /// For each dimension, the first index of the range that holds 99 % of the elements that are NaN or infinite on one side only, or else
    /// of the squared error, and the index after its last; null if it was not computed.
    pub region: Option<Vec<[u64; 2]>>,
}

/// The element with the largest absolute error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Largest {
    /// Its index in each dimension.
    pub index: Vec<u64>,
    /// The baseline's value there (the real part, for complex).
    pub baseline: Exact,
    /// The candidate's value there.
    pub candidate: Exact,
}

/// The first of the greatest and of the least finite elements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Extremes {
    /// The greatest.
    pub greatest: OfSides,
    /// The least.
    pub least: OfSides,
}

/// An element of each side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OfSides {
    /// The baseline's.
    pub baseline: Located,
    /// The candidate's.
    pub candidate: Located,
}

/// An element and its position.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Located {
    /// Its index in each dimension.
    pub index: Vec<u64>,
    /// Its value; the modulus, for complex.
    pub value: Exact,
}

/// Metrics by name, in column order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metrics(pub [(Metric, Option<f64>); ALL_METRICS.len()]);

impl Serialize for Metrics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(metric, value)| (metric.name(), value.map(Exact))))
    }
}

impl<'de> Deserialize<'de> for Metrics {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut by_name = BTreeMap::<String, Option<Exact>>::deserialize(deserializer)?;
        let mut metrics = ALL_METRICS.map(|metric| (metric, None));
        for (metric, value) in &mut metrics {
            let found = by_name.remove(metric.name());
            *value = found
                .ok_or_else(|| <D::Error as de::Error>::missing_field(metric.name()))?
                .map(|value| value.0);
        }
        match by_name.keys().next() {
            Some(name) => Err(de::Error::custom(format!("unknown metric {name:?}"))),
            None => Ok(Self(metrics)),
        }
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Metrics {
    fn schema_name() -> Cow<'static, str> {
        "Metrics".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let properties: serde_json::Map<String, serde_json::Value> = ALL_METRICS
            .iter()
            .map(|metric| {
                let value = serde_json::json!({
                    "description": metric.meaning(),
                    "anyOf": [{ "type": ["number", "null"] }, { "enum": ["NaN", "Infinity", "-Infinity"] }],
                });
                (metric.name().to_owned(), value)
            })
            .collect();
        schemars::json_schema!({
            "description": "Metrics by name; null if undefined or unknown, a word if not finite.",
            "type": "object",
            "properties": properties,
            "required": ALL_METRICS.map(Metric::name),
            "additionalProperties": false,
        })
    }
}

impl From<&Finding> for Culprit {
    fn from(finding: &Finding) -> Self {
        let Finding {
            step,
            rank,
            order,
            op,
            slot,
            cause,
            role,
            metrics,
            basis,
            reference: ReferenceErrors { baseline, candidate },
            place,
            reason,
            followers,
            stack,
            source,
            module,
            below,
            caller,
            collectives,
        } = finding.clone();
        Self {
            step,
            rank,
            order,
            op,
            slot,
            cause: Word(cause),
            role: Word(role),
            metrics: Metrics(metrics),
            estimated: finding.is_estimated(),
            basis: basis.map(Word),
            reference_error_baseline: baseline.map(Exact),
            reference_error_candidate: candidate.map(Exact),
            place: place.map(Into::into),
            reason,
            followers,
            stack,
            source,
            module,
            below,
            caller,
            collectives,
        }
    }
}

impl From<Culprit> for Finding {
    fn from(culprit: Culprit) -> Self {
        let Culprit {
            step,
            rank,
            order,
            op,
            slot,
            cause,
            role,
            metrics,
            // Follows from the basis.
            estimated: _,
            basis,
            reference_error_baseline,
            reference_error_candidate,
            place,
            reason,
            followers,
            stack,
            source,
            module,
            below,
            caller,
            collectives,
        } = culprit;
        Self {
            step,
            rank,
            order,
            op,
            slot,
            cause: cause.0,
            role: role.0,
            metrics: metrics.0,
            basis: basis.map(|basis| basis.0),
            reference: ReferenceErrors {
                baseline: reference_error_baseline.map(|error| error.0),
                candidate: reference_error_candidate.map(|error| error.0),
            },
            place: place.map(Into::into),
            reason,
            followers,
            stack,
            source,
            module,
            below,
            caller,
            collectives,
        }
    }
}

impl From<ErrorPlace> for Spot {
    fn from(ErrorPlace { shape, largest, extremes, region }: ErrorPlace) -> Self {
        Self {
            shape,
            largest: largest.map(|LargestError { index, baseline, candidate }| Largest {
                index,
                baseline: Exact(baseline),
                candidate: Exact(candidate),
            }),
            extremes: extremes.map(|extremes| {
                let judge::Extremes { greatest, least } = *extremes;
                Extremes { greatest: greatest.into(), least: least.into() }
            }),
            region: region
                .map(|ranges| ranges.into_iter().map(|Range { start, end }| [start, end]).collect()),
        }
    }
}

impl From<Spot> for ErrorPlace {
    fn from(Spot { shape, largest, extremes, region }: Spot) -> Self {
        Self {
            shape,
            largest: largest.map(|Largest { index, baseline, candidate }| LargestError {
                index,
                baseline: baseline.0,
                candidate: candidate.0,
            }),
            extremes: extremes.map(|Extremes { greatest, least }| {
                Box::new(judge::Extremes { greatest: greatest.into(), least: least.into() })
            }),
            region: region.map(|ranges| ranges.into_iter().map(|[start, end]| start..end).collect()),
        }
    }
}

impl From<[judge::Located; 2]> for OfSides {
    fn from(sides: [judge::Located; 2]) -> Self {
        let [baseline, candidate] =
            sides.map(|judge::Located { index, value }| Located { index, value: Exact(value) });
        Self { baseline, candidate }
    }
}

impl From<OfSides> for [judge::Located; 2] {
    fn from(OfSides { baseline, candidate }: OfSides) -> Self {
        [baseline, candidate].map(|Located { index, value }| judge::Located { index, value: value.0 })
    }
}
