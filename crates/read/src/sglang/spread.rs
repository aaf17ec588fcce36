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

/// Returns a number of the place of a file's rank along an axis.
fn number(entries: &[Entry], axis: &str, what: &str) -> Option<u32> {
    ["sglang", "megatron"].iter().find_map(|tool| {
        let name = format!("meta.{tool}_parallel_info.{axis}_{what}");
        let entry = entries.iter().find(|entry| *entry.name == *name)?;
        match entry.value {
            Value::Scalar(Scalar::Number(Number::Int(number))) => u32::try_from(number).ok(),
            _ => None,
        }
    })
}

/// Returns the place that a file tells; `None` if it tells none, or one outside of its axis.
fn place(entries: &[Entry]) -> Option<Place> {
    let known = AXES.map(|axis| Some((number(entries, axis, "rank")?, number(entries, axis, "size")?)));
    let place = known.map(|place| place.unwrap_or((0, 1)));
    (known.iter().any(Option::is_some) && place.iter().all(|(rank, size)| rank < size)).then_some(place)
}

/// Returns the axis of the mesh that is meant by the name of an axis; `None` for one along which there is one rank. A server divides the ranks of
/// its tensor parallelism anew for attention (`attn_tp`, `attn_dp`, `attn_cp`) and for experts (`moe_ep`, ...): where one of these axes has all of
/// them, it is that of tensor parallelism.
fn axis_of_mesh(entries: &[Entry], name: &str) -> Option<String> {
    let size = |axis: &str| number(entries, axis, "size");
    // Sequence parallelism lies along the axis of tensor parallelism.
    let name = if name == "sp" { "tp" } else { name };
    let of_server = || if name == "cp" { size("attn_cp") } else { None };
    match size(name).or_else(of_server) {
        Some(1) => None,
        Some(count) if !AXES.contains(&name) || size(name).is_none() => {
            let same = AXES.iter().rev().find(|axis| size(axis) == Some(count));
            Some(same.map_or(name, |axis| axis).to_owned())
        }
        _ => Some(name.to_owned()),
    }
}

/// Returns the dimensions that are written with a value, with the axes of the mesh.
pub(super) fn dims(entries: &[Entry]) -> Option<String> {
    let entry = entries.iter().find(|entry| &*entry.name == "meta.dims")?;
    let Value::Scalar(Scalar::Text(text)) = &entry.value else { return None };
    let inner = |part: &str| {
        let Some((axes, rest)) = part.split_once(']') else { return format!("[{part}") };
        let named = |axis: &str| {
            let (name, way) = axis.split_once(':').map_or((axis, None), |(name, way)| (name, Some(way)));
            let name = axis_of_mesh(entries, name.trim())?;
            Some(way.map_or_else(|| name.clone(), |way| format!("{name}:{way}")))
        };
        let axes: Vec<String> = axes.split(',').filter_map(named).collect();
        if axes.is_empty() { rest.to_owned() } else { format!("[{}]{rest}", axes.join(",")) }
    };
    let mut parts = text.split('[');
    let first = parts.next().unwrap_or_default().to_owned();
    Some(parts.fold(first, |all, part| all + &inner(part)))
}
