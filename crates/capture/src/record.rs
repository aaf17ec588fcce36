//! Records that a recorder hands over for each op.

use std::borrow::Cow;
use std::sync::Arc;

use probe_dump::{Observation, Scalar, SlotSide};

/// One call of an op or module.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OpRecord {
    /// Full name, such as `Functional.gelu.1.forward`, which encodes pass and call number.
    pub name: String,
    /// Name of the enclosing module call, such as `Module.layers.0.mlp.MLP.forward.0`.
    pub scope: Option<String>,
    /// Call stack, from [`DumpWriter::push_stack`](super::DumpWriter::push_stack) in the same step.
    pub stack: Option<u32>,
    /// True if repeated by activation checkpointing.
    pub recomputed: bool,
    /// True if it ended in an exception.
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
    /// The recorded value.
    pub value: SlotValue,
}

/// A recorded value.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "most are tensors, and none lives longer than its op")]
pub enum SlotValue {
    /// A tensor.
    Tensor(TensorFacts),
    /// A value that is not a tensor.
    Scalar(Scalar),
    /// None.
    None,
    /// A value that could not be recorded, with the reason.
    Unsupported(String),
}

/// Record of a tensor.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TensorFacts {
    /// Dtype as the framework prints it, such as `torch.float32`.
    pub dtype: Cow<'static, str>,
    /// Sizes of the dimensions; empty for a scalar.
    pub shape: Vec<u64>,
    /// Strides in elements, if the tensor has them.
    pub strides: Option<Vec<i64>>,
    /// Its device, such as `cuda:0`; empty if unknown.
    pub device: Cow<'static, str>,
    /// True if autograd tracks it; `None` if unknown.
    pub requires_grad: Option<bool>,
    /// Placement of a distributed tensor.
    pub placement: Option<String>,
    /// The measurements; `None` for tensors without values (meta, fake). Pass clones of one `Arc` for a tensor that
    /// reappears unchanged: its sketch is then stored once.
    pub observation: Option<Arc<Observation>>,
    /// Location of its data, from [`DumpWriter::push_tensor`](super::DumpWriter::push_tensor) in the same step. A
    /// tensor that reappears unchanged may have the same location.
    pub data: Option<DataLocation>,
    /// Its elements in row-major order, little endian, instead of a sketch: for tensors below
    /// [`SMALL_TENSOR`](probe_dump::SMALL_TENSOR) bytes.
    pub bytes: Option<Arc<[u8]>>,
    /// Equal for the same tensor of this step: same memory, not written to in between. `None` if unknown.
    pub identity: Option<u64>,
    /// Remark on the tensor, such as `beyond the byte budget`.
    pub note: Option<String>,
}

/// Location of a tensor's data within a part of a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataLocation {
    /// Number of the shard.
    pub shard: u32,
    /// Name in the shard.
    pub name: Arc<str>,
    /// Offset of the first byte in the shard's file.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}
