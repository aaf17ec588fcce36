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
mod median;
mod noise;
mod part;
pub mod peers;
mod pipeline;
mod place;
mod portrait;
mod progress;
mod reference;
mod request;
mod rows;
mod runtime_ops;
mod tokens;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

pub use error::CompareError;
pub use fold::{Fold, Place, SideFold, SideInfo};
pub use layouts::{BETWEEN_PIECES, Pieces};
pub use noise::{Calibration, calibrate, measured as measured_noise};
pub use part::PartReport;
pub use portrait::Portrait;
pub use progress::{Progress, Quiet};
pub use reference::Reference;
pub use request::{CompareOptions, CompareRequest, is_noise_file};

use probe_dump::{Dump, PartKey};
use probe_files::ReportError;
use probe_judge::{History, Noise, PartJudgement, PriorKnowledge, Summary};
use probe_pair::{Pairing, PartMatch, pair_parts, value_numbers};

use pipeline::{DonePart, in_order, parts_at_a_time, work_on};
use runtime_ops::RuntimeOps;

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
                let (judged, next) = part.layouts.judged(&part.pair, &mut part.evidence, known, history);
                part.judged = PartJudgement { reference, ..judged };
                part.judged.counts.bytes = part.bytes;
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

fn hand_on(done: &[DonePart], parts: usize, sink: &mut PartSink<'_>) -> Result<(), CompareError> {
    for DonePart { pair, evidence, judged, portraits, layouts, .. } in done {
        let values = &value_numbers(pair);
        let pieces = &layouts.pieces(pair, judged);
        sink(&PartReport { pair, evidence, judged, values, pieces, portraits, parts })?;
    }
    Ok(())
}
