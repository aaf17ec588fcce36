//! The pipeline in one place: opens two dumps and, for every part, reads, pairs, measures, judges and passes on the
//! result.
//!
//! Parts are processed in batches, as many at a time as there are pairs of threads; while a batch is measured, the
//! previous one is reported. Results do not depend on the number of threads.

mod collect;
mod error;
mod fold;
pub mod inspect;
mod layouts;
mod noise;
mod part;
pub mod peers;
mod place;
mod portrait;
mod reference;
mod request;
mod rows;
mod runtime_ops;
mod tokens;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use rayon::prelude::*;

pub use error::CompareError;
pub use fold::{Fold, Place, SideFold, SideInfo};
pub use noise::{Calibration, calibrate, measured as measured_noise};
pub use part::PartReport;
pub use portrait::Portrait;
pub use reference::Reference;
pub use request::{CompareRequest, is_noise_file};

use probe_dump::{Dump, Level, LevelFilter, NATIVE, PartKey, Rank};
use probe_files::{Copies, ReportError};
use probe_judge::{
    History, Noise, PartEvidence, PartJudgement, PriorKnowledge, Replayed, Rules, Summary, judge_part,
};
use probe_pair::{
    Alignment, CommonTerms, Mapping, Pairing, PartMatch, PartPair, align, align_kernels, holds_kernels,
    keep_common, keep_common_slots, keep_first_batch, keep_reached, keep_shared_kinds, pair_parts,
    substitutions, value_numbers,
};
use probe_read::{ReadError, open_called};

use layouts::Layouts;
use runtime_ops::RuntimeOps;

/// Options of a comparison, with the content of the files that the request names.
#[derive(Debug, Clone, Default)]
pub struct CompareOptions {
    /// The request.
    pub request: CompareRequest,
    /// The user's tolerance rules.
    pub rules: Rules,
    /// Names to pair with each other although they differ.
    pub mapping: Mapping,
    /// Calls of both sides that were replayed in float64.
    pub replayed: Replayed,
    /// Locations of dumps that are read from a copy.
    pub copies: Copies,
}

impl CompareOptions {
    /// Opens a dump.
    ///
    /// # Errors
    /// As for [`open`](probe_read::open).
    pub fn open(&self, path: &Path) -> Result<Dump, ReadError> {
        open_called(path, &self.copies, self.request.access())
    }
}

/// Receives progress, from any thread.
pub trait Progress: Sync {
    /// Another `pairs` pairs of tensors will be measured.
    fn expect(&self, pairs: u64);
    /// `pairs` pairs of tensors have been measured.
    fn advance(&self, pairs: u64);
}

/// No progress display.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quiet;

impl Progress for Quiet {
    fn expect(&self, _pairs: u64) {}
    fn advance(&self, _pairs: u64) {}
}

/// A part that was measured, and judged unless `judged` is still the default.
struct DonePart {
    pair: PartPair,
    evidence: PartEvidence,
    bytes: u64,
    judged: PartJudgement,
    /// What the layouts of a run on many ranks show; empty if ranks pair one to one.
    layouts: Layouts,
    /// Closer looks at values at fault.
    portraits: Vec<Portrait>,
    /// Reason why the reference could not be read completely.
    reference_fault: Option<String>,
}

/// Processes the parts of a batch: ranks in parallel, the steps of a rank in sequence, because each builds on the history left
/// by the previous one.
fn in_order<'p>(
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

/// Receives every compared part, in order of step, then rank.
pub type PartSink<'a> = dyn FnMut(&PartReport<'_>) -> Result<(), ReportError> + Send + 'a;

/// Compares the dump at `baseline` with the one at `candidate`. Runs on the current rayon pool.
///
/// # Errors
/// [`CompareError`] when a path holds no dump, when nothing pairs, when the two recorded different tasks, or when `sink`
/// fails. Anything that cannot be read in otherwise comparable dumps is listed in [`Summary::incomplete`].
pub fn compare(
    baseline: &Path,
    candidate: &Path,
    options: &CompareOptions,
    progress: &dyn Progress,
    sink: &mut PartSink<'_>,
) -> Result<Summary, CompareError> {
    let (b, c) = rayon::join(|| options.open(baseline), || options.open(candidate));
    let (mut b, mut c) = (b?, c?);
    if options.request.tokens {
        [b, c] = tokens::gather(b, c)?;
    }
    compare_dumps(&b, &c, options, progress, sink)
}

/// As [`compare`], for two dumps that are already open.
///
/// # Errors
/// As for [`compare`].
pub fn compare_dumps(
    b: &Dump,
    c: &Dump,
    options: &CompareOptions,
    progress: &dyn Progress,
    sink: &mut PartSink<'_>,
) -> Result<Summary, CompareError> {
    let started = Instant::now();
    let Prologue { pairing, mut fold, sides } = Prologue::of(b, c, options);
    let noise = noise::measured(b, options, progress, &mut fold.run)?;
    let reference = options.request.reference.as_deref();
    let total = pairing.matches.len();
    let reference =
        reference.map(|path| Reference::open(path, &pairing.matches, total, options)).transpose()?;
    let parts = Parts {
        matches: &pairing.matches,
        total,
        baseline: b,
        candidate: c,
        noise: &noise,
        reference: reference.as_ref(),
    };
    parts.compare(options, progress, sink, &mut fold)?;
    fold.finish(sides, options.request.level, started.elapsed().as_secs_f64())
}

/// Two dumps whose parts are paired, before any is read.
#[derive(Debug)]
pub struct Prologue {
    /// Pairs of parts, with the place on both sides.
    pub pairing: Pairing,
    /// Places that could not be read or paired.
    pub fold: Fold,
    /// Baseline and candidate.
    pub sides: [SideInfo; 2],
}

impl Prologue {
    /// Pairs the parts of two dumps.
    pub fn of(b: &Dump, c: &Dump, options: &CompareOptions) -> Self {
        let mut fold = Fold::default();
        let run = &mut fold.run;
        for fault in b.faults.iter().chain(&c.faults) {
            run.add_incomplete(fault.path().display().to_string(), fault.reason());
        }
        let selected = |key: &PartKey| options.request.selects(key.step, key.rank.number());
        let pairing = pair_parts(b, c, selected);
        for (side, keys) in [("baseline", &pairing.baseline_only), ("candidate", &pairing.candidate_only)] {
            for key in keys {
                run.add_incomplete(
                    format!("step {} {}", key.step, key.rank),
                    format!("only the {side} has it; not compared"),
                );
            }
        }
        for (place, reason) in &pairing.ambiguous {
            run.add_incomplete(place.clone(), reason.clone());
        }
        for note in &pairing.notes {
            run.add_note(note.clone());
        }
        for (place, reason) in layouts::missing_ranks(&pairing, b, c) {
            run.add_incomplete(place, reason);
        }
        let sides = [SideInfo::of(b, selected), SideInfo::of(c, selected)];
        Self { pairing, fold, sides }
    }
}

/// Parts to compare, all or some of a comparison, and the runs they are compared with.
#[derive(Debug)]
pub struct Parts<'a> {
    /// In order of step, then rank; for each rank included, all of its steps.
    pub matches: &'a [PartMatch],
    /// Number of parts of the whole comparison.
    pub total: usize,
    /// The trusted side.
    pub baseline: &'a Dump,
    /// The side under test.
    pub candidate: &'a Dump,
    /// Noise of the baseline.
    pub noise: &'a Noise,
    /// A run of higher precision.
    pub reference: Option<&'a Reference>,
}

impl Parts<'_> {
    /// Compares the parts and adds them to `fold`.
    ///
    /// # Errors
    /// [`CompareError`] when the options forbid to compare a part, which is then recorded in `fold`, or when `sink`
    /// fails.
    pub fn compare(
        &self,
        options: &CompareOptions,
        progress: &dyn Progress,
        sink: &mut PartSink<'_>,
        fold: &mut Fold,
    ) -> Result<(), CompareError> {
        let (b, c) = (self.baseline, self.candidate);
        let mut waiting: Vec<DonePart> = Vec::new();
        // For each rank, the history that the last compared step left for judging the next.
        let mut histories: BTreeMap<u32, History> = BTreeMap::new();
        let below = RuntimeOps::of(&options.copies.place(&c.path), options.request.access());
        for matches in self.matches.chunks(parts_at_a_time()) {
            let (reported, mut done) = rayon::join(
                || hand_on(&waiting, self.total, sink),
                || work_on(matches, b, c, self.reference, options, progress),
            );
            reported?;
            waiting.clear();
            in_order(done.iter_mut().flatten(), &mut histories, |part, history| {
                let reference = std::mem::take(&mut part.judged.reference);
                let known = PriorKnowledge {
                    rules: &options.rules,
                    noise: self.noise,
                    reference: &reference,
                    replayed: &options.replayed,
                };
                let (judged, next) = judge_part(&part.pair, &part.evidence, known, history);
                part.judged = PartJudgement { reference, ..judged };
                part.judged.counts.bytes = part.bytes;
                part.layouts.explain(&part.pair, &mut part.judged);
                place::complete(&part.pair, &mut part.judged.findings);
                below.complete(&part.pair, &mut part.judged.findings);
                part.portraits = portrait::portraits(&part.pair, &part.evidence, &part.judged.findings);
                next
            });
            for (part, outcome) in matches.iter().zip(done) {
                let place = (part.baseline.step, part.baseline.rank.number());
                match outcome {
                    Ok(done) => {
                        fold.add(&done);
                        waiting.push(done);
                    }
                    Err(CompareError::Read(fault)) => {
                        let named = format!("step {} {}", part.baseline.step, part.baseline.rank);
                        fold.run.add_incomplete_part(place, named, fault.to_string());
                    }
                    Err(other) => {
                        fold.refused = Some((place, other.to_string()));
                        return Err(other);
                    }
                }
            }
        }
        hand_on(&waiting, self.total, sink)
    }
}

/// Returns half the number of threads: each part read and measured takes another thread for its second side.
fn parts_at_a_time() -> usize {
    (rayon::current_num_threads() / 2).max(1)
}

fn hand_on(done: &[DonePart], parts: usize, sink: &mut PartSink<'_>) -> Result<(), CompareError> {
    for DonePart { pair, evidence, judged, portraits, .. } in done {
        let values = &value_numbers(pair);
        sink(&PartReport { pair, evidence, judged, values, portraits, parts })?;
    }
    Ok(())
}

fn work_on(
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
    let (mut b, mut c, layouts) = layouts::read(part, baseline, candidate, &options.mapping)?;
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

impl From<ReadError> for CompareError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}
