//! What a recorder hands over of one op.

use std::borrow::Cow;
use std::sync::Arc;

use probe_dump::{Observation, Scalar, SlotSide};

/// One call of an op or module.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OpRecord {
    /// Full name, such as `Functional.gelu.1.forward`; pass and call number are read off it.
    pub name: String,
    /// Name of the module call it ran in, such as `Module.layers.0.mlp.MLP.forward.0`.
    pub scope: Option<String>,
    /// Call stack, from [`DumpWriter::push_stack`](super::DumpWriter::push_stack) in the same step.
    pub stack: Option<u32>,
    /// Repeated by activation checkpointing.
    pub recomputed: bool,
    /// Ended in an exception.
    pub raised: bool,
    /// Remark on the op, such as `compiled region`.
    pub note: Option<String>,
    /// Values in order: inputs, parameters, outputs, parameter gradients.
    pub slots: Vec<SlotRecord>,
}

/// One value of an op.
#[derive(Debug, Clone, PartialEq)]
pub struct SlotRecord {
    /// Path inside the op: `input.0`, `input.0.1`, `kwarg.mask`, `parameter.weight`, `output.0`, `grad.weight`.
    pub path: String,
    /// Side of the op.
    pub side: SlotSide,
    /// What was recorded.
    pub value: SlotValue,
}

/// What was recorded of a value.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "most are tensors, and none lives longer than its op")]
pub enum SlotValue {
    /// A tensor.
    Tensor(TensorFacts),
    /// A value that is no tensor.
    Scalar(Scalar),
    /// None.
    None,
    /// Something of which nothing could be recorded, and why.
    Unsupported(String),
}

/// What was recorded of a tensor.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TensorFacts {
    /// Element type as the framework prints it, such as `torch.float32`.
    pub dtype: Cow<'static, str>,
    /// Sizes of the dimensions; empty for a scalar.
    pub shape: Vec<u64>,
    /// Steps in elements, where the tensor has them.
    pub strides: Option<Vec<i64>>,
    /// Where it was, such as `cuda:0`; empty when unknown.
    pub device: Cow<'static, str>,
    /// Whether autograd tracks it; `None` when unknown.
    pub requires_grad: Option<bool>,
    /// Placement of a distributed tensor.
    pub placement: Option<String>,
    /// What was measured; `None` for tensors without values (meta, fake). Hand over clones of one `Arc` for a tensor that
    /// appears again unchanged: its sketch is then stored once.
    pub observation: Option<Arc<Observation>>,
    /// Where its data was written, from [`DumpWriter::push_tensor`](super::DumpWriter::push_tensor) in the same step. A
    /// tensor that appears again unchanged may be given the same location.
    pub data: Option<DataLocation>,
    /// Its elements in row-major order, little endian, in place of a sketch: for tensors below
    /// [`SMALL_TENSOR`](probe_dump::SMALL_TENSOR) bytes.
    pub bytes: Option<Arc<[u8]>>,
    /// Equal where the same tensor was seen in this step: same memory, not written to in between. `None` when unknown.
    pub identity: Option<u64>,
    /// Remark on the tensor, such as `beyond the byte budget`.
    pub note: Option<String>,
}

/// Where the data of a tensor lies within a part of a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataLocation {
    /// Number of the shard.
    pub shard: u32,
    /// Name in the shard.
    pub name: Arc<str>,
    /// First byte in the shard's file.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
}
