//! Golden files with bytes changed, cut and repeated: the result is always a value or an error, never a panic.
//!
//! Deterministic across runs. The fuzz targets in `fuzz/` go deeper; this stays in the regular test suite.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::{load_single_bytes, open_bytes};

/// Variants per file.
const VARIANTS: u64 = 150;
/// Larger files are left to the fuzzers.
const LARGEST: usize = 20_000;
/// Largest element count at which a tensor that still loads is read completely.
const READ_ELEMENTS: usize = 1 << 16;

/// Splitmix64: any generator will do, as long as it is the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap()
    }
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len());
    match random.below(8) {
        0 => bytes.truncate(at),
        1 => {
            let part = bytes[at..(at + random.below(40)).min(bytes.len())].to_vec();
            let to = random.below(bytes.len());
            bytes.splice(to..to, part);
        }
        2 => drop(bytes.drain(at..(at + 1 + random.below(8)).min(bytes.len()))),
        // Extreme numbers, where lengths, counts and offsets lie.
        3 => {
            let value = [0, 1, 0x7fff_ffff, 0xffff_ffff, u64::MAX >> 1, u64::MAX][random.below(6)];
            let width = [1, 2, 4, 8][random.below(4)].min(bytes.len() - at);
            bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        }
        4 => bytes[at] ^= 1 << random.below(8),
        5 => bytes[at] = bytes[at].wrapping_add(1),
        _ => bytes[at] = u8::try_from(random.below(256)).unwrap(),
    }
}

fn read_all(bytes: Vec<u8>) {
    let bytes = Arc::new(bytes);
    let path = Path::new("mutated");
    if let Ok(tensor) = load_single_bytes(path, bytes.clone())
        && tensor.view().len() <= READ_ELEMENTS
    {
        tensor.view().to_bytes();
    }
    let Ok(file) = open_bytes(path, bytes) else { return };
    for index in 0..file.entries().len() {
        if let Ok(tensor) = file.load(index)
            && tensor.view().len() <= READ_ELEMENTS
        {
            tensor.view().to_bytes();
        }
    }
}

#[test]
fn changed_files_are_read_or_refused() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata");
    let mut random = Random(1);
    for folder in ["tensor_files", "hostile"] {
        let mut paths: Vec<_> = fs::read_dir(root.join(folder)).unwrap().map(|e| e.unwrap().path()).collect();
        paths.sort();
        for path in paths.iter().filter(|path| path.is_file()) {
            let whole = fs::read(path).unwrap();
            if whole.is_empty() || whole.len() > LARGEST {
                continue;
            }
            for _ in 0..VARIANTS {
                let mut bytes = whole.clone();
                for _ in 0..=random.below(3) {
                    if !bytes.is_empty() {
                        mutate(&mut bytes, &mut random);
                    }
                }
                read_all(bytes);
            }
        }
    }
}
