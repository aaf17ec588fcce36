//! Finds every fault of a run, also those that hide behind the first: each op is given what the baseline's op read.

use std::ffi::OsString;
use std::path::Path;

use anyhow::Context;

use super::Trusted;
use super::rerun::{Detail, Place, Rerun, Stage, Trail};
use crate::dump::Level;
use crate::files::map::FileAccess;
use crate::judge::{Cause, Replayed, Rules, Summary};

/// Level of the recordings without one that is asked for, or that the baseline's dump has.
const LEVEL: &str = "mix";

impl Rerun<'_> {
    /// Records the candidate with what its ops read replaced, and then with the results of those at fault replaced: three runs, two with
    /// a dump as the baseline. Ops are those of the `level`.
    pub(in crate::cli) fn alone(&self, steps: &str, level: Option<&str>) -> anyhow::Result<Trail> {
        let level = match (level, self.baseline) {
            (Some(level), _) => level,
            (None, Trusted::Command(_)) => LEVEL,
            (None, Trusted::Dump(dump)) => level_of(dump)?,
        };
        // Each op on the baseline's values; then with the results of those at fault replaced by the baseline's.
        let alone = Detail { name: "alone", level, task: "tensor" };
        let replaced = Detail { name: "replaced", level, task: "sketch" };
        let place = Place { steps: steps.to_owned(), module: None };
        self.expect_runs(if matches!(self.baseline, Trusted::Command(_)) { 3 } else { 2 });
        let baseline = match self.baseline {
            Trusted::Command(command) => self.record(alone, &place, "baseline", command, &[])?,
            Trusted::Dump(dump) => dump.to_path_buf(),
        };
        let injected = |detail: Detail<'_>, what: &str, at: &[String]| -> anyhow::Result<Stage> {
            let mut more: Vec<OsString> =
                vec!["--inject".into(), baseline.clone().into(), "--replace".into(), what.into()];
            more.extend(at.iter().flat_map(|name| [OsString::from("--at"), name.into()]));
            let candidate = self.record(detail, &place, "candidate", self.candidate, &more)?;
            let dumps = [baseline.clone(), candidate];
            let summary = self.compared(&place, dumps.each_ref(), Rules::default(), Replayed::default())?;
            Ok(Stage::new(detail, place.clone(), dumps, summary))
        };
        let alone = self.confirmed(injected(alone, "inputs,gradients", &[])?)?;
        let faults = at_fault(&alone.summary);
        if faults.is_empty() {
            return Ok(self.remarked(
                alone,
                Vec::new(),
                vec!["on the baseline's values, no op is at fault".into()],
            ));
        }
        // Below autograd an op of the backward pass is a call of its own.
        let call_of = |op: &str| if level == "op" { op.to_owned() } else { forward_of(op) };
        let calls: Vec<String> = faults.iter().map(|op| call_of(op)).collect();
        let replaced = injected(replaced, "results,gradients", &calls)?;
        let count = match faults.len() {
            1 => "one fault".to_owned(),
            many => format!("{many} faults"),
        };
        let mut remarks = vec![format!("{count} on the baseline's values: {}", faults.join("; "))];
        remarks.push(match &replaced.summary.first_divergence {
            None => "with their results replaced, the runs agree".to_owned(),
            Some(left) if calls.contains(&call_of(&left.op)) => {
                let why = match left.cause {
                    Cause::Argument => "whose arguments differ",
                    _ => "which uses what its forward call kept",
                };
                format!("with their results replaced, nothing is left but {}, {why}", left.op)
            }
            Some(left) => format!("with their results replaced, {} still diverges", left.op),
        });
        Ok(self.remarked(alone, vec![replaced], remarks))
    }
}

/// Returns the level of a dump, by the name that `probe capture` has for it.
fn level_of(dump: &Path) -> anyhow::Result<&'static str> {
    let opened = crate::read::open(dump, FileAccess::Map)?;
    let first = opened.parts.first().with_context(|| format!("{}: holds no step", dump.display()))?;
    Ok(match Level::parse(&opened.reader.read(first)?.level) {
        Some(Level::Module) => "module",
        Some(Level::Api) => "api",
        Some(Level::Op) => "op",
        Some(Level::Mix | Level::Saved) | None => LEVEL,
    })
}

fn forward_of(op: &str) -> String {
    op.replace(".backward", ".forward")
}

/// Returns the calls of functions at fault, each once; modules only where none of their functions is. A backward whose forward call
/// is at fault uses what that kept.
fn at_fault(summary: &Summary) -> Vec<String> {
    let functions: Vec<_> =
        summary.culprits.iter().filter(|finding| !finding.op.starts_with("Module.")).collect();
    let chosen = if functions.is_empty() { summary.culprits.iter().collect() } else { functions };
    let mut names: Vec<String> = Vec::new();
    for finding in chosen {
        if !finding.op.starts_with("Optimizer.") && !names.contains(&finding.op) {
            names.push(finding.op.clone());
        }
    }
    let is_behind = |name: &String| *name != forward_of(name) && names.contains(&forward_of(name));
    names.iter().filter(|name| !is_behind(name)).cloned().collect()
}
