//! Confirms the finest comparison: where its calls have their data, they are replayed in float64.

use std::path::Path;

use super::rerun::{DecidedBy, Rerun, Stage};
use crate::cli::confirm::Scope;
use crate::dump::OpName;
use crate::files::map::FileAccess;
use crate::judge::{Finding, Replayed, Rules};

/// Start of a line that says why a finding was not replayed.
pub(in crate::cli) const UNCONFIRMED: &str = "not confirmed by replay";

impl Rerun<'_> {
    /// Judges a comparison of dumps with data again, with what replaying their calls shows. A suspect that replay clears is dropped, and a call
    /// that is wrong is named. Where nothing can be replayed, the comparison stands.
    pub(super) fn confirmed(&self, mut stage: Stage) -> anyhow::Result<Stage> {
        self.say("replaying the recorded calls in float64");
        let [baseline, candidate] = &stage.dumps;
        let steps = stage.place.steps.parse()?;
        let scope = Scope { sides: [baseline, candidate], steps: Some(&steps), ranks: None };
        let replayed = match scope.replay(true) {
            Ok(replayed) => replayed,
            Err(error) => {
                stage.said = Some(format!("{UNCONFIRMED}: {error:#}"));
                return Ok(stage);
            }
        };
        let said = |finding: &Finding| {
            let said = replayed.said(finding.step, finding.rank, &finding.op)?;
            Some(format!("{}: {said}", finding.op))
        };
        stage.said = stage.summary.first_divergence.as_ref().and_then(said);
        let summary =
            self.compared(&stage.place, [baseline, candidate], Rules::default(), replayed.clone())?;
        // The first op with other bits is the change, right or wrong; only a call that is wrong tells more.
        if stage.decided != DecidedBy::Bits
            || summary.first_divergence.as_ref().is_some_and(|first| is_convicted(&replayed, first))
        {
            stage.summary = summary;
            stage.decided = DecidedBy::Replay;
        }
        Ok(stage)
    }
}

/// Returns why the call of a finding cannot be replayed from this baseline; `None` if the dump holds its elements. Captures hold those of small
/// tensors whatever the task.
///
/// # Errors
/// When the dump cannot be read.
pub(in crate::cli) fn missing_data(dump: &Path, finding: &Finding) -> anyhow::Result<Option<String>> {
    let opened = crate::read::open(dump, FileAccess::Map)?;
    let place = (finding.step, finding.rank);
    let Some(key) = opened.parts.iter().find(|key| (key.step, key.rank.number()) == place) else {
        return Ok(Some(format!("the baseline has no step {} of rank {}", finding.step, finding.rank)));
    };
    let part = opened.reader.read(key)?;
    let name = OpName::parse(&finding.op);
    let Some(op) = part.ops.iter().find(|op| op.name == name) else {
        return Ok(Some(format!("the baseline has no {}", finding.op)));
    };
    let whole = op.slots.iter().filter_map(|slot| slot.value.tensor()).all(|tensor| tensor.data.is_some());
    let reason = format!(
        "the baseline holds no data of {} (task {}); record it with task tensor",
        finding.op, part.task
    );
    Ok((!whole).then_some(reason))
}

fn is_convicted(replayed: &Replayed, finding: &Finding) -> bool {
    replayed.convicts(finding.step, finding.rank, &finding.op)
}
