//! Inputs and outputs of a launch: a slot for each, measured.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use probe_capture::{CaptureError, CaptureTask, DataLocation, SlotRecord, SlotValue, TensorFacts};
use probe_dump::{DType, Observation, SMALL_TENSOR, SlotSide, TensorRef};
use probe_measure as measure;

use super::TENSORS;
use super::arguments::{dtype, plain};
use super::launches::Writer;
use crate::handles::Tensor;
use crate::launch::{Copied, Record};
use crate::notes::{self, Count};
use crate::plan::Argument;
use crate::ring::Piece;
use crate::roles::Role;

/// Most measurements cached, so that a tensor that appears again is stored once.
const KNOWN: usize = 1 << 14;

/// Measurement of a tensor, and the location of its data.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    observation: Arc<Observation>,
    data: Option<DataLocation>,
    bytes: Option<Arc<[u8]>>,
}

impl Writer<'_> {
    /// Returns the inputs and then the outputs, each numbered in the order of the parameters.
    pub(super) fn slots(&mut self, op: &str, record: &Record) -> Result<Vec<SlotRecord>, CaptureError> {
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        let (mut next_input, mut next_output) = (0, 0);
        let mut copies = record.tensors.iter();
        for parameter in &record.plan.parameters {
            let list: &[Option<Arc<Tensor>>] = match &parameter.argument {
                Argument::Tensor(tensor) => &[Some(tensor.clone())],
                Argument::Tensors(tensors) => tensors,
                other => {
                    if parameter.role != Role::Output {
                        plain(&mut inputs, &format!("input.{next_input}"), other);
                        next_input += 1;
                    } else {
                        plain(&mut outputs, &format!("output.{next_output}"), other);
                        next_output += 1;
                    }
                    continue;
                }
            };
            let of_list = matches!(parameter.argument, Argument::Tensors(_));
            let members: Vec<Option<&Copied>> =
                list.iter().map(|tensor| if tensor.is_some() { copies.next() } else { None }).collect();
            let role = members.iter().flatten().next().map_or(parameter.role, |copied| copied.role);
            let (reads, writes) = match role {
                Role::Input => (true, false),
                Role::Output => (false, true),
                Role::Updated => (true, true),
                Role::Unknown => {
                    let changed = members.iter().flatten().any(|copied| has_changed(copied));
                    // It cannot be determined whether a changed tensor was also read.
                    (true, changed)
                }
            };
            let path = |side: &str, number: usize, at: usize| {
                if of_list { format!("{side}.{number}.{at}") } else { format!("{side}.{number}") }
            };
            if reads {
                for (at, copied) in members.iter().enumerate() {
                    let path = path("input", next_input, at);
                    let value = self.value(op, &path, *copied, |copied| copied.before, record.device)?;
                    inputs.push(SlotRecord { path, side: SlotSide::Input, value });
                }
                next_input += 1;
            }
            if writes {
                for (at, copied) in members.iter().enumerate() {
                    let path = path("output", next_output, at);
                    let value = self.value(op, &path, *copied, |copied| copied.after, record.device)?;
                    outputs.push(SlotRecord { path, side: SlotSide::Output, value });
                }
                next_output += 1;
            }
        }
        inputs.append(&mut outputs);
        Ok(inputs)
    }

    fn value(
        &mut self,
        op: &str,
        path: &str,
        copied: Option<&Copied>,
        which: impl Fn(&Copied) -> Option<Piece>,
        device: i32,
    ) -> Result<SlotValue, CaptureError> {
        let Some(copied) = copied else { return Ok(SlotValue::None) };
        let tensor = &*copied.tensor;
        let dtype = dtype(tensor.dtype);
        let mut facts = TensorFacts {
            dtype: dtype
                .map_or_else(|| format!("acl.{}", tensor.dtype).into(), |dtype| dtype.torch_name().into()),
            shape: tensor.sizes.shape().iter().map(|&size| size.cast_unsigned()).collect(),
            strides: Some(tensor.sizes.strides().to_vec()),
            device: format!("npu:{device}").into(),
            note: copied.without.clone().or_else(|| layout_note(tensor)),
            ..TensorFacts::default()
        };
        TENSORS.fetch_add(1, Ordering::Relaxed);
        let empty = tensor.sizes.shape().contains(&0);
        let Some(dtype) = dtype else {
            facts.note.get_or_insert_with(|| format!("CANN's element type {} is not measured", tensor.dtype));
            return Ok(SlotValue::Tensor(facts));
        };
        let piece = which(copied);
        if piece.is_none() && !empty {
            facts.note.get_or_insert_with(|| "was not copied".to_owned());
            return Ok(SlotValue::Tensor(facts));
        }
        let measured = self.measure(op, path, tensor, dtype, piece)?;
        match measured {
            Some(Measured { observation, data, bytes }) => {
                (facts.observation, facts.data, facts.bytes) = (Some(observation), data, bytes);
            }
            None => {
                facts.note = Some(format!(
                    "shape {:?} with strides {:?}",
                    tensor.sizes.shape(),
                    tensor.sizes.strides()
                ));
            }
        }
        Ok(SlotValue::Tensor(facts))
    }

    fn measure(
        &mut self,
        op: &str,
        path: &str,
        tensor: &Tensor,
        dtype: DType,
        piece: Option<Piece>,
    ) -> Result<Option<Measured>, CaptureError> {
        let sizes = |values: &[i64]| -> Option<Vec<usize>> {
            values.iter().map(|&value| usize::try_from(value).ok()).collect()
        };
        let (Some(shape), Some(strides)) = (sizes(tensor.sizes.shape()), sizes(tensor.sizes.strides()))
        else {
            return Ok(None);
        };
        let bytes = piece.map_or(&[][..], content);
        let Ok(view) = TensorRef::strided(bytes, dtype, &shape, &strides, 0) else { return Ok(None) };
        let stored = self.settings.content().sketch.is_some() && view.len() * dtype.size() < SMALL_TENSOR;
        let mut content = self.settings.content();
        if stored {
            content.sketch = None;
        }
        let observation = measure::observe(view, content);
        let key = observation.hash.map(|hash| (hash, dtype, Box::from(tensor.sizes.shape())));
        if let Some(known) = key.as_ref().and_then(|key| self.known.get(key)) {
            return Ok(Some(known.clone()));
        }
        let with_data = self.settings.task == CaptureTask::Tensor;
        let whole = (stored || with_data).then(|| elements(&view));
        let data = match &whole {
            Some(whole) if with_data => {
                let shape: Vec<u64> = tensor.sizes.shape().iter().map(|&size| size.cast_unsigned()).collect();
                Some(self.dump.push_tensor(&format!("{op}/{path}"), dtype.torch_name(), &shape, whole)?)
            }
            _ => None,
        };
        let bytes = whole.filter(|_| stored).map(Arc::from);
        let measured = Measured { observation: Arc::new(observation), data, bytes };
        if let Some(key) = key {
            if self.known.len() >= KNOWN {
                self.known.clear();
            }
            self.known.insert(key, measured.clone());
        }
        Ok(Some(measured))
    }
}

/// Checks that tensors listed as read in the table were not written to. If one was, the operator's parameters are
/// from then on determined by what changes.
pub(super) fn check(record: &mut Record) {
    for copied in &mut record.tensors {
        let (Some(before), Some(check)) = (copied.before, copied.check.take()) else { continue };
        if content(before) != content(check) {
            notes::count(
                Count::OtherLayout,
                &format!("aclnn{} writes to a parameter that the table lists as read", record.plan.operator),
            );
            if let Some(function) = record.plan.function {
                function.distrusted.store(true, Ordering::Relaxed);
            }
            (copied.role, copied.after) = (Role::Updated, Some(check));
        }
    }
}

/// Returns the data copied into a piece of the current record.
fn content<'a>(piece: Piece) -> &'a [u8] {
    // SAFETY: its event was waited for, and the record is returned later.
    #[expect(unsafe_code, reason = "pinned memory that the device has written to")]
    unsafe {
        piece.content()
    }
}

fn has_changed(copied: &Copied) -> bool {
    let (Some(before), Some(after)) = (copied.before, copied.after) else { return false };
    content(before) != content(after)
}

/// Returns the elements of a view, one after the other.
fn elements(view: &TensorRef<'_>) -> Vec<u8> {
    view.contiguous_bytes().map_or_else(|| view.to_bytes(), <[u8]>::to_vec)
}

/// Returns a remark on a tensor's position in memory and its format, if they differ from what its shape implies.
fn layout_note(tensor: &Tensor) -> Option<String> {
    // Formats that torch_npu uses for a tensor by number of dimensions: NCL, NCHW, NCDHW, and ND for all others.
    let usual = match tensor.sizes.shape().len() {
        3 => 47,
        4 => 0,
        5 => 30,
        _ => 2,
    };
    let mut parts = Vec::new();
    if ![usual, 2, -1].contains(&tensor.format) {
        let name = match tensor.format {
            0 => "NCHW",
            1 => "NHWC",
            27 => "NDHWC",
            30 => "NCDHW",
            47 => "NCL",
            _ => "",
        };
        parts.push(if name.is_empty() {
            format!("format {}", tensor.format)
        } else {
            format!("format {name}")
        });
    }
    if tensor.offset != 0 {
        parts.push(format!("from element {} of {:?}", tensor.offset, tensor.sizes.storage()));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}
