//! One side of a gate: the given paths read as scalars, values of ops, and an environment.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::GateError;
use super::baseline::{Baseline, Environment, ValuePart};
use super::import::{self, Scalars};
use super::outcome::{Culprit, Kind, SideInfo};
use super::{environment, scalars, values};
use probe_dump::{Dump, NumberSet, PartKey};
use probe_files::map::FileAccess;
use probe_judge::{Incomplete, source_line, stack_of_op, user_frames};
use probe_read as read;

/// Values of ops known for a side.
pub(super) enum Values {
    /// Nothing.
    None,
    /// Lines of a baseline.
    Lines(Vec<ValuePart>),
    /// A dump.
    Dump(Box<Dump>),
}

/// One side.
pub(super) struct SideContent {
    pub(super) info: SideInfo,
    pub(super) scalars: Scalars,
    pub(super) values: Values,
    pub(super) environment: Environment,
    /// True if it states why it holds values that are not finite.
    pub(super) allows_nonfinite: bool,
    pub(super) notes: Vec<String>,
    pub(super) incomplete: Vec<Incomplete>,
}

/// File extensions of tensor files.
const TENSORS: [&str; 6] = ["safetensors", "pt", "pth", "bin", "npy", "npz"];

impl SideContent {
    /// Opens everything given for a side; the contents of several paths are combined.
    pub(super) fn open(
        paths: &[PathBuf],
        pack: Option<&Path>,
        access: FileAccess,
    ) -> Result<Self, GateError> {
        let mut side = Self {
            info: SideInfo { paths: paths.to_vec(), ..SideInfo::default() },
            scalars: Scalars::new(),
            values: Values::None,
            environment: Environment::new(),
            allows_nonfinite: false,
            notes: Vec::new(),
            incomplete: Vec::new(),
        };
        let mut formats: Vec<String> = Vec::new();
        for path in paths {
            formats.push(side.add(path, access)?);
        }
        if let Some(pack) = pack {
            side.environment.extend(environment::of_pack(pack)?);
        }
        side.info.format = formats.join(", ");
        side.info.points = side.scalars.values().map(std::collections::BTreeMap::len).sum();
        side.info.steps = side.steps().len();
        Ok(side)
    }

    /// Adds one file or folder, and returns its format.
    fn add(&mut self, path: &Path, access: FileAccess) -> Result<String, GateError> {
        std::fs::metadata(path).map_err(|source| read::ReadError::io(path, source))?;
        if path.is_file() && Baseline::is_one(path) {
            let baseline = Baseline::read(path)?;
            self.info.commit = baseline.provenance.iter().rev().find_map(|entry| entry.commit.clone());
            self.allows_nonfinite |= baseline.provenance.iter().any(|entry| entry.nonfinite.is_some());
            if let Some(name) = &baseline.sketches {
                let beside = path.parent().unwrap_or(Path::new("")).join(name);
                if beside.exists() {
                    self.info.sketches = Some(beside);
                } else {
                    self.notes.push(format!("{name} is missing: faults are named by module, not by op"));
                }
            }
            self.add_scalars(path, baseline.scalars)?;
            self.environment.extend(baseline.environment);
            if !baseline.parts.is_empty() {
                self.set_values(path, Values::Lines(baseline.parts))?;
            }
            return Ok("baseline".into());
        }
        if is_scalars(path) {
            let imported = import::import(path, None)?;
            let said = imported.notes.iter().map(|note| format!("{}: {note}", path.display()));
            self.notes.extend(said);
            self.add_scalars(path, imported.scalars)?;
            return Ok(imported.format.words().into());
        }
        let dump = read::open(path, access)?;
        let format = dump.format.to_owned();
        self.environment.extend(dump.environment.clone());
        self.set_values(path, Values::Dump(Box::new(dump)))?;
        self.info.dump = Some(path.to_path_buf());
        Ok(format)
    }

    fn add_scalars(&mut self, path: &Path, scalars: Scalars) -> Result<(), GateError> {
        for (name, series) in scalars {
            if self.scalars.insert(name.clone(), series).is_some() {
                return Err(GateError::Usage(format!(
                    "{}: scalar {name:?} is in another file of this side too; give it once",
                    path.display()
                )));
            }
        }
        Ok(())
    }

    fn set_values(&mut self, path: &Path, values: Values) -> Result<(), GateError> {
        if !matches!(self.values, Values::None) {
            return Err(GateError::Usage(format!("{}: a side can have one dump", path.display())));
        }
        self.values = values;
        Ok(())
    }

    /// Returns the steps and ranks of its values.
    pub(super) fn parts(&self) -> BTreeSet<(u64, u32)> {
        match &self.values {
            Values::None => BTreeSet::new(),
            Values::Lines(parts) => parts.iter().map(|part| (part.step, part.rank)).collect(),
            Values::Dump(dump) => dump.parts.iter().map(|key| (key.step, key.rank.number())).collect(),
        }
    }

    /// Returns the steps for which it has anything.
    pub(super) fn steps(&self) -> BTreeSet<u64> {
        scalars::steps(&self.scalars)
            .into_iter()
            .chain(self.parts().into_iter().map(|(step, _)| step))
            .collect()
    }

    /// Returns its values as lines, for the selected parts.
    pub(super) fn lines(&mut self, steps: &NumberSet, ranks: &NumberSet) -> Vec<ValuePart> {
        let wanted = |key: &PartKey| steps.contains(key.step) && ranks.contains(u64::from(key.rank.number()));
        match &self.values {
            Values::None => Vec::new(),
            Values::Lines(parts) => parts
                .iter()
                .filter(|part| steps.contains(part.step) && ranks.contains(u64::from(part.rank)))
                .cloned()
                .collect(),
            Values::Dump(dump) => {
                let (parts, incomplete) = values::lines(dump, wanted);
                self.incomplete.extend(incomplete);
                parts
            }
        }
    }
}

impl SideContent {
    /// Adds the call sites of ops at fault, if this side's dump records them and the comparison of lines did not.
    pub(super) fn locate(&self, culprits: &mut [Culprit]) {
        let Values::Dump(dump) = &self.values else { return };
        for key in &dump.parts {
            let place = (Some(key.step), Some(key.rank.number()));
            let mut here = culprits
                .iter_mut()
                .filter(|culprit| (culprit.step, culprit.rank) == place && culprit.source.is_none())
                .filter(|culprit| matches!(culprit.kind, Kind::Op | Kind::Module))
                .peekable();
            if here.peek().is_none() {
                continue;
            }
            // A part that cannot be read was reported before.
            let Ok(rank) = dump.reader.read(key) else { continue };
            for culprit in here {
                let op = rank.ops.iter().find(|op| op.name.as_str() == culprit.name);
                let Some(stack) = op.and_then(|op| stack_of_op(&rank, op)) else { continue };
                culprit.stack = user_frames(stack);
                culprit.source = source_line(stack);
            }
        }
    }
}

/// Returns true if the path is read as scalars rather than tensors.
fn is_scalars(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if path.is_dir() {
        let holds_events =
            |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().contains("tfevents");
        return std::fs::read_dir(path).is_ok_and(|entries| entries.flatten().any(holds_events));
    }
    let is_index = name == "dump.json" || name == "debug.json" || name == "manifest.json";
    let of_dump =
        is_index || name.ends_with(".index.json") || name.ends_with(".parquet") || name.ends_with(".arrows");
    let tensors = path.extension().is_some_and(|ending| TENSORS.iter().any(|known| ending == *known));
    !of_dump && !tensors
}
