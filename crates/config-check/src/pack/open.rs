//! Opens a pack of any kind.

use std::collections::BTreeMap;
use std::path::Path;

use super::members::Members;
use super::opened::{Fault, Origin, Pack};
use super::{
    AllowedVariables, FORMAT, MANIFEST, Manifest, VERSION, native, older, parse_member_name, secret,
};
use crate::Part;
use crate::error::ConfigError;
use probe_dump::Storage;
use probe_files::Copies;
use probe_files::map::{FileAccess, Source};
use probe_read::tensor_file::printable;

/// Reads the pack at `path` whole, into memory, within the limits of [`read::limits`](probe_files::limits), without secrets. Members that cannot be
/// read become [faults](Pack::faults).
///
/// # Errors
/// [`ConfigError`] when the file cannot be opened, is not a zip, or is not a pack.
pub fn open(path: &Path, allowed: &dyn AllowedVariables) -> Result<Pack, ConfigError> {
    read(path, Members::open(path)?, allowed)
}

/// Like [`open`], for a pack that may be read from a copy.
///
/// # Errors
/// As for [`open`].
pub(crate) fn open_copy(
    path: &Path,
    copies: &Copies,
    allowed: &dyn AllowedVariables,
) -> Result<Pack, ConfigError> {
    let source = Source::open(&copies.place(path), FileAccess::Read).map_err(|error| copies.called(error))?;
    read(path, Members::from_source(source.called(path))?, allowed)
}

/// Like [`open`], for a pack that is already in memory; `path` is used only in errors.
///
/// # Errors
/// As for [`open`].
pub fn open_bytes(path: &Path, bytes: Storage, allowed: &dyn AllowedVariables) -> Result<Pack, ConfigError> {
    read(path, Members::from_source(Source::from_storage(path, bytes))?, allowed)
}

fn read(path: &Path, mut members: Members, allowed: &dyn AllowedVariables) -> Result<Pack, ConfigError> {
    let mut pack = Pack {
        path: path.to_path_buf(),
        origin: Origin::Probe,
        manifest: None,
        device: None,
        ranks: BTreeMap::new(),
        faults: Vec::new(),
        altered: Vec::new(),
        notes: Vec::new(),
    };
    for (member, reason) in std::mem::take(&mut members.refused) {
        pack.faults.push(Fault { part: Part::Coverage, rank: None, member, reason });
    }
    if members.repeated > 0 {
        let count = members.repeated;
        pack.notes.push(format!(
            "names of members are repeated ({count} of them); of each name the last member counts"
        ));
    }
    let ours = members.names().any(|name| parse_member_name(name).is_some());
    match members.content(MANIFEST) {
        Some(content) => match content.and_then(|bytes| native::parse::<Manifest>(&bytes)) {
            Ok(manifest) if manifest.format != FORMAT => {
                let found = format!("its manifest is of the format '{}'", printable(&manifest.format));
                return Err(ConfigError::NoPack { path: path.into(), found });
            }
            Ok(manifest) if manifest.version > VERSION => {
                return Err(ConfigError::Version {
                    path: path.into(),
                    found: manifest.version,
                    known: VERSION,
                });
            }
            Ok(manifest) => native::read(&mut members, Some(manifest), &mut pack),
            Err(reason) => {
                pack.faults.push(Fault { part: Part::Coverage, rank: None, member: MANIFEST.into(), reason });
                native::read(&mut members, None, &mut pack);
            }
        },
        None if ours => {
            let reason = "the pack has no manifest; write the pack again".into();
            pack.faults.push(Fault { part: Part::Coverage, rank: None, member: MANIFEST.into(), reason });
            native::read(&mut members, None, &mut pack);
        }
        None if older::recognises(&members) => older::read(&mut members, &mut pack),
        None => {
            // A pack whose names were all refused is still distinguished from a file that is not a
            // pack.
            let found = match (members.names().next(), pack.faults.first()) {
                (Some(name), _) => format!("it holds '{}'", printable(name)),
                (None, Some(fault)) => format!("it holds '{}', {}", fault.member, fault.reason),
                (None, None) => "the zip is empty".into(),
            };
            return Err(ConfigError::NoPack { path: path.into(), found });
        }
    }
    secret::mask_pack(&mut pack, allowed);
    Ok(pack)
}
