//! One part at a time: reads it on both sides, pairs its ops and measures them.

use std::collections::BTreeMap;

use rayon::prelude::*;

use probe_dump::{Dump, Level, LevelFilter, NATIVE, Rank};
use probe_judge::{History, PartEvidence, PartJudgement};
use probe_pair::{
    Alignment, CommonTerms, OpPair, PartMatch, PartPair, align, align_kernels, holds_kernels, keep_common,
    keep_common_slots, keep_first_batch, keep_reached, keep_shared_kinds, substitutions,
};

use super::error::CompareError;
use super::layouts::{self, Layouts};
use super::portrait::Portrait;
use super::progress::Progress;
use super::reference::Reference;
use super::request::{CompareOptions, CompareRequest};
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
    let request = &options.request;
    let (mut b, mut c, mut layouts) = layouts::read(part, baseline, candidate, &options.mapping)
        .map_err(|error| error.of_mapping(request.mapping.as_deref(), &options.mapping))?;
    let folded = layouts.names(&b, &c);
    let place = format!("step {} {}", part.baseline.step, part.baseline.rank);
    let nothing = |reason: String| CompareError::Nothing { reason: format!("{place}: {reason}") };
    let own = [baseline, candidate].iter().filter(|dump| dump.format == NATIVE).count();
    // Every task of probe's own capture has statistics, and so do most tasks of the older tool.
    let share_statistics = own > 0 && [&b, &c].iter().all(|side| side.task.has_statistics());
    join_tasks(&mut b, &c, share_statistics || request.any_task, &place)?;
    request.level.retain(&mut b.ops);
    request.level.retain(&mut c.ops);
    let two_tools = own == 1;
    let across_kernels = holds_kernels(&b) != holds_kernels(&c);
    if !across_kernels {
        join_levels(&mut b, &mut c, two_tools, request, &place)?;
    } else if request.rows {
        return Err(nothing(
            "one side recorded kernels, the other functions: these pair by shape, which different batch sizes do not share; leave out --rows"
                .into(),
        ));
    }
    let terms = (b.framework != c.framework && !across_kernels)
        .then(|| CommonTerms::of(&mut b, &mut c, &options.mapping, part.baseline.step > 0));
    // Tokens pair modules by their path, whatever class a tool gives them.
    if two_tools && !across_kernels && !request.tokens {
        keep_common(&mut b, &mut c);
    }
    keep_reached(&mut b, &mut c);
    if request.rows {
        keep_first_batch(&mut b, &mut c);
    }
    if request.tokens {
        tokens::take(&mut b, &mut c).map_err(nothing)?;
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
    if request.rows {
        rows::take(&mut b, &mut c, &mut ops);
    }
    layouts.follow(&folded, &b, &c);
    Ok(DonePart { layouts, ..measured(part, (b, c), ops, progress) })
}

/// Checks that both sides recorded the same task, or `may_differ`.
fn join_tasks(b: &mut Rank, c: &Rank, may_differ: bool, place: &str) -> Result<(), CompareError> {
    if b.task == c.task {
        return Ok(());
    }
    if !may_differ {
        return Err(CompareError::Tasks { place: place.into(), baseline: b.task, candidate: c.task });
    }
    b.notes.push(format!(
        "the baseline recorded task {}, the candidate task {}; compared by what both recorded",
        b.task, c.task
    ));
    Ok(())
}

/// Checks that both sides recorded ops of the same kinds, or leaves those that both have if the request allows it.
fn join_levels(
    b: &mut Rank,
    c: &mut Rank,
    two_tools: bool,
    request: &CompareRequest,
    place: &str,
) -> Result<(), CompareError> {
    // If one kind of op was chosen, both sides are filtered to it.
    if request.level != LevelFilter::All || !differ_in_level(b, c, two_tools) {
        return Ok(());
    }
    if !request.any_level {
        let (baseline, candidate) = (b.level.clone(), c.level.clone());
        return Err(CompareError::Levels { place: place.into(), baseline, candidate });
    }
    keep_shared_kinds(b, c);
    if b.ops.is_empty() {
        let reason = format!("{place}: levels {} and {} have no kind of op in common", b.level, c.level);
        return Err(CompareError::Nothing { reason });
    }
    Ok(())
}

/// Measures the paired ops of a part.
fn measured(
    part: &PartMatch,
    (baseline, candidate): (Rank, Rank),
    ops: Vec<OpPair>,
    progress: &dyn Progress,
) -> DonePart {
    let substitutions = substitutions(&baseline, &candidate, &ops);
    let (step, rank) = (part.baseline.step, part.baseline.rank.number());
    let pair = PartPair { step, rank, since: part.since, baseline, candidate, ops, substitutions };
    let (evidence, bytes) = collect::of_part(&pair, progress);
    DonePart {
        pair,
        evidence,
        bytes,
        judged: PartJudgement::default(),
        layouts: Layouts::default(),
        portraits: Vec::new(),
        reference_fault: None,
    }
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
