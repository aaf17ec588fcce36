//! Confirms the finest comparison: where its calls have their data, they are replayed in float64.

use super::rerun::{DecidedBy, Rerun, Stage};
use crate::cli::confirm::Scope;
use crate::judge::{Finding, Replayed, Rules};

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
                stage.said = Some(format!("not confirmed by replay: {error:#}"));
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

fn is_convicted(replayed: &Replayed, finding: &Finding) -> bool {
    replayed.convicts(finding.step, finding.rank, &finding.op)
}
