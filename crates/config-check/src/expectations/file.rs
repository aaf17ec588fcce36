//! Format of a table of expectations: the one shipped with probe, and the user's own.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use crate::pack::{DeviceKind, Setting};
use crate::pair::DevicePair;
use crate::part::{Part, Verdict};
use crate::value::Meaning;

/// A whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// Patterns of variables whose values may be shown.
    #[serde(default)]
    pub(super) allow: Vec<String>,
    /// Names that wrappers add to module paths.
    #[serde(default)]
    pub(super) wrappers: Vec<String>,
    #[serde(default)]
    pub(super) rule: Vec<Rule>,
    #[serde(default)]
    pub(super) setting: Vec<Entry>,
    #[serde(default)]
    pub(super) alias: Vec<Alias>,
    #[serde(default)]
    pub(super) class: Vec<Class>,
    #[serde(default)]
    pub(super) package: Vec<Grade>,
    #[serde(default)]
    pub(super) dtype_flag: Vec<DtypeFlag>,
    #[serde(default)]
    pub(super) vote: Vec<Vote>,
    #[serde(default)]
    pub(super) part: BTreeMap<String, PartDefault>,
    pub(super) limits: Option<Limits>,
}

/// A rule about rows.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    #[serde(deserialize_with = "part")]
    pub(super) part: Option<Part>,
    /// Pattern for the row's key.
    pub(super) key: String,
    /// Classes of pairs it applies to; empty for all.
    #[serde(default)]
    pub(super) pairs: Vec<String>,
    /// `one` if only one side has it, or `both`; empty for either.
    #[serde(default)]
    pub(super) sides: String,
    /// Two patterns, one per side's value, in either order.
    #[serde(default)]
    pub(super) values: Vec<String>,
    #[serde(deserialize_with = "verdict")]
    pub(super) verdict: Verdict,
    #[serde(default)]
    pub(super) why: String,
    #[serde(default)]
    pub(super) todo: String,
}

/// A known setting.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    #[serde(deserialize_with = "part")]
    pub(super) part: Option<Part>,
    /// Its key if all kinds of device share one.
    pub(super) key: Option<String>,
    /// Its keys on a GPU and on an NPU.
    pub(super) gpu: Option<String>,
    pub(super) npu: Option<String>,
    #[serde(default, rename = "type")]
    pub(super) meaning: Meaning,
    /// Effective value if unset.
    pub(super) default: Option<String>,
    /// Effective value if unset, by kind of device.
    pub(super) gpu_default: Option<String>,
    pub(super) npu_default: Option<String>,
    #[serde(deserialize_with = "verdict")]
    pub(super) differs: Verdict,
    /// Verdict between different kinds of device, if it is not the one above.
    #[serde(default, deserialize_with = "maybe_verdict")]
    pub(super) mixed: Option<Verdict>,
    /// Verdict if the other kind of device has no such setting.
    #[serde(default = "expected", deserialize_with = "verdict")]
    pub(super) alone: Verdict,
    #[serde(default)]
    pub(super) why: String,
    #[serde(default)]
    pub(super) todo: String,
    #[serde(default)]
    pub(super) when: Vec<When>,
}

const fn expected() -> Verdict {
    Verdict::Expected
}

/// A value of a setting that is judged by itself.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct When {
    pub(super) value: String,
    /// `both` sides have it, or `either`.
    pub(super) on: String,
    #[serde(default)]
    pub(super) pairs: Vec<String>,
    #[serde(deserialize_with = "verdict")]
    pub(super) verdict: Verdict,
    #[serde(default)]
    pub(super) why: String,
    #[serde(default)]
    pub(super) todo: String,
}

/// Names of the same hyperparameter.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Alias {
    pub(super) names: Vec<String>,
}

/// Interchangeable classes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Class {
    /// Patterns of their names.
    pub(super) names: Vec<String>,
    #[serde(deserialize_with = "verdict")]
    pub(super) verdict: Verdict,
    pub(super) why: String,
}

/// Meaning of a difference in these packages.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Grade {
    /// Patterns of normalised names.
    pub(super) names: Vec<String>,
    /// Set if only one kind of device has these packages: `gpu` or `npu`.
    pub(super) vendor: Option<DeviceKind>,
    #[serde(deserialize_with = "verdict")]
    pub(super) differs: Verdict,
    #[serde(deserialize_with = "verdict")]
    pub(super) one_sided: Verdict,
    pub(super) why: String,
    #[serde(default)]
    pub(super) todo: String,
}

/// A hyperparameter that sets the dtype of a run.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DtypeFlag {
    /// Last name of the key.
    pub(super) name: String,
    /// The dtype that it selects when set; without this, its value is the dtype.
    pub(super) gives: Option<String>,
}

/// A variable or package that indicates a kind of device.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Vote {
    /// The kind.
    pub(crate) kind: DeviceKind,
    /// Name of a variable.
    pub(crate) variable: Option<String>,
    /// Pattern of a package's name.
    pub(crate) package: Option<String>,
    /// Its weight.
    pub(crate) weight: u32,
}

/// Ruling for rows that no rule covers.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PartDefault {
    /// Verdict on values that differ.
    #[serde(deserialize_with = "verdict")]
    pub(crate) differs: Verdict,
    /// Verdict on values that one side lacks.
    #[serde(deserialize_with = "verdict")]
    pub(crate) one_sided: Verdict,
    /// Interpretation of values.
    #[serde(default, rename = "type")]
    pub(crate) meaning: Meaning,
    /// The reason it matters.
    pub(crate) why: String,
    /// The advice.
    pub(crate) todo: String,
}

/// Numeric thresholds.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limits {
    /// Largest relative distance of weights after training steps that rounding explains.
    pub(crate) trained_weights: f64,
    /// Largest relative distance of a weight rounded to bfloat16 on one side.
    pub(crate) cast_bfloat16: f64,
    /// The same for float16.
    pub(crate) cast_float16: f64,
    /// Rounding of a float32 sum, in units of 2^-23 per doubling of the number of elements.
    pub(crate) statistic_ulps: f64,
    /// Largest relative difference in statistics of float batches that a different decoder
    /// explains.
    pub(crate) decoded_batches: f64,
    /// Largest relative difference of two learning rates that counts as rounding.
    pub(crate) rates: f64,
}

fn verdict<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Verdict, D::Error> {
    let word = String::deserialize(deserializer)?;
    Verdict::parse(&word).ok_or_else(|| {
        let known = Verdict::ALL.map(Verdict::name).join(", ");
        serde::de::Error::custom(format!("unknown verdict {word:?}; known: {known}"))
    })
}

fn maybe_verdict<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Verdict>, D::Error> {
    verdict(deserializer).map(Some)
}

fn part<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Part>, D::Error> {
    let word = String::deserialize(deserializer)?;
    if word == "*" {
        return Ok(None);
    }
    Part::parse(&word).map(Some).ok_or_else(|| {
        let known = Part::ALL.map(Part::name).join(", ");
        serde::de::Error::custom(format!("unknown part {word:?}; known: {known}"))
    })
}

impl File {
    /// Parses a file; the error message is one line and names the place.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let file: Self = toml::from_str(text).map_err(|error| {
            let line = error
                .span()
                .map_or(0, |span| text.get(..span.start).unwrap_or(text).matches('\n').count() + 1);
            format!("line {line}: {}", error.message().replace('\n', " "))
        })?;
        for (number, rule) in (1..).zip(&file.rule) {
            rule.check().map_err(|fault| format!("rule {number}: {fault}"))?;
        }
        for (number, entry) in (1..).zip(&file.setting) {
            entry.check().map_err(|fault| format!("setting {number}: {fault}"))?;
        }
        Ok(file)
    }
}

fn check_pairs(pairs: &[String]) -> Result<(), String> {
    pairs.iter().find(|word| !DevicePair::is_class(word)).map_or(Ok(()), |word| {
        Err(format!(
            "unknown pairs {word:?}; known: mixed, same, and two of gpu, npu, cpu with a - between them"
        ))
    })
}

impl Rule {
    fn check(&self) -> Result<(), String> {
        check_pairs(&self.pairs)?;
        if !["", "one", "both"].contains(&&*self.sides) {
            return Err(format!("sides = {:?}; known: one and both", self.sides));
        }
        if !matches!(self.values.len(), 0 | 2) {
            return Err("values needs two patterns, one for each side".into());
        }
        Ok(())
    }
}

impl Entry {
    fn check(&self) -> Result<(), String> {
        if self.part.is_none() {
            return Err("needs one part".into());
        }
        if self.key.is_some() == (self.gpu.is_some() || self.npu.is_some()) {
            return Err("needs either key, or gpu and npu (or one of them)".into());
        }
        for when in &self.when {
            check_pairs(&when.pairs)?;
            if !["both", "either"].contains(&&*when.on) {
                return Err(format!("on = {:?}; known: both and either", when.on));
            }
        }
        Ok(())
    }

    /// Returns the effective value of the unset setting on a kind of device.
    pub(super) fn unset(&self, kind: Option<DeviceKind>) -> Option<Setting> {
        let own = match kind {
            Some(DeviceKind::Gpu) => self.gpu_default.as_deref(),
            Some(DeviceKind::Npu) => self.npu_default.as_deref(),
            _ => None,
        };
        own.or(self.default.as_deref()).map(Setting::from)
    }
}
