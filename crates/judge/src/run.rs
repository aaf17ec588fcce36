//! The result for the whole run, from the judgements of its parts.

use std::collections::BTreeSet;

use super::median::median;
use super::{
    Cause, Counts, FaultGroup, Finding, Incomplete, PartJudgement, Role, RunInfo, RunVerdict, Summary,
    Verdict, collectives, group,
};

/// Maximum number of findings kept; a longer list of culprits helps nobody.
const MAX_CULPRITS: usize = 1000;

/// A statement about a step and rank, or about the whole run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Step and rank; `None` for a statement about the whole run.
    pub part: Option<(u64, u32)>,
    /// The statement.
    pub text: String,
}

/// Collects parts, in any order and grouping: the result is the same.
#[derive(Debug, Default)]
pub struct RunJudge {
    /// Ops at fault.
    pub findings: Vec<Finding>,
    /// Ops and values by verdict.
    pub counts: Counts,
    /// Statements for the reader.
    pub notes: Vec<Note>,
    /// With the part, if it concerns one.
    pub incomplete: Vec<(Option<(u64, u32)>, Incomplete)>,
    /// Ratios of the candidate's distance from the reference to the baseline's.
    pub ratios: Vec<f32>,
    /// True if all ranks of a step were compared as one, so that what is said of a step is about all of them.
    pub ranks_as_one: bool,
}

impl RunJudge {
    /// Adds the judgement of one step of one rank.
    pub fn add(&mut self, step: u64, rank: u32, part: &PartJudgement) {
        self.findings.extend(part.findings.iter().cloned());
        self.counts.add(&part.counts);
        #[expect(clippy::cast_possible_truncation, reason = "a ratio that is told with three digits")]
        self.ratios.extend(
            part.reference.iter().flatten().filter_map(|errors| errors.ratio()).map(|ratio| ratio as f32),
        );
        let note = |text: &String| Note { part: Some((step, rank)), text: text.clone() };
        self.notes.extend(part.notes.iter().map(note));
        self.incomplete
            .extend(part.incomplete.iter().map(|incomplete| (Some((step, rank)), incomplete.clone())));
    }

    /// Adds the parts collected by another judge.
    pub fn absorb(&mut self, other: Self) {
        self.findings.extend(other.findings);
        self.counts.add(&other.counts);
        self.notes.extend(other.notes);
        self.incomplete.extend(other.incomplete);
        self.ratios.extend(other.ratios);
        self.ranks_as_one |= other.ranks_as_one;
    }

    /// Adds something that could not be read or compared.
    pub fn add_incomplete(&mut self, place: impl Into<String>, reason: impl Into<String>) {
        self.incomplete.push((None, Incomplete { place: place.into(), reason: reason.into() }));
    }

    /// Adds something in one step of one rank that could not be read or compared.
    pub fn add_incomplete_part(&mut self, part: (u64, u32), place: String, reason: String) {
        self.incomplete.push((Some(part), Incomplete { place, reason }));
    }

    /// Adds a statement about the whole run.
    pub fn add_note(&mut self, note: impl Into<String>) {
        self.notes.push(Note { part: None, text: note.into() });
    }

    /// Number of ops compared so far.
    pub const fn ops_paired(&self) -> u64 {
        self.counts.ops_paired
    }

    /// Returns the summary.
    pub fn finish(mut self, baseline: RunInfo, candidate: RunInfo, seconds: f64) -> Summary {
        // The whole run first, then part by part; within one, in the order found.
        self.notes.sort_by_key(|note| note.part);
        self.incomplete.sort_by_key(|(part, _)| *part);
        if !self.ratios.is_empty() {
            let mut ratios: Vec<f64> = self.ratios.iter().map(|&ratio| ratio.into()).collect();
            let nearer = ratios.iter().filter(|ratio| **ratio < 1.0).count();
            self.add_note(format!(
                "the candidate is {:.2} times as far from the reference as the baseline is (median of {} values; nearer in {nearer} of them)",
                median(&mut ratios),
                ratios.len()
            ));
        }
        let (origins, received) = collectives::origins(ranked(std::mem::take(&mut self.findings)));
        self.notes.extend(received.into_iter().map(|text| Note { part: None, text }));
        let (culprits, groups) = kept(origins);
        let flawed = [Verdict::Differs, Verdict::NonFinite, Verdict::Shape]
            .iter()
            .any(|v| self.counts.verdict(*v) > 0);
        let verdict = if !self.incomplete.is_empty() {
            RunVerdict::Incomplete
        } else if culprits.is_empty() && !flawed {
            RunVerdict::Agree
        } else {
            RunVerdict::Diverged
        };
        Summary {
            verdict,
            first_divergence: culprits.first().cloned(),
            culprits,
            groups,
            counts: self.counts,
            incomplete: self.incomplete.into_iter().map(|(_, incomplete)| incomplete).collect(),
            notes: said_once(&self.notes, self.ranks_as_one),
            baseline,
            candidate,
            seconds,
        }
    }
}

/// Sorts findings: the first divergence, then the others by step, in execution order; among ranks, origins
/// before amplifiers.
fn ranked(mut findings: Vec<Finding>) -> Vec<Finding> {
    // Weights and data of a later step differ because an earlier one diverged; that is not reported again.
    if let Some(first) = findings.iter().map(|finding| finding.step).min() {
        findings.retain(|finding| finding.step == first || finding.cause != Cause::Input);
    }
    let weight = |finding: &Finding| u8::from(finding.role == Role::Amplifies);
    findings.sort_by_key(|finding| (finding.step, finding.order, weight(finding), finding.rank));
    findings
}

/// Limits the findings to the length of a list. The first finding of each fault takes precedence over
/// repetitions, so that no rank's own fault is hidden behind those that many ranks share.
fn kept(findings: Vec<Finding>) -> (Vec<Finding>, Vec<FaultGroup>) {
    let mut groups = group::groups(&findings);
    if findings.len() <= MAX_CULPRITS {
        return (findings, groups);
    }
    groups.truncate(MAX_CULPRITS);
    let mut places: BTreeSet<usize> = groups.iter().map(|group| group.first).collect();
    for place in 0..findings.len() {
        if places.len() == MAX_CULPRITS {
            break;
        }
        places.insert(place);
    }
    for group in &mut groups {
        group.first = places.range(..group.first).count();
    }
    let kept = findings.into_iter().enumerate().filter(|(place, _)| places.contains(place));
    (kept.map(|(_, finding)| finding).collect(), groups)
}

/// Merges notes of several parts into one, with the parts; if only the numbers differ, with those of the
/// first.
fn said_once(notes: &[Note], ranks_as_one: bool) -> Vec<String> {
    let mut said: Vec<(Vec<&str>, Vec<&Note>)> = Vec::new();
    for note in notes {
        let is_word = |word: &&str| !word.trim_start_matches('(').starts_with(|c: char| c.is_ascii_digit());
        let words: Vec<&str> = note.text.split(' ').filter(is_word).collect();
        // A note about the whole run has no part and is merged only with an identical one.
        let alike = |first: &Note| first.text == note.text || (first.part.is_some() && note.part.is_some());
        match said.iter_mut().find(|(known, notes)| *known == words && alike(notes[0])) {
            Some((_, notes)) => notes.push(note),
            None => said.push((words, vec![note])),
        }
    }
    let told = |(_, notes): (Vec<&str>, Vec<&Note>)| {
        let text = &notes[0].text;
        let (same, others): (Vec<&Note>, Vec<&Note>) = notes.iter().partition(|note| note.text == *text);
        let place = places(&same, ranks_as_one).map_or_else(String::new, |place| format!("{place}: "));
        let more = places(&others, ranks_as_one)
            .map_or_else(String::new, |places| format!("; the same in {places}"));
        format!("{place}{text}{more}")
    };
    said.into_iter().map(told).collect()
}

/// Formats the steps and ranks of notes; `None` if there are none, or if a note is about the whole run.
fn places(notes: &[&Note], ranks_as_one: bool) -> Option<String> {
    let parts: Vec<(u64, u32)> = notes.iter().map(|note| note.part).collect::<Option<_>>()?;
    let steps: BTreeSet<u64> = parts.iter().map(|(step, _)| *step).collect();
    let (first, last) = (*steps.first()?, *steps.last()?);
    Some(match *parts {
        [(step, rank)] if !ranks_as_one => format!("step {step} rank {rank}"),
        _ if first == last => format!("step {first}"),
        _ => format!("steps {first} to {last}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fault_of_one_rank_is_not_hidden_behind_one_that_very_many_share() {
        let finding = |rank: u32, op: &str, order: usize| Finding {
            rank,
            order,
            op: op.into(),
            ..crate::collectives::finding(op)
        };
        let shared = (0..5000).map(|rank| finding(rank, "Functional.gelu.0.forward", 3));
        let mut run = RunJudge { findings: shared.collect(), ..RunJudge::default() };
        run.findings.push(finding(4999, "Functional.exp.0.forward", 7));
        let found = run.finish(RunInfo::default(), RunInfo::default(), 0.0);
        assert_eq!((found.culprits.len(), found.groups.len()), (MAX_CULPRITS, 2));
        assert_eq!((found.groups[0].ranks.len(), &*found.groups[1].ranks), (5000, &[4999][..]));
        assert_eq!(found.culprits[found.groups[1].first].op, "Functional.exp.0.forward");
        assert_eq!(found.first_divergence.unwrap().rank, 0);
    }

    #[test]
    fn a_note_is_said_once_with_its_places() {
        let mut run = RunJudge::default();
        let said = [
            (0, 0, "3 weights have drifted"),
            (0, 1, "3 weights have drifted"),
            (1, 0, "5 weights have drifted"),
            (2, 0, "another type"),
        ];
        for (step, rank, note) in said {
            run.add(step, rank, &PartJudgement { notes: vec![note.into()], ..PartJudgement::default() });
        }
        run.add_note("7 files");
        run.add_note("8 files");
        let notes = run.finish(RunInfo::default(), RunInfo::default(), 0.0).notes;
        let known = [
            "7 files",
            "8 files",
            "step 0: 3 weights have drifted; the same in step 1 rank 0",
            "step 2 rank 0: another type",
        ];
        assert_eq!(notes, known);
    }

    #[test]
    fn a_note_about_ranks_that_were_compared_as_one_names_none_of_them() {
        let mut run = RunJudge { ranks_as_one: true, ..RunJudge::default() };
        run.add(2, 0, &PartJudgement { notes: vec!["another type".into()], ..PartJudgement::default() });
        let notes = run.finish(RunInfo::default(), RunInfo::default(), 0.0).notes;
        assert_eq!(notes, ["step 2: another type"]);
    }
}
