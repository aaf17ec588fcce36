//! `plan.json`: the inputs and options of a comparison, fixed once for all shards.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::state::State;
use super::{PlanError, Shard};
use probe_compare::{
    CompareError, CompareOptions, CompareRequest, Fold, Prologue, Quiet, Reference, SideInfo, is_noise_file,
    measured_noise,
};
use probe_dump::{Dump, LevelFilter, NumberSet, PartKey, RankId};
use probe_files::Copies;
use probe_files::Draft;
use probe_judge::RunInfo;
use probe_pair::PartMatch;

/// Data that a shard reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needs {
    /// Files of options.
    pub files: Vec<PathBuf>,
    /// The two dumps, each with steps and ranks.
    pub sides: Vec<(PathBuf, NumberSet, NumberSet)>,
    /// Additional dumps, each with steps and ranks.
    pub references: Vec<(PathBuf, NumberSet, NumberSet)>,
}

/// Name of the plan in the folder of a run.
pub const PLAN: &str = "plan.json";

/// Value of `format`.
const FORMAT: &str = "probe plan";

/// Version of the plan and of the files that shards write.
const VERSION: u32 = 1;

/// Number of hexadecimal digits of the hash in the name of the shards' folder.
const NAMED: usize = 16;

/// A plan.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    format: String,
    version: u32,
    /// The program that made the plan: shards of another program may judge differently.
    build: String,
    /// Hash of everything else; names the folder of the shards.
    hash: String,
    pub(super) baseline: PlannedDump,
    pub(super) candidate: PlannedDump,
    /// Options with absolute paths.
    options: CompareRequest,
    /// Content hashes of the files that the options read: a file changed later would make a different comparison.
    files: BTreeMap<PathBuf, String>,
    /// Places that could not be read or paired.
    prologue: State,
    pub(super) groups: Vec<Group>,
}

/// One of the two dumps.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlannedDump {
    /// Path as the user gave it.
    given: String,
    pub(super) path: PathBuf,
    pub(super) format: String,
    steps: Vec<u64>,
    ranks: Vec<u32>,
    selected: bool,
}

/// All selected steps of one rank: a step is judged together with the one before it, so they are never split up.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    pub(super) rank: u32,
    /// Bytes of both sides, as far as folder listings show.
    pub(super) bytes: u64,
    pub(super) parts: Vec<Part>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Part {
    pub(super) baseline: Key,
    pub(super) candidate: Key,
    since: Option<u64>,
}

/// A part of a dump, and its path if it can be opened on its own.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Key {
    step: u64,
    rank: Option<u32>,
    label: String,
    pub(super) place: Option<PathBuf>,
}

impl Key {
    pub(super) fn part_key(&self) -> PartKey {
        let rank = self.rank.map_or(RankId::Single, RankId::Rank);
        PartKey { step: self.step, rank, label: self.label.as_str().into() }
    }

    fn of(key: &PartKey, dump: &Dump, root: &Path, copies: &Copies) -> Result<Self, PlanError> {
        let place = dump.reader.place(key).map(|place| absolute(&copies.name(place), copies)).transpose()?;
        let rank = match key.rank {
            RankId::Single => None,
            RankId::Rank(rank) => Some(rank),
        };
        // Relative if it lies in the dump, as it always does.
        let place = place.map(|place| place.strip_prefix(root).map_or(place.clone(), Path::to_path_buf));
        Ok(Self { step: key.step, rank, label: key.label.to_string(), place })
    }
}

/// Returns the identity of the program in plans: its version and the hash of its sources (`build.rs`). Builds of other sources may judge
/// differently.
pub fn build_id() -> String {
    format!("{} {}+{}", probe_dump::PROGRAM, env!("CARGO_PKG_VERSION"), env!("PROBE_SOURCES"))
}

/// Returns the path as any machine can find it: absolute, or the name if the data is read from a copy.
fn absolute(path: &Path, copies: &Copies) -> Result<PathBuf, PlanError> {
    if copies.hold(path) {
        return Ok(path.into());
    }
    std::path::absolute(path).map_err(|source| PlanError::Io { path: path.into(), source })
}

/// As [`absolute`], for paths that are valid text, because a plan can hold nothing else.
fn written(path: &Path, copies: &Copies) -> Result<PathBuf, PlanError> {
    let path = absolute(path, copies)?;
    if path.to_str().is_some() {
        return Ok(path);
    }
    Err(PlanError::Misuse { path, message: "has a name that is not text, which a plan cannot hold".into() })
}

/// Lists and pairs the parts of two dumps, and writes the plan into the folder called `folder`, which is created.
///
/// # Errors
/// [`PlanError`] when a dump cannot be listed, nothing pairs, the options cannot be planned, or the plan cannot be written.
pub fn plan(
    baseline: &Path,
    candidate: &Path,
    folder: &Path,
    request: &CompareRequest,
    copies: &Copies,
) -> Result<Plan, PlanError> {
    let compare = request.options(copies)?;
    if let Some(path) = compare.request.noise.iter().find(|path| !is_noise_file(path)) {
        return Err(PlanError::Misuse {
            path: path.clone(),
            message: "noise of a plan is a file: measure it once with `probe calibrate`, and give --noise noise.toml".into(),
        });
    }
    let (b, c) = rayon::join(|| compare.open(baseline), || compare.open(candidate));
    let (b, c) = (b?, c?);
    let mut opened = Prologue::of(&b, &c, &compare);
    if opened.pairing.matches.is_empty() {
        let error = std::mem::take(&mut opened.fold).finish(opened.sides, compare.request.level, 0.0);
        return Err(error.err().map_or_else(
            || PlanError::Misuse {
                path: candidate.into(),
                message: "pairs with no part of the baseline".into(),
            },
            Into::into,
        ));
    }
    if opened.pairing.matches.iter().any(|part| part.many.is_some()) {
        return Err(PlanError::Misuse {
            path: candidate.into(),
            message: "a run on many ranks against one on one rank is not split: all ranks are read together; use `probe compare`".into(),
        });
    }
    measured_noise(&b, &compare, &Quiet, &mut opened.fold.run)?;
    if let Some(path) = &compare.request.reference {
        let matches = &opened.pairing.matches;
        Reference::open(path, matches, matches.len(), &compare)?;
    }
    let options = request.clone().with_paths(|path| written(path, copies))?;
    let files = options.files().map(|path| Ok((path.to_path_buf(), digest(path, copies)?)));
    let files = files.collect::<Result<_, PlanError>>()?;
    let [b_side, c_side] = opened.sides;
    let (b_side, c_side) = (PlannedDump::of(&b, b_side, copies)?, PlannedDump::of(&c, c_side, copies)?);
    let groups = groups(&opened.pairing.matches, [(&b, &b_side), (&c, &c_side)], copies)?;
    let mut plan = Plan {
        format: FORMAT.into(),
        version: VERSION,
        build: build_id(),
        hash: String::new(),
        baseline: b_side,
        candidate: c_side,
        options,
        files,
        prologue: (&opened.fold).into(),
        groups,
    };
    plan.hash = plan.digest()?;
    plan.write(&copies.place(folder))?;
    Ok(plan)
}

impl PlannedDump {
    fn of(dump: &Dump, side: SideInfo, copies: &Copies) -> Result<Self, PlanError> {
        let SideInfo { info: RunInfo { path, format, steps, ranks, .. }, selected } = side;
        Ok(Self { given: path, path: written(&dump.path, copies)?, format, steps, ranks, selected })
    }

    fn info(&self) -> SideInfo {
        let info = RunInfo {
            path: self.given.clone(),
            format: self.format.clone(),
            steps: self.steps.clone(),
            ranks: self.ranks.clone(),
            ..RunInfo::default()
        };
        SideInfo { info, selected: self.selected }
    }
}

/// Groups parts by rank, with their weight.
fn groups(
    matches: &[PartMatch],
    sides: [(&Dump, &PlannedDump); 2],
    copies: &Copies,
) -> Result<Vec<Group>, PlanError> {
    let mut groups: BTreeMap<u32, Group> = BTreeMap::new();
    let [(b, b_side), (c, c_side)] = sides;
    for part in matches {
        let rank = part.baseline.rank.number();
        let group = groups.entry(rank).or_insert_with(|| Group { rank, bytes: 0, parts: Vec::new() });
        group.bytes += weight(b.reader.place(&part.baseline)) + weight(c.reader.place(&part.candidate));
        group.parts.push(Part {
            baseline: Key::of(&part.baseline, b, &b_side.path, copies)?,
            candidate: Key::of(&part.candidate, c, &c_side.path, copies)?,
            since: part.since,
        });
    }
    Ok(groups.into_values().collect())
}

/// Returns the bytes of a part: of its file, or of the files directly in its folder. Anything that cannot be listed has no weight here, and is
/// reported when it is read.
fn weight(place: Option<&Path>) -> u64 {
    let Some(place) = place else { return 0 };
    let size =
        |path: &Path| fs::metadata(path).map_or(0, |about| if about.is_file() { about.len() } else { 0 });
    match fs::read_dir(place) {
        Ok(entries) => entries.filter_map(Result::ok).map(|entry| size(&entry.path())).sum(),
        Err(_) => size(place),
    }
}

/// The fields that decide whether the rest can be read.
#[derive(Deserialize)]
struct Head {
    format: String,
    version: u32,
    build: String,
}

/// Returns the hash of the content of the file called `path`.
fn digest(path: &Path, copies: &Copies) -> Result<String, PlanError> {
    let bytes = fs::read(copies.place(path)).map_err(|source| PlanError::Io { path: path.into(), source })?;
    Ok(hexadecimal(&Sha256::digest(bytes)))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        _ = write!(text, "{byte:02x}");
        text
    })
}

impl Plan {
    /// Reads the plan called `path`.
    ///
    /// # Errors
    /// [`PlanError`] when it is damaged, was changed, or was made by another program.
    pub fn read(path: &Path, copies: &Copies) -> Result<Self, PlanError> {
        let damaged = |message: String| PlanError::Misuse { path: path.into(), message };
        let bytes =
            fs::read(copies.place(path)).map_err(|source| PlanError::Io { path: path.into(), source })?;
        // Checked first, since plans of other versions have other fields.
        let head: Head = serde_json::from_slice(&bytes).map_err(|error| {
            damaged(format!("is not a plan of probe: {error}; make it with `probe plan`"))
        })?;
        if head.format != FORMAT || head.version != VERSION {
            return Err(damaged(format!(
                "is a {} of version {}, not a {FORMAT} of version {VERSION}",
                head.format, head.version
            )));
        }
        if head.build != build_id() {
            return Err(damaged(format!(
                "was made by {}, this is {}; install one version everywhere, or plan again",
                head.build,
                build_id()
            )));
        }
        let plan: Self =
            serde_json::from_slice(&bytes).map_err(|error| damaged(format!("is damaged: {error}")))?;
        if plan.digest()? != plan.hash {
            return Err(damaged("was changed after it was made; make it again with `probe plan`".into()));
        }
        Ok(plan)
    }

    fn write(&self, folder: &Path) -> Result<(), PlanError> {
        fs::create_dir_all(folder).map_err(|source| PlanError::Io { path: folder.into(), source })?;
        probe_report::remove_replays(folder).map_err(CompareError::from)?;
        let mut draft = Draft::create(&folder.join(PLAN)).map_err(CompareError::from)?;
        let mut bytes = serde_json::to_vec(self).map_err(|error| self.unwritable(&error))?;
        bytes.push(b'\n');
        draft.file().write_all(&bytes).map_err(|error| CompareError::from(draft.refused(error)))?;
        draft.place().map_err(CompareError::from)?;
        Ok(())
    }

    fn unwritable(&self, error: &serde_json::Error) -> PlanError {
        PlanError::Misuse { path: self.baseline.path.clone(), message: format!("cannot be planned: {error}") }
    }

    /// Returns the hash of everything except the hash itself.
    fn digest(&self) -> Result<String, PlanError> {
        let mut value = serde_json::to_value(self).map_err(|error| self.unwritable(&error))?;
        if let Some(hash) = value.get_mut("hash") {
            *hash = "".into();
        }
        Ok(hexadecimal(&Sha256::digest(value.to_string())))
    }

    /// Returns the name of the folder of its shards.
    pub fn name(&self) -> &str {
        self.hash.get(..NAMED).unwrap_or(&self.hash)
    }

    /// Returns its hash.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Returns the number of groups: any more shards have nothing to do.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Returns the number of parts.
    pub fn parts(&self) -> usize {
        self.groups.iter().map(|group| group.parts.len()).sum()
    }

    /// Returns the bytes of all parts, as far as folder listings show.
    pub fn bytes(&self) -> u64 {
        self.groups.iter().map(|group| group.bytes).sum()
    }

    /// Returns the report heads of the two sides.
    pub(super) fn sides(&self) -> [SideInfo; 2] {
        [self.baseline.info(), self.candidate.info()]
    }

    /// Returns the places that could not be read or paired when the plan was made.
    pub(super) fn prologue(&self) -> Fold {
        self.prologue.clone().into_fold()
    }

    /// Returns the options, re-read from the files they came from.
    pub(super) fn options(&self, copies: &Copies) -> Result<CompareOptions, PlanError> {
        for (path, known) in &self.files {
            if digest(path, copies)? != *known {
                let message = "was changed after the plan was made; plan again".into();
                return Err(PlanError::Misuse { path: path.clone(), message });
            }
        }
        Ok(self.options.options(copies)?)
    }

    /// Returns the level that is compared.
    pub(super) fn level(&self) -> LevelFilter {
        self.options.level
    }

    /// Returns the ranks of each of `count` shards, by their numbers in the baseline.
    pub fn ranks(&self, count: u32) -> Vec<Vec<u32>> {
        let ranks = |groups: &BTreeSet<usize>| groups.iter().map(|&group| self.groups[group].rank).collect();
        self.share(count).iter().map(ranks).collect()
    }

    /// Returns the data that `shard` reads besides the plan: files, and dumps with the steps and ranks needed.
    pub fn needs(&self, shard: Shard) -> Needs {
        let matches = self.matches(shard);
        let side = |side: &PlannedDump, key: fn(&PartMatch) -> &PartKey| {
            let keys = || matches.iter().map(|(part, _)| key(part));
            let steps = NumberSet::of(keys().map(|key| key.step));
            let ranks = NumberSet::of(keys().map(|key| u64::from(key.rank.number())));
            (side.path.clone(), steps, ranks)
        };
        let files = self.options.files().map(Into::into).collect();
        if matches.is_empty() {
            return Needs { files, sides: Vec::new(), references: Vec::new() };
        }
        let baseline = side(&self.baseline, |part| &part.baseline);
        let (_, steps, ranks) = &baseline;
        let references =
            self.options.dumps().map(|path| (path.into(), steps.clone(), ranks.clone())).collect();
        let sides = vec![baseline, side(&self.candidate, |part| &part.candidate)];
        Needs { files, sides, references }
    }

    /// Distributes the groups over `count` shards: heaviest first, each to the shard with the smallest load so far.
    fn share(&self, count: u32) -> Vec<BTreeSet<usize>> {
        let mut order: Vec<usize> = (0..self.groups.len()).collect();
        // A part has a cost even if its size is 0.
        let weight = |at: usize| self.groups[at].bytes + self.groups[at].parts.len() as u64;
        order.sort_by_key(|&at| (std::cmp::Reverse(weight(at)), at));
        let mut shards = vec![BTreeSet::new(); count as usize];
        let mut loads: BTreeSet<(u64, u32)> = (0..count).map(|shard| (0, shard)).collect();
        for at in order {
            let Some((load, shard)) = loads.pop_first() else { break };
            shards[shard as usize].insert(at);
            loads.insert((load + weight(at), shard));
        }
        shards
    }

    /// Returns the parts of a shard, in order of step, then rank, each with the path for opening it.
    pub(super) fn matches(&self, shard: Shard) -> Vec<(PartMatch, &Part)> {
        let shares = self.share(shard.count());
        let groups = shares.get(shard.index() as usize - 1).into_iter().flatten();
        let parts = groups.flat_map(|&group| &self.groups[group].parts);
        let mut found: Vec<(PartMatch, &Part)> = parts
            .map(|part| {
                let (baseline, candidate) = (part.baseline.part_key(), part.candidate.part_key());
                (PartMatch { baseline, candidate, since: part.since, many: None }, part)
            })
            .collect();
        found.sort_by_key(|(part, _)| (part.baseline.step, part.baseline.rank.number()));
        found
    }
}
