//! The message at the start of a dump file: inputs and outputs of the operator, without the bytes.
//!
//! `OpInput` and `OpOutput` number their fields differently. Unneeded fields are skipped, whatever they hold.

use crate::wire::{Message, Value, WireError};
use probe_dump::MAX_DIMS;
use probe_files::limits::{MAX_CANN_TENSORS, MAX_NAME_BYTES};

/// Header of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Header {
    /// Microseconds; 0 if missing.
    pub(super) time: u64,
    pub(super) op_name: Box<str>,
    pub(super) inputs: Vec<Described>,
    pub(super) outputs: Vec<Described>,
    /// Sizes of L1 buffers, whose bytes follow those of the outputs.
    pub(super) buffers: Vec<u64>,
    /// Sizes of workspaces, whose bytes come last.
    pub(super) spaces: Vec<u64>,
}

/// One tensor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Described {
    /// Number in the enumeration of dumps.
    pub(super) data_type: u64,
    pub(super) format: u64,
    /// As stored.
    pub(super) shape: Vec<u64>,
    /// As the program sees it; empty if missing.
    pub(super) original_shape: Vec<u64>,
    /// Format of the original shape; only outputs have it.
    pub(super) original_format: Option<u64>,
    /// Bytes of its payload.
    pub(super) size: u64,
    /// Groups of a convolution.
    pub(super) groups: u64,
}

/// Numbers of the fields in which inputs and outputs differ.
struct Numbers {
    original_op: Option<u32>,
    size: u32,
    original_shape: u32,
    sub_format: u32,
}

const INPUT: Numbers = Numbers { original_op: None, size: 5, original_shape: 6, sub_format: 7 };
const OUTPUT: Numbers = Numbers { original_op: Some(4), size: 6, original_shape: 7, sub_format: 8 };

impl Header {
    /// Reads a `DumpData` message.
    pub(super) fn read(message: Message<'_>) -> Result<Self, WireError> {
        let mut header = Self::default();
        let mut fields = message.fields();
        let mut tensors = 0;
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (2, Value::Varint(time)) => header.time = time,
                (6, Value::Bytes(text)) => header.op_name = name(text)?,
                (3..=5 | 8, Value::Bytes(message)) => {
                    tensors += 1;
                    if tensors > MAX_CANN_TENSORS {
                        return Err(message.error(format!("more than {MAX_CANN_TENSORS} tensors")));
                    }
                    match number {
                        3 => header.outputs.push(tensor(message, &OUTPUT)?),
                        4 => header.inputs.push(tensor(message, &INPUT)?),
                        5 => header.buffers.push(size_of_buffer(message)?),
                        _ => header.spaces.push(size_of_buffer(message)?),
                    }
                }
                _ => {}
            }
        }
        Ok(header)
    }
}

fn tensor(message: Message<'_>, numbers: &Numbers) -> Result<Described, WireError> {
    let mut found = Described::default();
    let mut fields = message.fields();
    while let Some((number, value)) = fields.next()? {
        match value {
            Value::Varint(value) if number == 1 => found.data_type = value,
            Value::Varint(value) if number == 2 => found.format = value,
            Value::Varint(value) if number == numbers.size => found.size = value,
            Value::Varint(value) if number == numbers.sub_format => found.groups = value,
            Value::Bytes(message) if number == 3 => dims(message, &mut found.shape)?,
            Value::Bytes(message) if number == numbers.original_shape => {
                dims(message, &mut found.original_shape)?;
            }
            Value::Bytes(message) if Some(number) == numbers.original_op => {
                found.original_format = original_format(message)?;
            }
            _ => {}
        }
    }
    Ok(found)
}

/// Reads the sizes of a `Shape` message, packed or unpacked.
fn dims(message: Message<'_>, dims: &mut Vec<u64>) -> Result<(), WireError> {
    let mut push = |size: u64| {
        if dims.len() == MAX_DIMS {
            return Err(message.error(format!("a shape of more than {MAX_DIMS} dimensions")));
        }
        dims.push(size);
        Ok(())
    };
    let mut fields = message.fields();
    while let Some((number, value)) = fields.next()? {
        match (number, value) {
            (1, Value::Varint(size)) => push(size)?,
            (1, Value::Bytes(packed)) => packed.packed(&mut push)?,
            _ => {}
        }
    }
    Ok(())
}

fn original_format(message: Message<'_>) -> Result<Option<u64>, WireError> {
    let mut fields = message.fields();
    let mut found = None;
    while let Some((number, value)) = fields.next()? {
        if let (4, Value::Varint(format)) = (number, value) {
            found = Some(format);
        }
    }
    Ok(found)
}

fn size_of_buffer(message: Message<'_>) -> Result<u64, WireError> {
    let mut fields = message.fields();
    let mut size = 0;
    while let Some((number, value)) = fields.next()? {
        if let (3, Value::Varint(found)) = (number, value) {
            size = found;
        }
    }
    Ok(size)
}

fn name(text: Message<'_>) -> Result<Box<str>, WireError> {
    if text.bytes.len() > MAX_NAME_BYTES {
        return Err(text.error(format!("a name of more than {MAX_NAME_BYTES} bytes")));
    }
    Ok(String::from_utf8_lossy(text.bytes).into())
}
