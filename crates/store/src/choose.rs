//! Chooses the objects of a dump that a command needs, judging by their keys: parts that are not selected are not copied.

use std::collections::BTreeMap;

use super::Object;
use probe_dump::{
    NumberSet,
    native::{JOURNAL, OPS},
};
use probe_read::INDEX_NAMES;

/// Selection of the needed data of a dump.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Steps; all when empty.
    pub steps: NumberSet,
    /// Ranks; all when empty.
    pub ranks: NumberSet,
    /// Take the whole dump if it has none of these steps and ranks.
    pub or_all: bool,
    /// Copy no content of parts: only which parts exist, and their size.
    pub list_only: bool,
}

impl Selection {
    /// Creates a selection from steps and ranks as given in options.
    pub fn of(steps: Option<&NumberSet>, ranks: Option<&NumberSet>) -> Self {
        let all = |set: Option<&NumberSet>| set.cloned().unwrap_or_default();
        Self { steps: all(steps), ranks: all(ranks), ..Self::default() }
    }
}

/// Treatment of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// Copy it whole.
    Copy,
    /// Copy only the bytes that are read.
    Late,
    /// Create an empty file as a placeholder, with the object's size if that is useful.
    Stand {
        /// True if it has the size of the object.
        sized: bool,
    },
    /// Ignore it.
    Leave,
}

/// Files that mark a folder as a part of a dump. They must be visible even if they are not read.
fn is_marker(name: &str) -> bool {
    [OPS, JOURNAL].contains(&name) || INDEX_NAMES.contains(&name)
}

/// Extensions of tensor files from which readers take single tensors. `.npz` is excluded because its members are too often compressed, and each has
/// its header beside its content.
const LATE: [&str; 5] = ["safetensors", "pt", "pth", "bin", "npy"];

fn is_late(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, kind)| LATE.contains(&kind))
}

/// Decides the treatment of `objects`, which belong to one dump, according to the [`Selection`].
pub(super) fn choose(objects: &[Object], selection: &Selection) -> Vec<Choice> {
    // Folders of parts, with true for selected ones.
    let mut parts: BTreeMap<&str, bool> = BTreeMap::new();
    for object in objects {
        let (folder, name) = split(&object.key);
        if is_marker(name) {
            let (step, rank) = place(folder);
            let selected = selection.steps.contains(step) && selection.ranks.contains(rank);
            parts.insert(folder, selected);
        }
    }
    let none = !parts.values().any(|selected| *selected);
    // The only part of a dump pairs with the only part of another, whatever its number.
    let all = parts.len() <= 1 || (none && selection.or_all);
    let choice = |object: &Object| {
        let (folder, name) = split(&object.key);
        let content = if is_late(name) { Choice::Late } else { Choice::Copy };
        let Some((part, selected)) = ancestors(folder).find_map(|above| parts.get_key_value(above)) else {
            return content;
        };
        let copied = !selection.list_only && (*selected || all);
        match (copied, folder == *part) {
            (true, _) => content,
            (false, true) if selection.list_only => Choice::Stand { sized: true },
            (false, true) if is_marker(name) => Choice::Stand { sized: false },
            (false, _) => Choice::Leave,
        }
    };
    objects.iter().map(choice).collect()
}

/// Splits a key into folder and name.
pub(super) fn split(key: &str) -> (&str, &str) {
    key.rsplit_once('/').unwrap_or(("", key))
}

/// Yields a folder and its ancestors.
fn ancestors(folder: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(folder), |folder| (!folder.is_empty()).then(|| split(folder).0))
}

/// Returns step and rank of the folder of a part, from its name and that of its parent. A process without a rank counts
/// as rank 0.
fn place(folder: &str) -> (u64, u64) {
    let (above, name) = split(folder);
    let step = numbered(name, "step").or_else(|| numbered(split(above).1, "step"));
    (step.unwrap_or(0), numbered(name, "rank").unwrap_or(0))
}

/// Returns true if a folder of this name is that of a step or rank, so that the dump begins above it.
pub(super) fn is_inner(name: &str) -> bool {
    numbered(name, "step").or_else(|| numbered(name, "rank")).is_some()
}

fn numbered(name: &str, prefix: &str) -> Option<u64> {
    probe_dump::native::numbered(name, prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(keys: &[&str], selection: &Selection) -> String {
        let objects: Vec<Object> =
            keys.iter().map(|key| Object { key: (*key).into(), size: 1, tag: None }).collect();
        let letter = |choice: &Choice| match choice {
            Choice::Copy => 'c',
            Choice::Late => 'l',
            Choice::Stand { sized: true } => 'S',
            Choice::Stand { sized: false } => 's',
            Choice::Leave => '-',
        };
        choose(&objects, selection).iter().map(letter).collect()
    }

    #[test]
    fn parts_that_are_not_selected_stay_where_they_are() {
        let keys = [
            "run/manifest.json",
            "run/step0/rank0/ops.parquet",
            "run/step0/rank0/tensors-00000.safetensors",
            "run/step0/rank1/ops.parquet",
            "run/step2/rank0/dump.json",
            "run/step2/rank0/dump_tensor_data/a.pt",
            "run/runtime/step0/rank0/journal.arrows",
        ];
        let set = |text: &str| text.parse().unwrap();
        let all = Selection::default();
        assert_eq!(chosen(&keys, &all), "cclcclc");
        assert_eq!(
            chosen(&keys, &Selection { steps: set("0"), ranks: set("0"), ..Selection::default() }),
            "cclss-c"
        );
        assert_eq!(chosen(&keys, &Selection { steps: set("2"), ..all.clone() }), "cs-scls");
        assert_eq!(chosen(&keys, &Selection { steps: set("7"), ..all.clone() }), "cs-ss-s");
        assert_eq!(chosen(&keys, &Selection { steps: set("7"), or_all: true, ..all.clone() }), "cclcclc");
        assert_eq!(chosen(&keys, &Selection { list_only: true, ..Selection::default() }), "cSSSS-S");
        // Dumps without parts: a checkpoint, or files of the CANN runtime.
        let keys = ["model/a.safetensors", "step7/20260101000000/0/Add.Add.1.1.1"];
        for list_only in [false, true] {
            assert_eq!(chosen(&keys, &Selection { steps: set("7"), list_only, ..all.clone() }), "lc");
        }
        // The only part, even if its folder itself was given.
        assert_eq!(chosen(&["step0/rank0/dump.json"], &Selection { steps: set("7"), ..all.clone() }), "c");
        assert_eq!(chosen(&["dump.json", "stack.json"], &Selection { list_only: true, ..all }), "SS");
    }
}
