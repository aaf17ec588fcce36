//! The answer for the whole run, from the judgements of its parts.

use std::collections::BTreeSet;

use super::{Cause, Counts, Finding, Incomplete, PartJudgement, Role, RunInfo, RunVerdict, Summary, Verdict};

/// Most findings kept; beyond that a list of culprits helps nobody.
const MAX_CULPRITS: usize = 1000;

/// Gathers part after part.
#[derive(Debug, Default)]
pub struct RunJudge {
    findings: Vec<Finding>,
    counts: Counts,
    notes: Vec<(u64, u32, String)>,
    incomplete: Vec<Incomplete>,
}

impl RunJudge {
    /// Adds the judgement of one step of one rank.
    pub fn add(&mut self, step: u64, rank: u32, part: &PartJudgement) {
        self.findings.extend(part.findings.iter().cloned());
        self.counts.add(&part.counts);
        self.notes.extend(part.notes.iter().map(|note| (step, rank, note.clone())));
    }

    /// Adds something that could not be read or compared.
    pub fn add_incomplete(&mut self, place: impl Into<String>, reason: impl Into<String>) {
        self.incomplete.push(Incomplete { place: place.into(), reason: reason.into() });
    }

    /// Adds a statement about the whole run.
    pub fn add_note(&mut self, note: impl Into<String>) {
        self.notes.push((u64::MAX, u32::MAX, note.into()));
    }

    /// Number of ops compared so far.
    pub const fn ops_paired(&self) -> u64 {
        self.counts.ops_paired
    }

    /// The answer.
    pub fn finish(self, baseline: RunInfo, candidate: RunInfo, seconds: f64) -> Summary {
        let culprits = ranked(self.findings);
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
            counts: self.counts,
            incomplete: self.incomplete,
            notes: said_once(&self.notes),
            baseline,
            candidate,
            seconds,
        }
    }
}

/// The first divergence, then the others: by step, origins before amplifiers, in execution order.
fn ranked(mut findings: Vec<Finding>) -> Vec<Finding> {
    // Weights and data of a later step differ because an earlier one diverged: no news.
    if let Some(first) = findings.iter().map(|finding| finding.step).min() {
        findings.retain(|finding| finding.step == first || finding.cause != Cause::Input);
    }
    let weight = |finding: &Finding| u8::from(finding.role == Role::Amplifies);
    findings.sort_by_key(|finding| (finding.step, weight(finding), finding.order, finding.rank));
    findings.truncate(MAX_CULPRITS);
    findings
}

/// A note that holds for several parts is said once, with the parts.
fn said_once(notes: &[(u64, u32, String)]) -> Vec<String> {
    let mut texts: Vec<&str> = Vec::new();
    for (_, _, note) in notes {
        if !texts.contains(&note.as_str()) {
            texts.push(note);
        }
    }
    let of = |text: &str| {
        notes.iter().filter(|(_, _, note)| note == text).map(|(s, r, _)| (*s, *r)).collect::<Vec<_>>()
    };
    texts
        .iter()
        .map(|text| {
            let places = of(text);
            let steps: BTreeSet<u64> = places.iter().map(|(step, _)| *step).collect();
            match (steps.first(), steps.last()) {
                (Some(&u64::MAX) | None, _) | (_, None) => (*text).to_owned(),
                (Some(first), Some(last)) if first == last && places.len() == 1 => {
                    format!("step {first} rank {}: {text}", places[0].1)
                }
                (Some(first), Some(last)) if first == last => format!("step {first}: {text}"),
                (Some(first), Some(last)) => format!("steps {first} to {last}: {text}"),
            }
        })
        .collect()
}
