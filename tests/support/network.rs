//! Runs of a small network, recorded in probe's own format: products and GELUs in turn, each GELU with noise of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use probe::capture::{CaptureTask, DumpWriter, OpRecord, RunManifest, SlotRecord, SlotValue, TensorFacts};
use probe::compare::CompareRequest;
use probe::dump::{Content, DType, SlotSide, TensorRef};
use probe::measure::observe;
use tempfile::TempDir;

use super::answer::Answer;

/// Rows and columns of the tensors.
const ROWS: usize = 64;
const COLUMNS: usize = 96;

/// Blocks of a product and a GELU.
const BLOCKS: u32 = 6;

/// Error that each GELU adds in any run but run 0: 100 times what the judge expects of it.
pub(crate) const NOISE: f32 = 2.4e-5;

/// Uniform numbers, other ones for every seed.
fn random(seed: u32) -> Vec<f32> {
    let mut state = u64::from(seed) + 1;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / 16_777_216.0 - 0.5
    };
    (0..ROWS * COLUMNS).map(|_| uniform() + uniform() + uniform()).collect()
}

/// A run of the program.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub(crate) task: CaptureTask,
    pub(crate) steps: &'static [u64],
    /// Seed of its noise; none in run 0.
    pub(crate) number: u32,
    /// Error that each GELU adds to its result.
    pub(crate) noise: f32,
    /// By how much the GELU of block 3 is off on top, relative to what it makes.
    pub(crate) fault: f32,
    /// Share of the rows whose choice (an argmax at the end) another run makes otherwise.
    pub(crate) flips: usize,
    /// Seed of its data.
    pub(crate) data: u32,
}

pub(crate) const FIRST: Run =
    Run { task: CaptureTask::Sketch, steps: &[0], number: 0, noise: NOISE, fault: 0.0, flips: 0, data: 0 };

impl Run {
    pub(crate) fn write(self, root: &Path) {
        let manifest = RunManifest { task: self.task, ..RunManifest::default() };
        let mut writer = DumpWriter::create(root, &manifest, 0).unwrap();
        for &step in self.steps {
            writer.begin_step(step).unwrap();
            self.push(&mut writer, u32::try_from(step).unwrap());
            writer.finish_step().unwrap();
        }
        writer.close(&[]).unwrap();
    }

    fn push(self, writer: &mut DumpWriter, step: u32) {
        let mut off = vec![0.0; ROWS * COLUMNS];
        let mut value = random(1000 * step + self.data);
        for block in 0..BLOCKS {
            for name in ["linear", "gelu"] {
                let name = format!("Functional.{name}.{block}.forward");
                let gelu = name.contains("gelu");
                let seed = 1000 * step + self.data + 2 * block + 1 + u32::from(gelu);
                if gelu && self.number > 0 {
                    let fault = if block == 3 { self.fault } else { 0.0 };
                    for (off, noise) in off.iter_mut().zip(random(100_000 * self.number + seed)) {
                        *off += (self.noise + fault) * noise;
                    }
                }
                let made: Vec<f32> = random(seed).iter().zip(&off).map(|(value, off)| value + off).collect();
                let slots = [("input.0", SlotSide::Input, &value), ("output.0", SlotSide::Output, &made)];
                let slots = slots.map(|(path, side, values)| (path, side, DType::F32, bytes(values)));
                self.record(writer, &name, &slots);
                value = made;
            }
        }
        let mut chosen: Vec<i64> = (0_i64..).take(ROWS).collect();
        chosen[..self.flips].iter_mut().for_each(|index| *index += 100 * i64::from(self.number));
        let chosen = chosen.iter().flat_map(|index| index.to_le_bytes()).collect();
        let one = vec![("output.0", SlotSide::Output, DType::I64, chosen)];
        self.record(writer, "Torch.randint.0.forward", &one);
    }

    fn record(self, writer: &mut DumpWriter, name: &str, slots: &[(&str, SlotSide, DType, Vec<u8>)]) {
        let content = match self.task {
            CaptureTask::Statistics => Content::STATISTICS,
            CaptureTask::Hash => Content::HASH,
            CaptureTask::Sketch | CaptureTask::Tensor => Content::SKETCH,
        };
        let mut record = OpRecord { name: name.into(), ..OpRecord::default() };
        for (path, side, dtype, bytes) in slots {
            let shape = if *dtype == DType::F32 { vec![ROWS, COLUMNS] } else { vec![ROWS] };
            let strides = probe::dump::contiguous_strides(&shape);
            let tensor = TensorRef::strided(bytes, *dtype, &shape, &strides, 0).unwrap();
            let shape: Vec<u64> = shape.iter().map(|&size| size as u64).collect();
            let dtype = format!("torch.{dtype}");
            let data = (self.task == CaptureTask::Tensor)
                .then(|| writer.push_tensor(&format!("{name}/{path}"), &dtype, &shape, bytes).unwrap());
            let facts = TensorFacts {
                observation: Some(Arc::new(observe(tensor, content))),
                dtype: dtype.into(),
                shape,
                device: "cpu".into(),
                data,
                ..TensorFacts::default()
            };
            let value = SlotValue::Tensor(facts);
            record.slots.push(SlotRecord { path: (*path).into(), side: *side, value });
        }
        writer.push(&record).unwrap();
    }
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// A baseline and further runs beside it.
pub(crate) struct Dumps(TempDir);

impl Dumps {
    pub(crate) fn of(baseline: Run, others: &[(&str, Run)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        baseline.write(&folder.path().join("baseline"));
        for (name, run) in others {
            run.write(&folder.path().join(name));
        }
        Self(folder)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Compares the baseline with `candidate`, knowing the noise of `noise`.
    pub(crate) fn compare(&self, candidate: &str, noise: &[&str]) -> Answer {
        let noise = noise.iter().map(|name| self.path(name)).collect();
        let options = CompareRequest { noise, ..CompareRequest::default() }
            .options(&probe::files::Copies::default())
            .unwrap();
        Answer::with(&self.path("baseline"), &self.path(candidate), &options)
    }
}
