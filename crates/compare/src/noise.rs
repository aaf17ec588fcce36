//! Measures noise: compares repeated runs of the baseline with it and records the differences.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::error::CompareError;
use super::pipeline::{DonePart, in_order, parts_at_a_time, work_on};
use super::progress::Progress;
use super::request::CompareOptions;
use super::request::is_noise_file;
use probe_dump::native::{MANIFEST, NOISE_FOLDER, root_of};
use probe_dump::{Dump, PartKey};
use probe_judge::{History, Incomplete, Noise, NoiseMeter, RunJudge, measure_noise};
use probe_measure::Evidence;
use probe_pair::{PartMatch, pair_parts};

/// Result of [`calibrate`].
#[derive(Debug)]
pub struct Calibration {
    /// The noise, in the form stored in a file.
    pub noise: Noise,
    /// Result of each run, one line each.
    pub said: Vec<String>,
    /// Places that could not be read.
    pub incomplete: Vec<Incomplete>,
}

/// Measures the differences between the runs at `noise` and the one at `baseline`. Runs on the current rayon pool.
///
/// # Errors
/// [`CompareError`] when a path holds no dump, or one of `noise` is not a repeated run of the baseline.
pub fn calibrate(
    baseline: &Path,
    noise: &[PathBuf],
    options: &CompareOptions,
    progress: &dyn Progress,
) -> Result<Calibration, CompareError> {
    let baseline = options.open(baseline)?;
    let mut found = Measuring::default();
    for path in noise {
        found.run(&baseline, path, options, progress)?;
    }
    let Measuring { meter, said, incomplete } = found;
    Ok(Calibration { noise: meter.finish(), said, incomplete })
}

/// Returns the noise that the options name, and that the baseline was recorded with; adds a description of it and its unreadable
/// places to the run. Where the baseline's own noise cannot be used, a note says why.
///
/// # Errors
/// [`CompareError`] when a noise file cannot be used, or a dump cannot show the noise of the baseline.
pub fn measured(
    baseline: &Dump,
    options: &CompareOptions,
    progress: &dyn Progress,
    run: &mut RunJudge,
) -> Result<Noise, CompareError> {
    let mut found = Measuring::default();
    if let Some(path) = recorded_with(baseline, options)
        && let Err(error) = found.run(baseline, &path, options, progress)
    {
        found = Measuring { said: vec![format!("not used: {error}")], ..Measuring::default() };
    }
    for path in &options.request.noise {
        if is_noise_file(path) {
            let copies = &options.copies;
            let added = found.meter.add_file(&copies.place(path), path).map_err(|error| error.called(copies));
            found.said.push(added?);
        } else {
            found.run(baseline, path, options, progress)?;
        }
    }
    for said in found.said {
        run.add_note(said);
    }
    for Incomplete { place, reason } in found.incomplete {
        run.add_incomplete(place, reason);
    }
    Ok(found.meter.finish())
}

/// Returns the dump of noise that lies in the baseline's, as `probe capture --twin` leaves it.
fn recorded_with(baseline: &Dump, options: &CompareOptions) -> Option<PathBuf> {
    let folder = root_of(&baseline.path).join(NOISE_FOLDER);
    options.copies.place(&folder).join(MANIFEST).is_file().then_some(folder)
}

#[derive(Default)]
struct Measuring {
    meter: NoiseMeter,
    said: Vec<String>,
    incomplete: Vec<Incomplete>,
}

impl Measuring {
    /// Measures the run at `path`: the steps and ranks being compared, or all if it has none of them.
    fn run(
        &mut self,
        baseline: &Dump,
        path: &Path,
        options: &CompareOptions,
        progress: &dyn Progress,
    ) -> Result<(), CompareError> {
        let error = |reason: String| CompareError::Noise { path: path.into(), reason };
        let noise = options.open(path)?;
        let matches = same_places(baseline, &noise, options);
        if matches.is_empty() {
            return Err(error(
                "shares no step and rank with the baseline; capture the same steps".to_owned(),
            ));
        }
        for fault in &noise.faults {
            self.leave_out(&fault.path().display().to_string(), fault.reason());
        }
        let mut histories: BTreeMap<u32, History> = BTreeMap::new();
        for matches in matches.chunks(parts_at_a_time()) {
            let done = work_on(matches, baseline, &noise, None, options, progress);
            let mut parts = Vec::with_capacity(done.len());
            for (part, outcome) in matches.iter().zip(done) {
                let place =
                    format!("{} step {} {}", path.display(), part.candidate.step, part.candidate.rank);
                match outcome {
                    Ok(done) => {
                        self.take_faults(&place, &done);
                        parts.push(done);
                    }
                    Err(CompareError::Read(fault)) => self.leave_out(&place, fault.to_string()),
                    Err(other) => return Err(error(other.to_string())),
                }
            }
            let meter = Mutex::new(&mut self.meter);
            in_order(parts.iter_mut(), &mut histories, |part, history| {
                let (shown, next) = measure_noise(&part.pair, &part.evidence, history);
                meter.lock().unwrap_or_else(PoisonError::into_inner).add(shown);
                next
            });
        }
        self.said.push(self.meter.end_run(path).map_err(error)?);
        Ok(())
    }

    fn leave_out(&mut self, place: &str, reason: String) {
        self.incomplete.push(Incomplete { place: format!("noise {place}"), reason });
    }

    /// Records everything of a part that could not be read.
    fn take_faults(&mut self, place: &str, part: &DonePart) {
        for fault in &part.pair.candidate.faults {
            self.leave_out(place, fault.to_string());
        }
        if let Some((count, reason)) = unreadable(part) {
            self.leave_out(place, format!("{count} values could not be read, the first: {reason}"));
        }
    }
}

/// Returns the parts of both runs that are of the same step and rank: those selected, or all if none of them is.
fn same_places(baseline: &Dump, noise: &Dump, options: &CompareOptions) -> Vec<PartMatch> {
    let same_place = |selected: &dyn Fn(&PartKey) -> bool| {
        let place = |key: &PartKey| (key.step, key.rank.number());
        let mut matches = pair_parts(baseline, noise, selected).matches;
        matches.retain(|part| place(&part.baseline) == place(&part.candidate));
        matches
    };
    let matches = same_place(&|key| options.request.selects(key.step, key.rank.number()));
    if matches.is_empty() { same_place(&|_| true) } else { matches }
}

/// Returns the number of values of the repeated run that could not be read, and the reason for the first.
fn unreadable(part: &DonePart) -> Option<(usize, &str)> {
    let mut reasons = part.evidence.of_slots().filter_map(|evidence| match evidence {
        Evidence::Unreadable(why) => why.candidate.as_deref(),
        _ => None,
    });
    let first = reasons.next()?;
    Some((1 + reasons.count(), first))
}
