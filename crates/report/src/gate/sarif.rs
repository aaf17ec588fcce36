//! SARIF 2.1.0: a rule per cause, a result per op at fault.
//!
//! Scalars are not results, because they have no source location. A fault that a waiver lets pass is a suppressed result.

use std::path::Path;

use serde::Serialize;

use super::place::{fingerprint, source, uri};
use probe_gate::{Culprit, GateOutcome, Kind, State};
use probe_judge::Cause;

/// The schema that the file declares.
const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// Maximum number of results that GitHub shows per run; it drops the rest.
const MOST: usize = 5000;

#[derive(Serialize)]
struct Log {
    #[serde(rename = "$schema")]
    schema: &'static str,
    version: &'static str,
    runs: [Run; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    tool: Tool,
    invocations: [Invocation; 1],
    results: Vec<Finding>,
    column_kind: &'static str,
}

#[derive(Serialize)]
struct Tool {
    driver: Driver,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Driver {
    name: &'static str,
    semantic_version: &'static str,
    rules: Vec<Rule>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    id: &'static str,
    short_description: Text,
    full_description: Text,
    default_configuration: Level,
}

#[derive(Serialize)]
struct Level {
    level: &'static str,
}

#[derive(Serialize)]
struct Text {
    text: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Invocation {
    execution_successful: bool,
    exit_code: u8,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_execution_notifications: Vec<Notification>,
}

#[derive(Serialize)]
struct Notification {
    level: &'static str,
    message: Text,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding {
    rule_id: &'static str,
    rule_index: usize,
    level: &'static str,
    message: Text,
    locations: Vec<Location>,
    partial_fingerprints: Fingerprints,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stacks: Vec<Stack>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    suppressions: Vec<Suppression>,
}

#[derive(Serialize)]
struct Fingerprints {
    #[serde(rename = "probeFault/v1")]
    fault: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Location {
    #[serde(skip_serializing_if = "Option::is_none")]
    physical_location: Option<PhysicalLocation>,
    logical_locations: [LogicalLocation; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PhysicalLocation {
    artifact_location: ArtifactLocation,
    region: Region,
}

#[derive(Serialize)]
struct ArtifactLocation {
    uri: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Region {
    start_line: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LogicalLocation {
    fully_qualified_name: String,
    kind: &'static str,
}

#[derive(Serialize)]
struct Stack {
    frames: Vec<Frame>,
}

#[derive(Serialize)]
struct Frame {
    location: FrameLocation,
}

#[derive(Serialize)]
struct FrameLocation {
    message: Text,
}

#[derive(Serialize)]
struct Suppression {
    kind: &'static str,
    justification: String,
}

/// Returns the whole document.
pub(super) fn document(outcome: &GateOutcome, root: Option<&Path>) -> serde_json::Result<Vec<u8>> {
    let faults: Vec<&Culprit> =
        outcome.culprits.iter().filter(|culprit| culprit.kind != Kind::Scalar).take(MOST).collect();
    let rules: Vec<Cause> = Cause::ALL
        .into_iter()
        .filter(|cause| faults.iter().any(|fault| fault.cause == cause.name()))
        .collect();
    let blamed = if matches!(outcome.state, State::Drift | State::Flaky) { "warning" } else { "error" };
    let results = faults.iter().filter_map(|fault| {
        let index = rules.iter().position(|cause| cause.name() == fault.cause)?;
        Some(finding(fault, rules[index], index, blamed, root))
    });
    let notifications = outcome.unverified.iter().map(|entry| Notification {
        level: "error",
        message: Text { text: format!("not verified: {}: {}", entry.place, entry.reason) },
    });
    let log = Log {
        schema: SCHEMA,
        version: "2.1.0",
        runs: [Run {
            invocations: [Invocation {
                execution_successful: true,
                exit_code: outcome.exit_code(),
                tool_execution_notifications: notifications.collect(),
            }],
            results: results.collect(),
            tool: Tool {
                driver: Driver {
                    name: probe_dump::PROGRAM,
                    semantic_version: env!("CARGO_PKG_VERSION"),
                    rules: rules.iter().map(|cause| rule(*cause)).collect(),
                },
            },
            column_kind: "unicodeCodePoints",
        }],
    };
    let mut bytes = serde_json::to_vec_pretty(&log)?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn rule(cause: Cause) -> Rule {
    let text = || Text { text: cause.meaning().to_owned() };
    Rule {
        id: cause.name(),
        short_description: text(),
        full_description: text(),
        default_configuration: Level { level: "error" },
    }
}

fn finding(
    fault: &Culprit,
    cause: Cause,
    rule_index: usize,
    blamed: &'static str,
    root: Option<&Path>,
) -> Finding {
    let physical_location = source(fault, root).map(|(path, start_line)| PhysicalLocation {
        artifact_location: ArtifactLocation { uri: uri(&path) },
        region: Region { start_line },
    });
    let name =
        fault.module.as_ref().map_or_else(|| fault.title(), |module| format!("{module}/{}", fault.title()));
    let frames: Vec<Frame> = fault
        .stack
        .iter()
        .map(|frame| Frame { location: FrameLocation { message: Text { text: frame.clone() } } })
        .collect();
    let shown = if fault.places > 1 {
        format!(" (shown by {} steps and ranks)", fault.places)
    } else {
        String::new()
    };
    Finding {
        rule_id: cause.name(),
        rule_index,
        level: if fault.waived.is_some() { "note" } else { blamed },
        message: Text { text: format!("{} at {}: {}{shown}", fault.title(), fault.place(), fault.reason) },
        locations: vec![Location {
            physical_location,
            logical_locations: [LogicalLocation { fully_qualified_name: name, kind: "function" }],
        }],
        partial_fingerprints: Fingerprints { fault: fingerprint(fault) },
        stacks: if frames.is_empty() { Vec::new() } else { vec![Stack { frames }] },
        suppressions: fault
            .waived
            .iter()
            .map(|reason| Suppression { kind: "external", justification: reason.clone() })
            .collect(),
    }
}
