//! Judges a part whose ranks were read as one. A value that no layout explains, and behind which all agrees, tells nothing of what is made of it: it
//! is judged without.

use probe_judge::{
    Finding, History, PartEvidence, PartJudgement, PriorKnowledge, SlotJudgement, Verdict, judge_part,
};
use probe_pair::{BySlot, PartPair};

use super::Layouts;
use super::mended::{Readers, is_fault};

/// Most times that a part is judged: what is excused may have explained others that are.
const ROUNDS: usize = 8;

/// A value that was excused: its place, its evidence, and how it was judged with it.
struct Excused {
    place: (usize, usize),
    evidence: u32,
    judged: SlotJudgement,
}

impl Layouts {
    /// Judges a part, and explains what is found by the layouts. `evidence` is as before when this returns.
    pub(crate) fn judged(
        &self,
        pair: &PartPair,
        evidence: &mut PartEvidence,
        known: PriorKnowledge<'_>,
        history: &History,
    ) -> (PartJudgement, History) {
        let mut excused: Vec<Excused> = Vec::new();
        for round in 1.. {
            let mut more: Vec<((usize, usize), SlotJudgement)> = Vec::new();
            let (mut judged, next) = judge_part(pair, evidence, known, history, |judged| {
                for excused in &excused {
                    excused.tell(judged);
                }
                // Other sizes are told by the records, and not by evidence that can be forgotten.
                let PartJudgement { findings, slots, .. } = judged;
                findings.retain(|finding| !is_excused(finding, slots, &excused));
                if !self.is_of_all_ranks() {
                    return;
                }
                let mut readers = Readers::of(pair, judged, self);
                if round < ROUNDS && !self.lacks_ranks {
                    more = readers.excused(pair, judged);
                    more.retain(|(place, _)| excused.iter().all(|excused| excused.place != *place));
                    // A finding may be on a whole number of a rank's own.
                    more.sort_by_key(|(place, _)| *place);
                    more.dedup_by_key(|(place, _)| *place);
                }
                if more.is_empty() {
                    self.explain(pair, judged, &mut readers);
                }
            });
            if more.is_empty() {
                for excused in &excused {
                    evidence.restore(excused.place, excused.evidence);
                }
                // The layouts move findings to the op where it began.
                let explained = judged.findings.iter_mut().filter(|_| self.is_of_all_ranks());
                explained.for_each(|finding| finding.measure(pair, evidence));
                return (judged, next);
            }
            let forget = |(place, judged)| Excused { place, evidence: evidence.forget(place), judged };
            excused.extend(more.into_iter().map(forget));
        }
        unreachable!("the last round excuses nothing more")
    }
}

/// Returns true for a finding on a value that was excused, of an op of which no other value differs.
fn is_excused(finding: &Finding, slots: &BySlot<SlotJudgement>, excused: &[Excused]) -> bool {
    let differs = |slot: &SlotJudgement| is_fault(slot.verdict);
    excused.iter().any(|excused| excused.place.0 == finding.order)
        && !slots.get(finding.order).unwrap_or(&[]).iter().any(differs)
}

impl Excused {
    /// Calls the value close, as far off as it was measured.
    fn tell(&self, judged: &mut PartJudgement) {
        let Some(slot) = judged.slots.at_mut(self.place.0, self.place.1) else { return };
        judged.counts.verdicts[slot.verdict as usize] -= 1;
        judged.counts.verdicts[Verdict::Close as usize] += 1;
        // The rules of a judgement are its own.
        *slot = SlotJudgement { verdict: Verdict::Close, follows: false, rule: None, ..self.judged.clone() };
    }
}
