//! Columns of a dump's tables.
//!
//! Both tables are flat: a shape is the text of a JSON list, not a list column, because a damaged or hostile file of nested
//! columns can ask for any amount of memory, and because few different shapes make a small dictionary.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::SKETCH_LANES;

/// Bytes of a sketch: its lanes as binary32, little endian.
pub const SKETCH_BYTES: usize = SKETCH_LANES * 4;
/// Bytes of a hash, most significant first, so that its hexadecimal form matches the output of
/// other tools.
pub const HASH_BYTES: usize = 16;

/// The two forms of the slot table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The journal: missing sketches take no space.
    Journal,
    /// The finished table: sketches have a fixed width.
    Table,
}

/// Declares the columns of the slot table: variant, name, type, nullability, meaning.
macro_rules! columns {
    ($($variant:ident $name:literal $kind:ident $null:ident $meaning:literal;)*) => {
        /// A column of `ops.parquet` and `journal.arrows`, in file order.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Column { $(#[doc = $meaning] $variant,)* }

        impl Column {
            /// All columns, in file order.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Returns the name in the file.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Returns a description of its content.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }

            const fn kind(self) -> Kind {
                match self { $(Self::$variant => Kind::$kind,)* }
            }

            /// Returns true if rows may leave it empty.
            pub const fn nullable(self) -> bool {
                match self { $(Self::$variant => Nullable::$null.yes(),)* }
            }
        }
    };
}

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Flag,
    Small,
    Count,
    Signed,
    Real,
    Hash,
    Sketch,
    Data,
}

enum Nullable {
    Always,
    Maybe,
}

impl Nullable {
    const fn yes(&self) -> bool {
        matches!(self, Self::Maybe)
    }
}

columns! {
    Order "order" Count Always "Place of the op in execution order, from 0; rows of one op are consecutive";
    Op "op" Text Always "Full name of the op";
    Phase "phase" Text Maybe "forward, backward or `parameters_grad`; empty for saved variables";
    Call "call" Small Maybe "Number of the call, from the name";
    Scope "scope" Text Maybe "Name of the module call it ran in";
    Stack "stack" Small Maybe "Call stack: `stack` in stacks.parquet";
    Recomputed "recomputed" Flag Always "Repeated by activation checkpointing";
    Raised "raised" Flag Always "Ended in an exception";
    Note "note" Text Maybe "Remark on the op";
    Slot "slot" Text Maybe "Path of the slot (input.0, output.0); empty in the one row of an op without slots";
    Side "side" Text Maybe "input, parameter, output or gradient";
    Kind "kind" Text Maybe "tensor, int, float, bool, text, device, printed, none or unsupported";
    Value "value" Text Maybe "A value that is not a tensor, as text; for unsupported the reason";
    Type "type" Text Maybe "Type of a printed value";
    DType "dtype" Text Maybe "Element type as the framework prints it";
    Shape "shape" Text Maybe "Sizes, as a JSON list";
    Strides "strides" Text Maybe "Steps in elements, as a JSON list";
    Device "device" Text Maybe "Device of the tensor";
    RequiresGrad "requires_grad" Flag Maybe "True if autograd tracked it";
    Placement "placement" Text Maybe "Placement of a distributed tensor";
    TensorNote "tensor_note" Text Maybe "Remark on the tensor";
    Elements "elements" Count Maybe "Number of elements measured";
    Zeros "zeros" Count Maybe "Zeros of either sign";
    Nan "nan" Count Maybe "NaNs";
    PosInf "pos_inf" Count Maybe "Positive infinities";
    NegInf "neg_inf" Count Maybe "Negative infinities";
    Sentinels "sentinels" Count Maybe "Finite elements from 2^100 on in magnitude, of float16 those of the largest magnitude";
    Min "min" Real Maybe "Smallest finite element; bool: 0 or 1";
    Max "max" Real Maybe "Largest finite element; bool: 0 or 1";
    Mean "mean" Real Maybe "Mean of the finite elements that are not sentinels";
    Norm "norm" Real Maybe "Euclidean norm of the finite elements that are not sentinels";
    SumError "sum_error" Real Maybe "Bound on the error of mean, norm and sketch, relative to the norm; empty if they were summed in binary64";
    MinInteger "min_integer" Signed Maybe "Exact `min` of integers; for uint64 the same 64 bits, unsigned";
    MaxInteger "max_integer" Signed Maybe "Exact `max` of integers; for uint64 the same 64 bits, unsigned";
    MinAt "min_at" Count Maybe "Row-major index of the first element that is `min`";
    MaxAt "max_at" Count Maybe "Row-major index of the first element that is `max`";
    Hash "hash" Hash Maybe "xxh3-128 of the contiguous bytes, big endian";
    Sketch "sketch" Sketch Maybe "256 lanes of binary32, little endian";
    SameAs "same_as" Count Maybe "Row, from 0 within the part, that holds the sketch or the elements of this one";
    Shard "shard" Small Maybe "Number of the shard that holds the data";
    Tensor "tensor" Text Maybe "Name of the tensor in the shard";
    Offset "offset" Count Maybe "First byte of the data in the shard's file";
    Bytes "bytes" Count Maybe "Bytes of the data";
    Data "data" Data Maybe "Elements of a tensor below 2 KiB, instead of a sketch: row-major, little endian";
    Identity "identity" Count Maybe "Equal for rows of the same tensor: same memory, not written to in between";
}

/// Returns the schema of the slot table.
pub fn ops_schema(form: Form) -> SchemaRef {
    let field = |column: &Column| {
        let kind = match column.kind() {
            Kind::Text => DataType::Utf8,
            Kind::Flag => DataType::Boolean,
            Kind::Small => DataType::UInt32,
            Kind::Count => DataType::UInt64,
            Kind::Signed => DataType::Int64,
            Kind::Real => DataType::Float64,
            Kind::Hash => DataType::FixedSizeBinary(width(HASH_BYTES)),
            Kind::Sketch if form == Form::Journal => DataType::Binary,
            Kind::Data => DataType::Binary,
            Kind::Sketch => DataType::FixedSizeBinary(width(SKETCH_BYTES)),
        };
        Field::new(column.name(), kind, column.nullable())
    };
    Arc::new(Schema::new(Column::ALL.iter().map(field).collect::<Vec<_>>()))
}

/// Converts a constant below 2^31 to arrow's width type.
#[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "16 and 1024")]
const fn width(bytes: usize) -> i32 {
    bytes as i32
}

/// Columns of `stacks.parquet` and `stacks.arrows`: one row per frame, innermost first within a stack.
pub const STACK_COLUMNS: [&str; 2] = ["stack", "frame"];

/// Returns the schema of the stack table.
pub fn stacks_schema() -> SchemaRef {
    let [stack, frame] = STACK_COLUMNS;
    Arc::new(Schema::new(vec![
        Field::new(stack, DataType::UInt32, false),
        Field::new(frame, DataType::Utf8, false),
    ]))
}
