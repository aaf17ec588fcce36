//! One part at a time: reads it on both sides, pairs its ops and measures them.

use std::collections::BTreeMap;

use rayon::prelude::*;

use probe_dump::{Dump, Level, LevelFilter, NATIVE, Rank};
use probe_judge::{History, PartEvidence, PartJudgement};
use probe_pair::{
    Alignment, CommonTerms, PartMatch, PartPair, align, align_kernels, holds_kernels, keep_common,
    keep_common_slots, keep_first_batch, keep_reached, keep_shared_kinds, substitutions,
};

use super::error::CompareError;
use super::layouts::{self, Layouts};
use super::portrait::Portrait;
use super::progress::Progress;
use super::reference::Reference;
use super::request::CompareOptions;
use super::{collect, rows, tokens};

/// A part that was measured, and judged unless `judged` is still the default.
pub(super) struct DonePart {
    pub(super) pair: PartPair,
    pub(super) evidence: PartEvidence,
    pub(super) bytes: u64,
    pub(super) judged: PartJudgement,
    /// Findings of the layouts of a run on many ranks; empty if ranks pair one to one.
    pub(super) layouts: Layouts,
    /// Closer looks at values at fault.
    pub(super) portraits: Vec<Portrait>,
    /// Reason why the reference could not be read completely.
    pub(super) reference_fault: Option<String>,
}

/// Processes the parts of a batch: ranks in parallel, the steps of a rank in sequence, because each builds on the history left
/// by the previous one.
pub(super) fn in_order<'p>(
    parts: impl Iterator<Item = &'p mut DonePart>,
    histories: &mut BTreeMap<u32, History>,
    work: impl Fn(&mut DonePart, &History) -> History + Sync,
) {
    let mut ranks: BTreeMap<u32, Vec<&mut DonePart>> = BTreeMap::new();
    for part in parts {
        ranks.entry(part.pair.rank).or_default().push(part);
    }
    let ranks: Vec<_> = ranks
        .into_iter()
        .map(|(rank, parts)| (rank, parts, histories.remove(&rank).unwrap_or_default()))
        .collect();
    let done: Vec<(u32, History)> = ranks
        .into_par_iter()
        .map(|(rank, parts, mut history)| {
            for part in parts {
                history = work(part, &history);
            }
            (rank, history)
        })
        .collect();
    histories.extend(done);
}

/// Returns half the number of threads: each part read and measured takes another thread for its second side.
pub(super) fn parts_at_a_time() -> usize {
    (rayon::current_num_threads() / 2).max(1)
}

pub(super) fn work_on(
    matches: &[PartMatch],
    baseline: &Dump,
    candidate: &Dump,
    reference: Option<&Reference>,
    options: &CompareOptions,
    progress: &dyn Progress,
) -> Vec<Result<DonePart, CompareError>> {
    let compared = |part: &PartMatch| {
        let mut done = compare_part(part, baseline, candidate, options, progress)?;
        if let Some(reference) = reference {
            let found = reference.errors(part, &done.pair, options);
            (done.judged.reference, done.reference_fault) = (found.errors, found.fault);
        }
        for side in [&done.pair.baseline, &done.pair.candidate] {
            side.store.let_go();
        }
        Ok(done)
    };
    matches.par_iter().map(compared).collect()
}

fn compare_part(
    part: &PartMatch,
    baseline: &Dump,
    candidate: &Dump,
    options: &CompareOptions,
    progress: &dyn Progress,
) -> Result<DonePart, CompareError> {
    let (mut b, mut c, mut layouts) = layouts::read(part, baseline, candidate, &options.mapping)?;
    let folded = layouts.names(&b, &c);
    if b.task != c.task && !options.request.any_task && !share_statistics((baseline, &b), (candidate, &c)) {
        return Err(CompareError::Tasks {
            place: format!("step {} {}", part.baseline.step, part.baseline.rank),
            baseline: b.task,
            candidate: c.task,
        });
    }
    if b.task != c.task {
        b.notes.push(format!(
            "the baseline recorded task {}, the candidate task {}; compared by what both recorded",
            b.task, c.task
        ));
    }
    options.request.level.retain(&mut b.ops);
    options.request.level.retain(&mut c.ops);
    let two_tools = [baseline, candidate].iter().filter(|dump| dump.format == NATIVE).count() == 1;
    let across_kernels = holds_kernels(&b) != holds_kernels(&c);
    // If one kind of op was chosen, both sides are filtered to it.
    if options.request.level == LevelFilter::All && !across_kernels && differ_in_level(&b, &c, two_tools) {
        let place = format!("step {} {}", part.baseline.step, part.baseline.rank);
        if !options.request.any_level {
            return Err(CompareError::Levels { place, baseline: b.level, candidate: c.level });
        }
        keep_shared_kinds(&mut b, &mut c);
        if b.ops.is_empty() {
            let reason = format!("{place}: levels {} and {} have no kind of op in common", b.level, c.level);
            return Err(CompareError::Nothing { reason });
        }
    }
    if across_kernels && options.request.rows {
        let place = format!("step {} {}", part.baseline.step, part.baseline.rank);
        let reason = format!(
            "{place}: one side recorded kernels, the other functions: these pair by shape, which different batch sizes do not share; leave out --rows"
        );
        return Err(CompareError::Nothing { reason });
    }
    let terms = (b.framework != c.framework && !across_kernels)
        .then(|| CommonTerms::of(&mut b, &mut c, &options.mapping, part.baseline.step > 0));
    // Tokens pair modules by their path, whatever class a tool gives them.
    if two_tools && !across_kernels && !options.request.tokens {
        keep_common(&mut b, &mut c);
    }
    keep_reached(&mut b, &mut c);
    if options.request.rows {
        keep_first_batch(&mut b, &mut c);
    }
    if options.request.tokens {
        tokens::take(&mut b, &mut c).map_err(|reason| {
            let place = format!("step {} {}", part.baseline.step, part.baseline.rank);
            CompareError::Nothing { reason: format!("{place}: {reason}") }
        })?;
    }
    let Alignment { mut ops, notes } = match terms {
        Some(terms) => terms.align(&mut b, &mut c),
        None if across_kernels => align_kernels(&mut b, &mut c),
        None => align(&b, &c, &options.mapping),
    };
    b.notes.extend(notes);
    if two_tools && !across_kernels {
        keep_common_slots(&mut ops);
    }
    if options.request.rows {
        rows::take(&mut b, &mut c, &mut ops);
    }
    layouts.follow(&folded, &b, &c);
    let substitutions = substitutions(&b, &c, &ops);
    let pair = PartPair {
        step: part.baseline.step,
        rank: part.baseline.rank.number(),
        since: part.since,
        baseline: b,
        candidate: c,
        ops,
        substitutions,
    };
    let (evidence, bytes) = collect::of_part(&pair, progress);
    Ok(DonePart {
        pair,
        evidence,
        bytes,
        judged: PartJudgement::default(),
        layouts,
        portraits: Vec::new(),
        reference_fault: None,
    })
}

/// Returns true if the two sides recorded ops of different kinds; false if one side does not state its level. Two different tools
/// intercept different functions anyway, and anything that only one recorded is left out, so they only need some kind in common.
fn differ_in_level(baseline: &Rank, candidate: &Rank, two_tools: bool) -> bool {
    match (Level::parse(&baseline.level), Level::parse(&candidate.level)) {
        (Some(b), Some(c)) if two_tools => !b.overlaps(c),
        (Some(b), Some(c)) => b != c,
        _ => false,
    }
}

/// Returns true if dumps of different tasks can be compared without an option: every task of probe's own capture has
/// statistics, and so do most tasks of the older tool.
fn share_statistics(baseline: (&Dump, &Rank), candidate: (&Dump, &Rank)) -> bool {
    let sides = [baseline, candidate];
    sides.iter().any(|(dump, _)| dump.format == NATIVE)
        && sides.iter().all(|(_, rank)| rank.task.has_statistics())
}
