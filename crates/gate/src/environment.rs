//! What two set-ups differ in: the difference between a regression and drift.

use std::collections::BTreeSet;
use std::path::Path;

use super::GateError;
use super::baseline::Environment;
use super::policy::{EnvironmentRules, Pattern};
use probe_config_check::expectations::Expectations;
use probe_config_check::pack::{self, Parts, Setting};

/// One setting of the environment on both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Its name.
    pub name: String,
    /// The baseline's value; `None` where it was not recorded.
    pub baseline: Option<String>,
    /// The candidate's value; `None` where it was not recorded.
    pub candidate: Option<String>,
    /// Whether the policy asks for it to be the same.
    pub must_be_same: bool,
}

/// The environments of both sides.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Environments {
    /// The baseline's settings.
    pub baseline: Environment,
    /// The candidate's settings.
    pub candidate: Environment,
    /// Those that the policy looks at and that differ, those that must be the same first.
    pub differences: Vec<Difference>,
}

impl Environments {
    /// Holds both against one another. What only one side recorded is no difference: nobody knows the other value.
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

    /// Whether both sides recorded anything to tell drift by.
    pub fn is_known(&self) -> bool {
        self.baseline.keys().any(|name| self.candidate.contains_key(name))
    }

    /// What must be the same and is not.
    pub fn forbidden(&self) -> impl Iterator<Item = &Difference> {
        self.differences.iter().filter(|difference| difference.must_be_same)
    }
}

/// What identifies an environment: 16 digits of the SHA-256 of its settings; empty for an empty one.
pub fn fingerprint(environment: &Environment) -> String {
    use sha2::{Digest, Sha256};

    if environment.is_empty() {
        return String::new();
    }
    let mut hash = Sha256::new();
    for (name, value) in environment {
        // Lengths keep `a` = `bc` apart from `ab` = `c`.
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name);
        hash.update((value.len() as u64).to_le_bytes());
        hash.update(value);
    }
    super::number::hexadecimal(&hash.finalize(), 8)
}

/// The settings of a configuration pack that tell set-ups apart: device, system, packages, switches, layout. Not seeds, data and weights,
/// which are the training's own, and not what differs from run to run.
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
    // Ranks share a set-up; where one differs, config-check is the tool to tell.
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
