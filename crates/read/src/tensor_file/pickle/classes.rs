//! Every class and function a checkpoint may name, with its meaning here. Nothing else is accepted.

use probe_dump::DType;

/// Element type named by a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tensor_file) enum Element {
    /// A type whose values can be compared.
    Known(DType),
    /// A torch type that is recognised but not supported.
    Other(&'static str),
}

/// A torch function that rebuilds a tensor, with its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tensor_file) enum Rebuild {
    /// `(storage, offset, size, stride, ...)`, element type from the storage.
    V2,
    /// The same with the element type as seventh argument.
    V3,
    /// The same for quantised tensors.
    Quantized,
    /// `(tensor, requires_grad, ...)`
    Parameter,
    /// `(tensor, dtype, device, requires_grad)`: written for devices that torch cannot store itself.
    Device,
    /// `(function, type, arguments, state)`: tensors with attributes of their own, and buffers.
    FromType,
    /// `(layout, (indices, values, size, ...))`
    Sparse,
    /// `(dtype, size, stride, requires_grad)`
    Meta,
}

/// A step in the making of an array of `NumPy`, whose elements lie in the program itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tensor_file) enum ArrayPart {
    /// `numpy.ndarray`, as argument of the next.
    Class,
    /// `_reconstruct(class, shape, letter)`; sizes, type and elements follow as its state.
    Empty,
    /// `dtype(text, align, copy)`
    DType,
    /// `_codecs.encode(text, encoding)`: how bytes are written in protocol 2.
    Encoded,
}

/// Meaning of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tensor_file) enum Class {
    /// A function that makes a tensor.
    Rebuild(Rebuild),
    /// A storage class with its element type; `None` is the untyped one, counted in bytes.
    Storage(Option<Element>),
    /// A dtype object.
    DType(Element),
    /// `torch.Size`
    Size,
    /// `torch.device`
    Device,
    /// A class of tensors, as argument of [`Rebuild::FromType`].
    TensorType,
    /// A map.
    Map,
    /// A record of the index of a torch distributed checkpoint: fields by name, or by position.
    Record,
    /// A step in the making of an array of `NumPy`.
    Array(ArrayPart),
    /// Harmless and common in checkpoints, but irrelevant to a comparison: instances are kept as unsupported values.
    Opaque,
}

impl Class {
    /// Looks up a class; `None` if it does not belong in a checkpoint.
    // One table of all accepted modules; its length is theirs.
    pub(super) fn named(module: &str, name: &str) -> Option<Self> {
        match module {
            "torch._utils" => rebuild(name).map(Self::Rebuild).or(match name {
                "_rebuild_nested_tensor"
                | "_rebuild_wrapper_subclass"
                | "_rebuild_device_tensor_from_numpy"
                | "_rebuild_xla_tensor" => Some(Self::Opaque),
                _ => None,
            }),
            "torch._tensor" => (name == "_rebuild_from_type_v2").then_some(Self::Rebuild(Rebuild::FromType)),
            "collections" => match name {
                "OrderedDict" | "defaultdict" | "Counter" => Some(Self::Map),
                "deque" => Some(Self::Opaque),
                _ => None,
            },
            "torch" => torch(name),
            "torch.cuda" | "torch.npu" => storage(name),
            "torch.storage" => match name {
                "UntypedStorage" | "_UntypedStorage" => Some(Self::Storage(None)),
                "TypedStorage" | "_TypedStorage" => Some(Self::Opaque),
                _ => None,
            },
            "torch.distributed.checkpoint.metadata"
            | "torch.distributed.checkpoint.filesystem"
            | "torch.distributed._shard.sharded_tensor.metadata" => distributed(name),
            // What Megatron's distributed checkpoints keep of the plan by which they were written.
            "torch.distributed.checkpoint.planner" => matches!(
                name,
                "SavePlan" | "WriteItem" | "WriteItemType" | "TensorWriteData" | "BytesIOWriteData"
            )
            .then_some(Self::Opaque),
            // Enumerations among the arguments of a run, and the index of Megatron's distributed checkpoints.
            _ if module.starts_with("megatron.core.") => {
                Some(if name == "MCoreMetadata" { Self::Record } else { Self::Opaque })
            }
            "signal" => (name == "Signals").then_some(Self::Opaque),
            "torch.nn.parameter" => match name {
                "Parameter" | "Buffer" => Some(Self::TensorType),
                _ => None,
            },
            "torch.serialization" => (name == "_get_layout").then_some(Self::Opaque),
            // Checkpoints saved from an NPU: the bytes are those of an ordinary tensor, the format is only a
            // label.
            "torch_npu.utils.storage" | "torch_npu.utils.tensor_methods" => {
                (name == "_rebuild_npu_tensor").then_some(Self::Rebuild(Rebuild::V2))
            }
            "torch_npu.npu._format" => (name == "Format").then_some(Self::Opaque),
            "numpy" => match name {
                "ndarray" => Some(Self::Array(ArrayPart::Class)),
                "dtype" => Some(Self::Array(ArrayPart::DType)),
                _ => None,
            },
            "numpy.core.multiarray" | "numpy._core.multiarray" => match name {
                "_reconstruct" => Some(Self::Array(ArrayPart::Empty)),
                "scalar" => Some(Self::Opaque),
                _ => None,
            },
            "numpy.dtypes" => name.ends_with("DType").then_some(Self::Opaque),
            "_codecs" => (name == "encode").then_some(Self::Array(ArrayPart::Encoded)),
            "builtins" | "__builtin__" => match name {
                "dict" => Some(Self::Map),
                "set" | "frozenset" | "complex" | "slice" | "range" | "bytearray" | "bytes" | "int"
                | "float" | "bool" | "str" | "list" | "tuple" => Some(Self::Opaque),
                _ => None,
            },
            "argparse" => (name == "Namespace").then_some(Self::Opaque),
            "pathlib" | "pathlib._local" => {
                matches!(name, "PosixPath" | "WindowsPath" | "PurePosixPath").then_some(Self::Opaque)
            }
            _ => None,
        }
    }
}

fn distributed(name: &str) -> Option<Class> {
    match name {
        "Metadata"
        | "TensorStorageMetadata"
        | "TensorProperties"
        | "ChunkStorageMetadata"
        | "BytesStorageMetadata"
        | "MetadataIndex"
        | "StorageMeta"
        | "_StorageInfo" => Some(Class::Record),
        "_MEM_FORMAT_ENCODING" | "MEM_FORMAT_ENCODING" => Some(Class::Opaque),
        _ => None,
    }
}

fn rebuild(name: &str) -> Option<Rebuild> {
    Some(match name {
        "_rebuild_tensor_v2" | "_rebuild_tensor" => Rebuild::V2,
        "_rebuild_tensor_v3" => Rebuild::V3,
        "_rebuild_qtensor" => Rebuild::Quantized,
        "_rebuild_parameter" | "_rebuild_parameter_with_state" => Rebuild::Parameter,
        "_rebuild_device_tensor_from_cpu_tensor" => Rebuild::Device,
        "_rebuild_sparse_tensor" | "_rebuild_sparse_csr_tensor" => Rebuild::Sparse,
        "_rebuild_meta_tensor_no_storage" => Rebuild::Meta,
        _ => return None,
    })
}

fn torch(name: &str) -> Option<Class> {
    match name {
        "Size" => Some(Class::Size),
        "device" => Some(Class::Device),
        "Tensor" => Some(Class::TensorType),
        "per_tensor_affine" | "per_channel_affine" | "strided" | "sparse_coo" | "preserve_format"
        | "contiguous_format" | "channels_last" => Some(Class::Opaque),
        _ if name.ends_with("Storage") => storage(name),
        _ => element(name).map(Class::DType),
    }
}

fn storage(name: &str) -> Option<Class> {
    let known = |dtype| Some(Class::Storage(Some(Element::Known(dtype))));
    let other = |text| Some(Class::Storage(Some(Element::Other(text))));
    match name {
        "FloatStorage" => known(DType::F32),
        "BFloat16Storage" => known(DType::Bf16),
        "HalfStorage" => known(DType::F16),
        "DoubleStorage" => known(DType::F64),
        "LongStorage" => known(DType::I64),
        "IntStorage" => known(DType::I32),
        "ShortStorage" => known(DType::I16),
        "CharStorage" => known(DType::I8),
        "ByteStorage" => known(DType::U8),
        "BoolStorage" => known(DType::Bool),
        "ComplexFloatStorage" => known(DType::C64),
        "ComplexDoubleStorage" => known(DType::C128),
        "QUInt8Storage" => other("quint8"),
        "QInt8Storage" => other("qint8"),
        "QInt32Storage" => other("qint32"),
        "QUInt4x2Storage" => other("quint4x2"),
        "QUInt2x4Storage" => other("quint2x4"),
        "UntypedStorage" => Some(Class::Storage(None)),
        _ => None,
    }
}

/// Torch dtypes without a storage class or without a counterpart here.
const OTHER_ELEMENTS: [&str; 36] = [
    "complex32",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float4_e2m1fn_x2",
    "quint8",
    "qint8",
    "qint32",
    "quint4x2",
    "quint2x4",
    "bits1x8",
    "bits2x4",
    "bits4x2",
    "bits8",
    "bits16",
    "uint1",
    "uint2",
    "uint3",
    "uint4",
    "uint5",
    "uint6",
    "uint7",
    "int1",
    "int2",
    "int3",
    "int4",
    "int5",
    "int6",
    "int7",
    "hifloat8",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float4_e2m1fn",
];

fn element(name: &str) -> Option<Element> {
    DType::parse(name)
        .map(Element::Known)
        .or_else(|| OTHER_ELEMENTS.into_iter().find(|&other| other == name).map(Element::Other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use probe_dump::ALL_DTYPES;

    #[test]
    fn nothing_that_could_act_is_a_class() {
        for (module, name) in [
            ("os", "system"),
            ("posix", "system"),
            ("builtins", "eval"),
            ("builtins", "getattr"),
            ("__builtin__", "exec"),
            ("torch", "load"),
            ("torch._utils", "_import_dotted_name"),
            ("torch.storage", "_load_from_bytes"),
            ("numpy", "load"),
            ("collections", "namedtuple"),
            ("functools", "partial"),
            ("", ""),
        ] {
            assert_eq!(Class::named(module, name), None, "{module}.{name}");
        }
    }

    #[test]
    fn every_dtype_object_is_known() {
        for dtype in ALL_DTYPES {
            assert_eq!(Class::named("torch", dtype.name()), Some(Class::DType(Element::Known(dtype))));
        }
        assert_eq!(Class::named("torch", "complex32"), Some(Class::DType(Element::Other("complex32"))));
    }
}
