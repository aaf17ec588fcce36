//! Writes small dumps in the form of the older tool: `dump.json` with statistics, and a data file for every tensor.
//!
//! A dump is made twice by one function, once for each [`Side`], so that a test shows what differs and nothing else.
#![allow(
    clippy::cast_possible_truncation,
    reason = "tests choose values that fit, or mean them to be rounded"
)]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::{Map, Value as Json, json};

/// Which dump is being made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Baseline,
    Candidate,
}

impl Side {
    /// `baseline` on that side, `candidate` on the other.
    pub(crate) fn pick<T>(self, baseline: T, candidate: T) -> T {
        match self {
            Self::Baseline => baseline,
            Self::Candidate => candidate,
        }
    }

    /// `value`, times `factor` in the candidate.
    pub(crate) fn scaled(self, value: &Tensor, factor: f64) -> Tensor {
        self.pick(value.clone(), value.map(|x| x * factor))
    }

    pub(crate) const fn is_candidate(self) -> bool {
        matches!(self, Self::Candidate)
    }
}

/// Data that a dump holds of each tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    Tensor,
    Statistics,
    /// Statistics and checksums that tell any difference.
    Checksum,
    /// XOR of 8-byte words in place of statistics.
    Xor,
}

/// A tensor, as values in binary64 and the type they are stored in.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tensor {
    dtype: &'static str,
    shape: Vec<usize>,
    values: Vec<f64>,
}

impl Tensor {
    pub(crate) fn new(dtype: &'static str, shape: &[usize], values: &[f64]) -> Self {
        assert_eq!(shape.iter().product::<usize>(), values.len(), "shape and values");
        Self { dtype, shape: shape.to_vec(), values: values.to_vec() }
    }

    /// A vector of float32.
    pub(crate) fn f32(values: &[f64]) -> Self {
        Self::new("float32", &[values.len()], values)
    }

    /// Values that look like activations, other ones for every `seed`.
    pub(crate) fn wave(seed: u32, count: usize) -> Self {
        let value = |index: usize| ((index as f64).mul_add(0.7, f64::from(seed) * 1.3)).sin();
        Self::f32(&(0..count).map(value).collect::<Vec<_>>())
    }

    pub(crate) fn map(&self, change: impl Fn(f64) -> f64) -> Self {
        Self { values: self.values.iter().map(|&x| change(x)).collect(), ..self.clone() }
    }

    /// With other sizes of its dimensions.
    pub(crate) fn shaped(self, shape: &[usize]) -> Self {
        Self::new(self.dtype, shape, &self.values)
    }

    /// With error of the size `relative`, without direction: as another device rounds. The same for the same seed.
    pub(crate) fn noisy(mut self, seed: u64, relative: f64) -> Self {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mean_square = self.values.iter().map(|x| x * x).sum::<f64>() / self.values.len().max(1) as f64;
        for value in &mut self.values {
            // xorshift64: uniform in [-1, 1], of which sqrt(3) makes a variance of 1.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let uniform = (state >> 11) as f64 / 2_f64.powi(52) - 1.0;
            *value += uniform * 3_f64.sqrt() * relative * mean_square.sqrt();
        }
        self
    }

    /// With element `index` replaced.
    pub(crate) fn with(mut self, index: usize, value: f64) -> Self {
        self.values[index] = value;
        self
    }

    pub(crate) fn first(&self) -> f64 {
        self.values[0]
    }

    /// Where its smallest element is, and what it is.
    pub(crate) fn smallest(&self) -> (usize, f64) {
        let elements = self.values.iter().copied().enumerate();
        elements.min_by(|a, b| a.1.total_cmp(&b.1)).expect("elements")
    }

    /// The same values under the name of another type; data is not written for types that npy files cannot hold.
    pub(crate) fn named(mut self, dtype: &'static str) -> Self {
        self.dtype = dtype;
        self
    }

    /// As the type holds it.
    fn stored(&self, x: f64) -> f64 {
        match self.dtype {
            "float32" => f64::from(x as f32),
            // Upper half of a float32; truncation is near enough for a test.
            "bfloat16" => f64::from(f32::from_bits((x as f32).to_bits() & 0xffff_0000)),
            _ => x,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let one = |&x: &f64| -> Vec<u8> {
            match self.dtype {
                "float32" => (x as f32).to_le_bytes().into(),
                "float64" => x.to_le_bytes().into(),
                "int64" => (x as i64).to_le_bytes().into(),
                "bfloat16" => (x as f32).to_le_bytes()[2..].into(),
                "bool" => vec![u8::from(x > 0.0)],
                other => panic!("no bytes for {other}"),
            }
        };
        self.values.iter().flat_map(one).collect()
    }

    /// An npy file of it; readers tell the format from the content, so it may have any name.
    pub(crate) fn npy(&self) -> Vec<u8> {
        let descr = match self.dtype {
            "float32" => "<f4",
            "float64" => "<f8",
            "int64" => "<i8",
            "bool" => "|b1",
            other => panic!("no npy of {other}"),
        };
        let mut shape = String::new();
        for size in &self.shape {
            write!(shape, "{size},").unwrap();
        }
        let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
        while (10 + header.len() + 1) % 64 != 0 {
            header.push(' ');
        }
        header.push('\n');
        let length = u16::try_from(header.len()).unwrap().to_le_bytes();
        [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &self.bytes()].concat()
    }

    /// Writes an npy file of `count` zeros in float32 that takes no room on disk.
    pub(crate) fn write_hole(path: &Path, count: u64) {
        let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({count},), }}");
        let header = format!("{header:<117}\n");
        fs::write(path, [b"\x93NUMPY\x01\x00\x76\x00", header.as_bytes()].concat()).unwrap();
        fs::File::options().append(true).open(path).unwrap().set_len(128 + 4 * count).unwrap();
    }

    /// Its record without `data_name`.
    fn leaf(&self, task: Task) -> Map<String, Json> {
        let mut leaf = Map::new();
        leaf.insert("type".into(), "torch.Tensor".into());
        leaf.insert("dtype".into(), format!("torch.{}", self.dtype).into());
        leaf.insert("shape".into(), json!(self.shape));
        if task == Task::Xor {
            leaf.insert("md5".into(), format!("0x{:016x}", self.xor()).into());
        } else {
            leaf.extend(self.statistics());
        }
        leaf.insert("requires_grad".into(), false.into());
        if task == Task::Checksum {
            leaf.insert("md5".into(), format!("{:08x}", self.checksum()).into());
        }
        leaf
    }

    fn statistics(&self) -> Map<String, Json> {
        let values: Vec<f64> = self.values.iter().map(|&x| self.stored(x)).collect();
        let has_nan = values.iter().any(|x| x.is_nan());
        let fold = |f: fn(f64, f64) -> f64| values.iter().copied().reduce(f).unwrap();
        let mut all = [
            fold(f64::max),
            fold(f64::min),
            values.iter().sum::<f64>() / values.len() as f64,
            values.iter().map(|x| x * x).sum::<f64>().sqrt(),
        ];
        if has_nan {
            all = [f64::NAN; 4];
        }
        let number = |value: f64| match self.dtype {
            "int64" => json!(value as i64),
            "bool" => json!(value > 0.0),
            // Written bare, as the older tool does; see `Dump::write`.
            _ if value.is_nan() => json!("@NaN@"),
            _ if value.is_infinite() => json!(if value > 0.0 { "@Infinity@" } else { "@-Infinity@" }),
            _ => json!(value),
        };
        let float = self.dtype.contains("float");
        ["Max", "Min", "Mean", "Norm"]
            .into_iter()
            .zip(all)
            .enumerate()
            .map(|(index, (name, value))| {
                (name.to_owned(), if index < 2 || float { number(value) } else { Json::Null })
            })
            .collect()
    }

    fn checksum(&self) -> u32 {
        // Any function of the bytes will do.
        self.bytes().iter().fold(2_166_136_261, |sum, &byte| (sum ^ u32::from(byte)).wrapping_mul(16_777_619))
    }

    fn xor(&self) -> u64 {
        let word = |chunk: &[u8]| {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(bytes)
        };
        self.bytes().chunks(8).map(word).fold(0, |sum, word| sum ^ word)
    }
}

/// A value of an op: a tensor, or anything else as the older tool writes it.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Tensor(Tensor),
    Json(Json),
}

impl From<Tensor> for Value {
    fn from(tensor: Tensor) -> Self {
        Self::Tensor(tensor)
    }
}

impl From<&Tensor> for Value {
    fn from(tensor: &Tensor) -> Self {
        Self::Tensor(tensor.clone())
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Json(json!({ "type": "float", "value": value }))
    }
}

impl From<Json> for Value {
    fn from(leaf: Json) -> Self {
        Self::Json(leaf)
    }
}

/// One op of a dump.
#[derive(Debug, Clone)]
pub(crate) struct Op {
    name: String,
    values: Vec<(&'static str, String, Value)>,
}

/// An op called `name`, without values as yet.
pub(crate) fn op(name: &str) -> Op {
    Op { name: name.to_owned(), values: Vec::new() }
}

impl Op {
    /// The same op under another name.
    pub(crate) fn renamed(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    fn add(mut self, block: &'static str, key: &str, value: impl Into<Value>) -> Self {
        self.values.push((block, key.to_owned(), value.into()));
        self
    }

    pub(crate) fn input(self, value: impl Into<Value>) -> Self {
        let block = if self.name.contains(".backward") { "input" } else { "input_args" };
        self.add(block, "", value)
    }

    pub(crate) fn kwarg(self, key: &str, value: impl Into<Value>) -> Self {
        self.add("input_kwargs", key, value)
    }

    pub(crate) fn parameter(self, key: &str, value: impl Into<Value>) -> Self {
        self.add("parameters", key, value)
    }

    pub(crate) fn output(self, value: impl Into<Value>) -> Self {
        self.add("output", "", value)
    }

    /// Gradient of a parameter, or a saved variable when `key` is empty.
    pub(crate) fn gradient(self, key: &str, value: impl Into<Value>) -> Self {
        self.add("", key, value)
    }
}

/// One step of one rank.
#[derive(Debug, Clone)]
pub(crate) struct Dump {
    task: Task,
    ops: Vec<Op>,
}

impl Dump {
    pub(crate) const fn new(task: Task, ops: Vec<Op>) -> Self {
        Self { task, ops }
    }

    /// Writes it as the rank folder `folder`.
    pub(crate) fn write(&self, folder: &Path) {
        let files = folder.join("dump_tensor_data");
        fs::create_dir_all(&files).unwrap();
        let debug = self.ops.iter().any(|op| op.name.contains(".debug"));
        let level = if debug { "debug" } else { "mix" };
        let mut data = String::new();
        for (index, op) in self.ops.iter().enumerate() {
            let block = self.block(op, &files);
            let comma = if index == 0 { "" } else { ",\n" };
            write!(data, "{comma}{}:{block}", json!(op.name)).unwrap();
        }
        let task = if self.task == Task::Tensor { "tensor" } else { "statistics" };
        let text = format!(
            r#"{{"task":"{task}","level":"{level}","framework":"pytorch","dump_data_dir":null,"data":{{{data}}}}}"#
        );
        let name = if debug { "debug.json" } else { "dump.json" };
        fs::write(folder.join(name), text.replace("\"@", "").replace("@\"", "")).unwrap();
    }

    fn block(&self, op: &Op, files: &Path) -> Json {
        let mut block = Map::new();
        for (name, key, value) in &op.values {
            let list = matches!(*name, "input" | "input_args" | "output");
            let position = block.get(*name).and_then(Json::as_array).map_or(0, Vec::len);
            let part = match *name {
                "" => key.clone(),
                "input_args" => format!("input.{position}"),
                "input_kwargs" => format!("kwargs.{key}"),
                _ if list => format!("{name}.{position}"),
                _ => format!("{name}.{key}"),
            };
            let leaf = self.leaf(value, format!("{}.{part}", op.name).trim_end_matches('.'), files);
            match *name {
                "" if key.is_empty() => return leaf,
                "" => _ = block.insert(key.clone(), json!([leaf])),
                _ if list => {
                    let items = block.entry(*name).or_insert_with(|| json!([]));
                    items.as_array_mut().unwrap().push(leaf);
                }
                _ => {
                    let entries = block.entry(*name).or_insert_with(|| json!({}));
                    entries.as_object_mut().unwrap().insert(key.clone(), leaf);
                }
            }
        }
        Json::Object(block)
    }

    fn leaf(&self, value: &Value, name: &str, files: &Path) -> Json {
        match value {
            Value::Json(leaf) => leaf.clone(),
            Value::Tensor(tensor) => {
                let mut leaf = tensor.leaf(self.task);
                if self.task == Task::Tensor {
                    let file = format!("{name}.pt");
                    fs::write(files.join(&file), tensor.npy()).unwrap();
                    leaf.insert("data_name".into(), file.into());
                }
                Json::Object(leaf)
            }
        }
    }
}
