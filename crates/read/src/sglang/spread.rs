//! How values are spread over ranks: the dimensions that are written with a value, and the places of the ranks.

use std::collections::BTreeMap;
use std::path::Path;

use super::names::FileName;
use crate::tensor_file::{self, Entry};
use probe_dump::{Number, Scalar, Value};
use probe_files::map::FileAccess;

/// Axes whose product is the number of ranks, the outermost first.
const AXES: [&str; 4] = ["pp", "dp", "cp", "tp"];

/// Files of a rank that are asked for its place.
const ASKED: usize = 8;

/// Place of a rank along each of the axes, and the number of ranks there; 0 of 1 along an axis that is not written.
type Place = [(u32, u32); AXES.len()];

/// Returns the groups of the first rank, and the number of ranks, as a capture records them; nothing if no place is written.
pub(super) fn groups(
    folder: &Path,
    ranks: &BTreeMap<u32, Vec<FileName>>,
    access: FileAccess,
) -> BTreeMap<String, String> {
    let place = |files: &Vec<FileName>| {
        let opened = files
            .iter()
            .take(ASKED)
            .filter_map(|name| tensor_file::open(&folder.join(&*name.file), access).ok());
        opened.into_iter().find_map(|file| place(file.entries()))
    };
    let places: BTreeMap<u32, Place> =
        ranks.iter().filter_map(|(rank, files)| Some((*rank, place(files)?))).collect();
    let Some(first) = places.values().next().copied().filter(|_| places.len() == ranks.len()) else {
        return BTreeMap::new();
    };
    let mut found = BTreeMap::new();
    for (axis, name) in AXES.iter().enumerate().filter(|(axis, _)| first[*axis].1 > 1) {
        let beside =
            |place: &Place| (0..AXES.len()).all(|other| other == axis || place[other] == first[other]);
        let members = places.iter().filter(|(_, place)| beside(place)).map(|(rank, _)| rank.to_string());
        found.insert(format!("groups.{name}"), members.collect::<Vec<_>>().join(","));
    }
    if let Some(world) = first.iter().try_fold(1_u32, |world, (_, size)| world.checked_mul(*size)) {
        found.insert("world_size".to_owned(), world.to_string());
    }
    found
}

/// Returns the place that a file tells; `None` if it tells none, or one outside of its axis.
fn place(entries: &[Entry]) -> Option<Place> {
    let number = |axis: &str, what: &str| {
        ["sglang", "megatron"].iter().find_map(|tool| {
            let name = format!("meta.{tool}_parallel_info.{axis}_{what}");
            let entry = entries.iter().find(|entry| *entry.name == *name)?;
            match entry.value {
                Value::Scalar(Scalar::Number(Number::Int(number))) => u32::try_from(number).ok(),
                _ => None,
            }
        })
    };
    let known = AXES.map(|axis| Some((number(axis, "rank")?, number(axis, "size")?)));
    let place = known.map(|place| place.unwrap_or((0, 1)));
    (known.iter().any(Option::is_some) && place.iter().all(|(rank, size)| rank < size)).then_some(place)
}

/// Returns the dimensions that are written with a value. Sequence parallelism lies along the axis of tensor parallelism.
pub(super) fn dims(entries: &[Entry]) -> Option<String> {
    let entry = entries.iter().find(|entry| &*entry.name == "meta.dims")?;
    let Value::Scalar(Scalar::Text(text)) = &entry.value else { return None };
    let inner = |part: &str| {
        let Some((axes, rest)) = part.split_once(']') else { return part.to_owned() };
        let named = |axis: &str| match axis.trim().strip_prefix("sp") {
            Some(way) if way.is_empty() || way.starts_with(':') => format!("tp{way}"),
            _ => axis.to_owned(),
        };
        let axes: Vec<String> = axes.split(',').map(named).collect();
        format!("{}]{rest}", axes.join(","))
    };
    let mut parts = text.split('[');
    let first = parts.next().unwrap_or_default().to_owned();
    Some(parts.fold(first, |all, part| format!("{all}[{}", inner(part))))
}
