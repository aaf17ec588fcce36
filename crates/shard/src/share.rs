//! Compares one shard of a plan.

use std::collections::HashMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::plan::{Key, Part, PlannedDump};
use super::state::State;
use super::{PART, Plan, PlanError, Shard};
use probe_compare::{
    CompareError, CompareOptions, Fold, PartReport, Parts, Progress, Reference, measured_noise,
};
use probe_dump::{Dump, PartKey, PartReader, Rank, RankId};
use probe_files::map::FileAccess;
use probe_files::{Copies, Draft, seal};
use probe_judge::RunJudge;
use probe_pair::PartMatch;
use probe_read::{self as read, ReadError};
use probe_report::{Extent, Format, ReportSet, Suspects};

/// `part.json`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShardFile {
    /// Hash of the plan.
    pub(super) plan: String,
    pub(super) shard: u32,
    pub(super) of: u32,
    pub(super) state: State,
    /// The ops at fault and their neighbours.
    #[serde(default, skip_serializing_if = "Suspects::is_empty")]
    pub(super) suspects: Suspects,
    /// Digits of the file's [`seal`]. They come last.
    seal: String,
}

/// Bytes behind the digits.
const BEHIND: &[u8] = b"\"}\n";

/// Returns the place of the digits, and the right ones.
fn sealed(bytes: &[u8]) -> Option<(usize, String)> {
    let place = bytes.strip_suffix(BEHIND)?.len().checked_sub(seal::DIGITS)?;
    Some((place, seal::digits(bytes, place)?))
}

/// The result of a shard.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) fold: Fold,
    pub(super) suspects: Suspects,
}

/// Outcome of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardOutcome {
    /// Its folder.
    pub folder: PathBuf,
    /// Number of its parts.
    pub parts: usize,
    /// True if it was already done.
    pub was_done: bool,
    /// Number of places that could not be compared; the merge lists them.
    pub not_compared: usize,
    /// First op at fault in it, with step and rank, such as `step 3 rank 17 Functional.gelu.1.forward`; another shard may have an earlier
    /// one.
    pub first: Option<String>,
}

/// Returns the folder of a shard in the folder of a run.
pub(super) fn folder_of(run: &Path, plan: &Plan, shard: Shard) -> PathBuf {
    run.join(plan.name()).join(shard.count().to_string()).join(shard.index().to_string())
}

/// Reads the result of a shard; `None` if it is not done or its file is incomplete.
pub(super) fn read_done(
    folder: &Path,
    plan: &Plan,
    hash: &str,
    shard: Shard,
    copies: &Copies,
) -> Result<Option<Done>, PlanError> {
    let path = folder.join(PART);
    let bytes = match fs::read(copies.place(&path)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(PlanError::Io { path, source }),
    };
    let found = serde_json::from_slice::<ShardFile>(&bytes).ok();
    let digits = sealed(&bytes).map(|(_, digits)| digits);
    let Some(found) = found.filter(|found| Some(&found.seal) == digits.as_ref()) else {
        // Files appear atomically, but a disk may still have lost or changed part of one: the shard is to be run again.
        return Ok(None);
    };
    if (found.plan.as_str(), found.shard, found.of) != (hash, shard.index(), shard.count()) {
        let message = format!(
            "is shard {}/{} of plan {}, not {shard} of {}; remove it",
            found.shard,
            found.of,
            found.plan,
            plan.name()
        );
        return Err(PlanError::Misuse { path, message });
    }
    Ok(Some(Done { fold: found.state.into_fold(), suspects: found.suspects }))
}

/// Compares the parts of `shard` of the plan called `path`. A shard that is already done is left as it is, unless part of it could not be read. Runs
/// on the current rayon pool.
///
/// # Errors
/// [`PlanError`] when the plan cannot be carried out, a dump does not exist at all, or the shard cannot be written. Anything else that
/// cannot be read from the dumps is reported by the merge.
pub fn compare_shard(
    path: &Path,
    shard: Shard,
    copies: &Copies,
    progress: &dyn Progress,
) -> Result<ShardOutcome, PlanError> {
    compare_shard_if(path, shard, copies, progress, &|| Ok(()))
}

/// As [`compare_shard`], but nothing is written unless `sound` confirms that the data read was complete.
pub(super) fn compare_shard_if(
    path: &Path,
    shard: Shard,
    copies: &Copies,
    progress: &dyn Progress,
    sound: &dyn Fn() -> Result<(), PlanError>,
) -> Result<ShardOutcome, PlanError> {
    let plan = Plan::read(path, copies)?;
    let folder = folder_of(path.parent().unwrap_or(Path::new("")), &plan, shard);
    let matches = plan.matches(shard);
    let parts = matches.len();
    if let Some(Done { fold, .. }) = read_done(&folder, &plan, plan.hash(), shard, copies)? {
        if fold.run.incomplete.is_empty() {
            let first = first_of(&fold);
            return Ok(ShardOutcome { folder, parts, was_done: true, not_compared: 0, first });
        }
        // Data that could not be read may be available by now. Rows and findings of two runs are never mixed.
        let path = folder.join(PART);
        fs::remove_file(copies.place(&path)).map_err(|source| PlanError::Io { path, source })?;
    }
    let done = compare_parts(&plan, &matches, &folder, copies, progress, sound)?;
    let file = ShardFile {
        plan: plan.hash().into(),
        shard: shard.index(),
        of: shard.count(),
        state: (&done.fold).into(),
        suspects: done.suspects,
        seal: "0".repeat(seal::DIGITS),
    };
    write_done(&folder, &file, copies)?;
    let (first, not_compared) = (first_of(&done.fold), done.fold.run.incomplete.len());
    Ok(ShardOutcome { folder, parts, was_done: false, not_compared, first })
}

/// Compares the parts of a shard and writes their rows to `folder`.
fn compare_parts(
    plan: &Plan,
    matches: &[(PartMatch, &Part)],
    folder: &Path,
    copies: &Copies,
    progress: &dyn Progress,
    sound: &dyn Fn() -> Result<(), PlanError>,
) -> Result<Done, PlanError> {
    // A file system that this machine does not see must not pass for damage of every part.
    for PlannedDump { path, .. } in
        [&plan.baseline, &plan.candidate].into_iter().filter(|_| !matches.is_empty())
    {
        fs::metadata(copies.place(path)).map_err(|source| PlanError::Io { path: path.clone(), source })?;
    }
    let options = plan.options(copies)?;
    let baseline = dump(&plan.baseline, matches.iter().map(|(_, part)| &part.baseline), &options)?;
    let candidate = dump(&plan.candidate, matches.iter().map(|(_, part)| &part.candidate), &options)?;
    let (mut fold, total) = (Fold::default(), plan.parts());
    // The remarks about the noise were recorded when the plan was made.
    let noise = measured_noise(&baseline, &options, progress, &mut RunJudge::default())?;
    let reference = options.request.reference.as_deref().filter(|_| !matches.is_empty());
    let reference = reference.map(|path| Reference::open(path, &[], total, &options)).transpose()?;
    let keys: Vec<PartMatch> = matches.iter().map(|(part, _)| part.clone()).collect();
    let comparison = Parts {
        matches: &keys,
        total,
        baseline: &baseline,
        candidate: &candidate,
        noise: &noise,
        reference: reference.as_ref(),
    };
    let mut reports = ReportSet::create(&copies.place(folder), &[Format::Parquet], Extent::Full)
        .map_err(CompareError::from)?;
    let mut suspects = Suspects::default();
    let mut sink = |part: &PartReport<'_>| {
        suspects.part(part);
        reports.part(part)
    };
    let compared = comparison.compare(&options, progress, &mut sink, &mut fold);
    sound()?;
    match compared {
        // The merge reports it, unless an earlier part is refused.
        Err(_) if fold.refused.is_some() => {}
        Err(error) => return Err(error.into()),
        Ok(()) => {
            // The table holds only rows and nothing of the summary.
            reports.finish_rows().map_err(CompareError::from)?;
        }
    }
    Ok(Done { fold, suspects })
}

/// Writes the result of a shard, with its seal.
fn write_done(folder: &Path, file: &ShardFile, copies: &Copies) -> Result<(), PlanError> {
    let path = folder.join(PART);
    let mut bytes = serde_json::to_vec(file)
        .map_err(|error| PlanError::Misuse { path: path.clone(), message: error.to_string() })?;
    bytes.push(b'\n');
    if let Some((place, digits)) = sealed(&bytes) {
        bytes.splice(place..place + seal::DIGITS, digits.into_bytes());
    }
    let mut draft = Draft::create(&copies.place(&path)).map_err(CompareError::from)?;
    draft.file().write_all(&bytes).map_err(|error| CompareError::from(draft.refused(error)))?;
    draft.place().map_err(CompareError::from)?;
    Ok(())
}

fn first_of(fold: &Fold) -> Option<String> {
    let first = fold.run.findings.iter().min_by_key(|finding| (finding.step, finding.order, finding.rank))?;
    Some(format!("step {} rank {} {}", first.step, first.rank, first.op))
}

/// Opens one side of a shard. If each part can be opened on its own, the rest of the dump is not read; without parts, nothing is read.
fn dump<'a>(
    side: &PlannedDump,
    keys: impl Iterator<Item = &'a Key>,
    options: &CompareOptions,
) -> Result<Dump, PlanError> {
    let mut places = HashMap::new();
    for key in keys {
        let Some(place) = &key.place else { return Ok(options.open(&side.path)?) };
        places.insert(key.part_key(), side.path.join(place));
    }
    let mut known = FORMATS.into_iter().filter(|known| places.is_empty() || **known == *side.format);
    let Some(format) = known.next() else { return Ok(options.open(&side.path)?) };
    Ok(Dump {
        path: side.path.clone(),
        format,
        parts: places.keys().cloned().collect(),
        reader: Box::new(Alone { places, copies: options.copies.clone(), access: options.request.access() }),
        environment: std::collections::BTreeMap::new(),
        faults: Vec::new(),
    })
}

/// Formats whose parts can be opened on their own.
const FORMATS: [&str; 2] = [probe_dump::NATIVE, read::MSPROBE];

/// Opens each part separately.
struct Alone {
    places: HashMap<PartKey, PathBuf>,
    copies: Copies,
    access: FileAccess,
}

impl PartReader for Alone {
    fn read(&self, key: &PartKey) -> Result<Rank, ReadError> {
        let place =
            self.places.get(key).ok_or_else(|| ReadError::usage(&*key.label, "no such part in this plan"))?;
        let dump = read::open_called(place, &self.copies, self.access)?;
        let only = dump.parts.first().filter(|_| dump.parts.len() == 1);
        let only = only.ok_or_else(|| {
            ReadError::usage(place, "is no longer the single part it was when the plan was made")
        })?;
        // Problems of the dump as a whole were recorded when the plan was made.
        let mut rank = dump.reader.read(only)?;
        rank.key = PartKey { rank: RankId::clone(&key.rank), ..key.clone() };
        Ok(rank)
    }

    fn place(&self, key: &PartKey) -> Option<&Path> {
        self.places.get(key).map(|place| &**place)
    }
}
