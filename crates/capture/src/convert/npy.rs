//! One `.npy` file per tensor, and an index of the files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::name::FileNames;
use super::{Conversion, ConvertError, Elements, Sink, bytes_of, elements, part_folder, tensor_name};
use probe_dump::{DType, Rank};
use probe_measure::widened;

/// The index: names of files and the content of each.
const NAMES: &str = "names.json";

/// Writes `step<N>/rank<R>/<op>.<slot>.npy`.
#[derive(Debug)]
pub(super) struct NpySink {
    root: PathBuf,
}

impl NpySink {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.into() }
    }
}

impl Sink for NpySink {
    fn part(&mut self, rank: &Rank, counts: &mut Conversion) -> Result<(), ConvertError> {
        let folder = part_folder(&self.root, &rank.key)?;
        let mut names = FileNames::default();
        let mut listed: BTreeMap<String, [&str; 2]> = BTreeMap::new();
        for op in &rank.ops {
            let name = op.name.as_str();
            for slot in &op.slots {
                let Elements::Here(data) = elements(rank, name, slot, counts) else { continue };
                let Some(bytes) = bytes_of(&data, name, slot, counts) else { continue };
                let file = format!("{}.npy", names.stem(&tensor_name(name, slot)));
                let path = folder.join(&file);
                let (descr, bytes) = if let Some(descr) = descr(data.dtype()) {
                    (descr, bytes)
                } else {
                    counts.widened += 1;
                    let values = widened(data.dtype(), &bytes);
                    ("<f4", values.iter().flat_map(|value| value.to_le_bytes()).collect())
                };
                write(&path, descr, data.shape(), &bytes).map_err(|error| ConvertError::io(&path, error))?;
                listed.insert(file, [name, &slot.path]);
            }
        }
        let path = folder.join(NAMES);
        let text = serde_json::to_string_pretty(&listed).unwrap_or_default() + "\n";
        fs::write(&path, text).map_err(|error| ConvertError::io(&path, error))
    }

    fn finish(self: Box<Self>) -> Result<(), ConvertError> {
        Ok(())
    }
}

/// Returns `NumPy`'s name of a dtype; `None` if it has none.
const fn descr(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::F64 => "<f8",
        DType::F32 => "<f4",
        DType::F16 => "<f2",
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::U8 => "|u1",
        DType::U16 => "<u2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::Bool => "|b1",
        DType::C64 => "<c8",
        DType::C128 => "<c16",
        DType::Bf16 | DType::F8E4M3 | DType::F8E5M2 => return None,
    })
}

/// Writes version 1.0: magic number, header length, a Python dict padded to 64 bytes, the elements.
fn write(path: &Path, descr: &str, shape: &[usize], bytes: &[u8]) -> std::io::Result<()> {
    let sizes: Vec<String> = shape.iter().map(ToString::to_string).collect();
    let comma = if shape.len() == 1 { "," } else { "" };
    let dict =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}{comma}), }}", sizes.join(", "));
    // Magic, version and length take 10 bytes, and a line feed ends the header. 64 sizes of 20 digits need less than
    // 65,536.
    let length = (10 + dict.len() + 1).next_multiple_of(64) - 10;
    let header = format!("{dict:<width$}\n", width = length - 1);
    let length = u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes();
    let mut file = File::create_new(path)?;
    file.write_all(b"\x93NUMPY\x01\x00")?;
    file.write_all(&length)?;
    file.write_all(header.as_bytes())?;
    file.write_all(bytes)
}
