//! Puts the tensors of a call into the slots of its record.

use probe::capture::{SlotRecord, SlotValue, TensorFacts};
use probe::dump::SlotSide;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::{DataName, How, Meter, short};
use crate::flatten::{TensorSink, class_name};
use crate::interrupt;
use crate::tape::Tape;
use crate::tensor::TensorKind;
use crate::token::{Pending, Request};

/// Most nested wrappers that are followed.
const MAX_UNWRAP: usize = 4;

/// Puts the tensors of one op into its slots.
#[derive(Debug)]
pub(crate) struct Collector<'a, 'py> {
    pub(crate) meter: &'a Meter,
    pub(crate) tape: &'a Tape,
    /// Name of the op, used to name data.
    pub(crate) op: &'a str,
    pub(crate) pending: &'a mut Vec<Pending>,
    /// Requests to the device, sent once all tensors have been met.
    pub(crate) request: Request<'py>,
    /// Addresses of tensors whose last write torch has not counted yet.
    pub(crate) rewritten: &'a [usize],
    /// True if the tensor at hand is one of these; a part of it that is recorded in its place has another address.
    pub(crate) written: bool,
    /// True if data is written as well.
    pub(crate) with_data: bool,
}

impl<'py> Collector<'_, 'py> {
    fn part(
        &mut self,
        tensor: &Bound<'py, PyAny>,
        path: &str,
        side: SlotSide,
        slots: &mut Vec<SlotRecord>,
        depth: usize,
        kind: TensorKind,
    ) -> PyResult<()> {
        if kind == TensorKind::Plain
            && let Ok(Some(facts)) = self.meter.torch.facts(tensor)
        {
            let how = How {
                name: DataName { op: self.op, path },
                tape: self.with_data.then_some(self.tape),
                rewritten: self.written || self.rewritten.contains(&tensor.as_ptr().addr()),
            };
            let (record, token) = self.meter.plain(tensor, facts, how, &mut self.request);
            if let Some(token) = token {
                self.pending.push(Pending { slot: slots.len(), token });
            }
            slots.push(SlotRecord { path: path.to_owned(), side, value: SlotValue::Tensor(record) });
            return Ok(());
        }
        if depth >= MAX_UNWRAP {
            slots.push(unsupported(path, side, class_name(tensor)));
            return Ok(());
        }
        // Not plain strided memory: Python describes its components.
        let description =
            interrupt::asked(tensor.py(), || self.meter.parts.bind(tensor.py()).call1((tensor,)))?;
        let description = description.cast_into::<PyDict>().map_err(PyErr::from)?;
        let get = |key: &str| description.get_item(key).ok().flatten();
        let note = get("note").and_then(|note| note.extract::<String>().ok());
        let placement = get("placement").and_then(|text| text.extract::<String>().ok());
        if let Some(parts) = get("parts") {
            for item in parts.cast::<PyDict>().map_err(PyErr::from)?.iter() {
                let (suffix, part): (String, Bound<'py, PyAny>) = (item.0.extract()?, item.1);
                let path = if suffix.is_empty() { path.to_owned() } else { format!("{path}.{suffix}") };
                let first = slots.len();
                let kind = self.meter.torch.kind(&part);
                self.part(&part, &path, side, slots, depth + 1, kind)?;
                for slot in &mut slots[first..] {
                    if let SlotValue::Tensor(record) = &mut slot.value {
                        record.note = record.note.take().or_else(|| note.clone());
                        record.placement = record.placement.take().or_else(|| placement.clone());
                    }
                }
            }
            return Ok(());
        }
        let shape: Vec<u64> = get("shape").map(|shape| shape.extract()).transpose()?.unwrap_or_default();
        let text = |key| get(key).and_then(|text| text.extract::<String>().ok()).unwrap_or_default();
        slots.push(SlotRecord {
            path: path.to_owned(),
            side,
            value: SlotValue::Tensor(TensorFacts {
                dtype: text("dtype").into(),
                shape,
                device: text("device").into(),
                placement,
                note,
                ..TensorFacts::default()
            }),
        });
        Ok(())
    }
}

impl<'py> TensorSink<'py> for Collector<'_, 'py> {
    fn tensor(
        &mut self,
        tensor: &Bound<'py, PyAny>,
        kind: TensorKind,
        path: &str,
        side: SlotSide,
        slots: &mut Vec<SlotRecord>,
    ) {
        let before = slots.len();
        self.written = self.rewritten.contains(&tensor.as_ptr().addr());
        let outcome = self
            .meter
            .narrowed(tensor, kind)
            .and_then(|narrowed| self.part(narrowed.as_ref().unwrap_or(tensor), path, side, slots, 0, kind));
        if let Err(error) = outcome {
            slots.truncate(before);
            self.pending.retain(|pending| pending.slot < before);
            slots.push(unsupported(path, side, format!("{}: {}", class_name(tensor), short(&error))));
        }
    }
}

fn unsupported(path: &str, side: SlotSide, reason: String) -> SlotRecord {
    SlotRecord { path: path.to_owned(), side, value: SlotValue::Unsupported(reason) }
}
