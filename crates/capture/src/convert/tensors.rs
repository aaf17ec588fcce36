//! Safetensors files: `step<N>/rank<R>/tensors-<M>.safetensors`, with unchanged names.

use std::path::{Path, PathBuf};

use super::{Conversion, ConvertError, Elements, Sink, bytes_of, elements, part_folder, tensor_name};
use crate::Shards;
use probe_dump::Rank;

/// Writes the tensors of each part to separate files.
#[derive(Debug)]
pub(super) struct SafetensorsSink {
    root: PathBuf,
}

impl SafetensorsSink {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.into() }
    }
}

impl Sink for SafetensorsSink {
    fn part(&mut self, rank: &Rank, counts: &mut Conversion) -> Result<(), ConvertError> {
        let mut shards = Shards::new(part_folder(&self.root, &rank.key)?);
        for op in &rank.ops {
            let name = op.name.as_str();
            for slot in &op.slots {
                let Elements::Here(data) = elements(rank, name, slot, counts) else { continue };
                let Some(bytes) = bytes_of(&data, name, slot, counts) else { continue };
                let shape: Vec<u64> = data.shape().iter().map(|&size| size as u64).collect();
                shards.push(&tensor_name(name, slot), data.dtype().torch_name(), &shape, &bytes)?;
            }
        }
        Ok(shards.finish()?)
    }

    fn finish(self: Box<Self>) -> Result<(), ConvertError> {
        Ok(())
    }
}
