//! Reads packs in probe's own format.

use std::fmt::Write as _;

use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::members::Members;
use super::opened::{Fault, Origin, Pack, Parts};
use super::{MANIFEST, Manifest, parse_member_name};
use crate::Part;
use probe_read::msprobe::with_quoted_numbers;
use probe_read::tensor_file::printable;

/// Parses JSON as `T`. The error message quotes nothing but names of missing fields, since the text may hold secrets.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(&with_quoted_numbers(bytes)).map_err(|error| {
        let place = format!("at line {}, column {}", error.line(), error.column());
        let text = error.to_string();
        match error.classify() {
            serde_json::error::Category::Eof => "the JSON is cut off; write the pack again".into(),
            serde_json::error::Category::Data if text.starts_with("missing field") => {
                format!("{}; write the pack again", text.split(" at line").next().unwrap_or(&text))
            }
            serde_json::error::Category::Data => {
                format!("a value does not have the type of the format, {place}; write the pack again")
            }
            _ if text.starts_with("recursion limit") => {
                format!("the JSON is nested too deep {place}; write the pack again")
            }
            _ => format!("invalid JSON {place}; write the pack again"),
        }
    })
}

/// Reads every member into `pack`.
pub(super) fn read(members: &mut Members, manifest: Option<Manifest>, pack: &mut Pack) {
    pack.origin = Origin::Probe;
    pack.device = manifest.as_ref().map(|manifest| manifest.device.kind);
    let names: Vec<String> = members.names().filter(|name| *name != MANIFEST).map(str::to_owned).collect();
    for name in &names {
        let Some((part, rank)) = parse_member_name(name) else {
            pack.notes
                .push(format!("member '{}' is not part of a version 1 pack, left out", printable(name)));
            continue;
        };
        let Some(content) = members.content(name) else { continue };
        let outcome = content.and_then(|bytes| {
            let expected = manifest.as_ref().map(|manifest| manifest.members.get(name));
            match expected {
                Some(Some(digest)) if !digest.sha256.eq_ignore_ascii_case(&sha256(&bytes)) => {
                    pack.altered.push((part, name.clone()));
                }
                Some(None) => pack.notes.push(format!("member '{name}' is not listed in the manifest")),
                _ => {}
            }
            put(pack.ranks.entry(rank).or_default(), part, &bytes)
        });
        if let Err(reason) = outcome {
            pack.faults.push(Fault { part, rank: Some(rank), member: name.clone(), reason });
        }
    }
    if let Some(manifest) = manifest {
        for name in manifest.members.keys().filter(|name| !names.contains(name)) {
            let (part, rank) =
                parse_member_name(name).map_or((Part::Coverage, None), |(part, rank)| (part, Some(rank)));
            let reason = "the manifest lists it, but the pack lacks it; copy or write the pack again".into();
            pack.faults.push(Fault { part, rank, member: printable(name), reason });
        }
        pack.manifest = Some(manifest);
    }
}

/// Returns the SHA-256 as hexadecimal digits.
fn sha256(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        _ = write!(digits, "{byte:02x}");
    }
    digits
}

fn put(parts: &mut Parts, part: Part, bytes: &[u8]) -> Result<(), String> {
    match part {
        Part::Platform => parts.platform = Some(parse(bytes)?),
        Part::Env => parts.env = Some(parse(bytes)?),
        Part::Pip => parts.pip = Some(parse(bytes)?),
        Part::Flags => parts.flags = Some(parse(bytes)?),
        Part::Random => parts.random = Some(parse(bytes)?),
        Part::Dataset => parts.dataset = Some(parse(bytes)?),
        Part::Dataloader => parts.dataloader = Some(parse(bytes)?),
        Part::Model => parts.model = Some(parse(bytes)?),
        Part::Weights => parts.weights = Some(parse(bytes)?),
        Part::Optimizer => parts.optimizer = Some(parse(bytes)?),
        Part::Schedule => parts.schedule = Some(parse(bytes)?),
        Part::Scaler => parts.scaler = Some(parse(bytes)?),
        Part::Distributed => parts.distributed = Some(parse(bytes)?),
        Part::Hyperparameters => parts.hyperparameters = Some(parse(bytes)?),
        Part::Source => parts.source = Some(parse(bytes)?),
        Part::Coverage => {}
    }
    Ok(())
}
