//! Finds every fault of a run, also those that hide behind the first: each op is given what the baseline's op read.

use std::ffi::OsString;

use super::Trusted;
use super::rerun::{Detail, Place, Rerun, Stage, Trail};
use crate::judge::{Replayed, Rules, Summary};

/// Each op on the baseline's values.
const ALONE: Detail = Detail { name: "alone", level: "mix", task: "tensor" };
/// The results of the ops at fault replaced by the baseline's.
const REPLACED: Detail = Detail { name: "replaced", level: "mix", task: "sketch" };

impl Rerun<'_> {
    /// Records the candidate with what its ops read replaced, and then with the results of those at fault replaced: three runs, two with
    /// a dump as the baseline.
    pub(in crate::cli) fn alone(&self, steps: &str) -> anyhow::Result<Trail> {
        let place = Place { steps: steps.to_owned(), module: None };
        self.expect_runs(if matches!(self.baseline, Trusted::Command(_)) { 3 } else { 2 });
        let baseline = match self.baseline {
            Trusted::Command(command) => self.record(ALONE, &place, "baseline", command, &[])?,
            Trusted::Dump(dump) => dump.to_path_buf(),
        };
        let injected = |detail: Detail, what: &str, at: &[String]| -> anyhow::Result<Stage> {
            let mut more: Vec<OsString> =
                vec!["--inject".into(), baseline.clone().into(), "--replace".into(), what.into()];
            more.extend(at.iter().flat_map(|name| [OsString::from("--at"), name.into()]));
            let candidate = self.record(detail, &place, "candidate", self.candidate, &more)?;
            let dumps = [baseline.clone(), candidate];
            let summary = self.compared(&place, dumps.each_ref(), Rules::default(), Replayed::default())?;
            Ok(Stage::new(detail, place.clone(), dumps, summary))
        };
        let alone = self.confirmed(injected(ALONE, "inputs,gradients", &[])?)?;
        let faults = at_fault(&alone.summary);
        if faults.is_empty() {
            return Ok(self.remarked(
                alone,
                Vec::new(),
                vec!["on the baseline's values, no op is at fault".into()],
            ));
        }
        let calls: Vec<String> = faults.iter().map(|op| forward_of(op)).collect();
        let replaced = injected(REPLACED, "results,gradients", &calls)?;
        let count = match faults.len() {
            1 => "one fault".to_owned(),
            many => format!("{many} faults"),
        };
        let mut remarks = vec![format!("{count} on the baseline's values: {}", faults.join("; "))];
        remarks.push(match &replaced.summary.first_divergence {
            None => "with their results replaced, the runs agree".to_owned(),
            Some(left) if calls.contains(&forward_of(&left.op)) => {
                format!("with their results replaced, nothing is left but {}, which uses what its forward call kept", left.op)
            }
            Some(left) => format!("with their results replaced, {} still diverges", left.op),
        });
        Ok(self.remarked(alone, vec![replaced], remarks))
    }
}

fn forward_of(op: &str) -> String {
    op.replace(".backward", ".forward")
}

/// Returns the calls of functions at fault, each once; modules only where none of their functions is.
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
    names
}
