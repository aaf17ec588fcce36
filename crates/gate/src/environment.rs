//! Differences between two environments: these distinguish drift from a regression.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Serialize;

use super::GateError;
use super::baseline::Environment;
use super::policy::{EnvironmentRules, Pattern};
use probe_config_check::expectations::Expectations;
use probe_config_check::pack::{self, Parts, Setting};

/// One setting of the environment on both sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct Difference {
    /// Its name.
    pub name: String,
    /// The baseline's value; `None` if it was not recorded.
    pub baseline: Option<String>,
    /// The candidate's value; `None` if it was not recorded.
    pub candidate: Option<String>,
    /// True if the policy requires it to be the same.
    #[serde(skip)]
    pub must_be_same: bool,
}

/// The environments of both sides.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Environments {
    /// The baseline's settings.
    pub baseline: Environment,
    /// The candidate's settings.
    pub candidate: Environment,
    /// Settings that the policy covers and that differ; those that must be the same come first.
    pub differences: Vec<Difference>,
}

impl Environments {
    /// Compares both. A setting recorded on one side only is not a difference, because the other value is unknown.
    pub fn of(baseline: Environment, candidate: Environment, rules: &EnvironmentRules) -> Self {
        let any = |patterns: &[Pattern], name: &str| patterns.iter().any(|pattern| pattern.matches(name));
        let names: BTreeSet<&String> = baseline.keys().filter(|name| candidate.contains_key(*name)).collect();
        let mut differences: Vec<Difference> = names
            .into_iter()
            .filter(|name| baseline[*name] != candidate[*name])
            .filter_map(|name| {
                let must_be_same = any(&rules.same, name);
                (must_be_same || any(&rules.report, name)).then(|| Difference {
                    name: name.clone(),
                    baseline: baseline.get(name).cloned(),
                    candidate: candidate.get(name).cloned(),
                    must_be_same,
                })
            })
            .collect();
        differences.sort_by_key(|difference| !difference.must_be_same);
        Self { baseline, candidate, differences }
    }

    /// Returns true if both sides recorded a setting in common, by which drift can be detected.
    pub fn is_known(&self) -> bool {
        self.baseline.keys().any(|name| self.candidate.contains_key(name))
    }

    /// Returns the settings that must be the same but differ.
    pub fn forbidden(&self) -> impl Iterator<Item = &Difference> {
        self.differences.iter().filter(|difference| difference.must_be_same)
    }
}

/// Returns the identifier of an environment: 16 digits of the SHA-256 of its settings; empty for an empty environment.
pub fn fingerprint(environment: &Environment) -> String {
    use sha2::{Digest, Sha256};

    if environment.is_empty() {
        return String::new();
    }
    let mut hash = Sha256::new();
    for (name, value) in environment {
        // The lengths distinguish `a` = `bc` from `ab` = `c`.
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name);
        hash.update((value.len() as u64).to_le_bytes());
        hash.update(value);
    }
    super::hexadecimal(&hash.finalize(), 8)
}

/// Returns the settings of a configuration pack that characterize an environment: device, system, packages, switches, layout. Seeds, data
/// and weights are excluded because they belong to the training itself, and so is everything that differs from run to run.
///
/// # Errors
/// [`GateError`] when the pack cannot be read.
pub fn of_pack(path: &Path) -> Result<Environment, GateError> {
    let expectations = Expectations::load(None)?;
    let pack = pack::open(path, &expectations)?;
    let mut environment = Environment::new();
    if let Some(manifest) = &pack.manifest {
        environment.insert("device".into(), manifest.device.kind.name().to_lowercase());
        let names = manifest.device.names.join(", ");
        let count = manifest.device.count;
        for (name, value) in [
            ("device_name", names),
            ("device_count", if count > 0 { count.to_string() } else { String::new() }),
            ("world_size", manifest.world_size.to_string()),
        ] {
            if !value.is_empty() {
                environment.insert(name.into(), value);
            }
        }
    }
    // Ranks share an environment; if one differs, config-check is the tool that reports it.
    if let Some(parts) = pack.ranks.values().next() {
        add_parts(parts, &mut environment);
    }
    Ok(environment)
}

fn add_parts(parts: &Parts, environment: &mut Environment) {
    if let Some(pip) = &parts.pip {
        for package in &pip.packages {
            environment.insert(package.name.to_lowercase().replace('-', "_"), package.version.clone());
        }
    }
    for (prefix, record) in [("", &parts.platform), ("flags.", &parts.flags), ("layout.", &parts.distributed)]
    {
        let Some(record) = record else { continue };
        for (name, value) in record.leaves() {
            if !matches!(value, Setting::Null) {
                environment.entry(format!("{prefix}{name}")).or_insert_with(|| value.to_string());
            }
        }
    }
}
