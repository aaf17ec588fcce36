//! Puts the tensors of a call into the slots of its record.

use probe::capture::{SlotRecord, SlotValue, TensorFacts};
use probe::dump::SlotSide;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::{DataName, How, Meter, short};
use crate::flatten::{TensorSink, class_name};
use crate::interrupt;
use crate::tape::Tape;
use crate::tensor::{Facts, TensorKind};
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

/// Place of a tensor among the values of an op.
#[derive(Debug, Clone, Copy)]
struct Place<'a> {
    path: &'a str,
    side: SlotSide,
    /// Number of wrappers around it.
    depth: usize,
}

impl Place<'_> {
    fn slot(self, value: SlotValue) -> SlotRecord {
        SlotRecord { path: self.path.to_owned(), side: self.side, value }
    }
}

impl<'py> Collector<'_, 'py> {
    /// Pushes the slots of a tensor: one, or one for each of its parts.
    fn part(
        &mut self,
        tensor: &Bound<'py, PyAny>,
        kind: TensorKind,
        place: Place<'_>,
        slots: &mut Vec<SlotRecord>,
    ) -> PyResult<()> {
        if kind == TensorKind::Plain
            && let Ok(Some(facts)) = self.meter.torch.facts(tensor)
        {
            self.plain(tensor, facts, place, slots);
            return Ok(());
        }
        if place.depth >= MAX_UNWRAP {
            slots.push(place.slot(SlotValue::Unsupported(class_name(tensor))));
            return Ok(());
        }
        // Not plain strided memory: Python describes its components.
        let description =
            interrupt::asked(tensor.py(), || self.meter.parts.bind(tensor.py()).call1((tensor,)))?;
        let description = description.cast_into::<PyDict>().map_err(PyErr::from)?;
        let whole = whole(&description)?;
        let Some(parts) = description.get_item("parts").ok().flatten() else {
            slots.push(place.slot(SlotValue::Tensor(whole)));
            return Ok(());
        };
        for item in parts.cast::<PyDict>().map_err(PyErr::from)?.iter() {
            let (suffix, part): (String, Bound<'py, PyAny>) = (item.0.extract()?, item.1);
            let path =
                if suffix.is_empty() { place.path.to_owned() } else { format!("{}.{suffix}", place.path) };
            let first = slots.len();
            let kind = self.meter.torch.kind(&part);
            self.part(&part, kind, Place { path: &path, depth: place.depth + 1, ..place }, slots)?;
            for slot in &mut slots[first..] {
                if let SlotValue::Tensor(record) = &mut slot.value {
                    record.note = record.note.take().or_else(|| whole.note.clone());
                    record.placement = record.placement.take().or_else(|| whole.placement.clone());
                }
            }
        }
        Ok(())
    }

    /// Pushes the slot of a plainly strided tensor.
    fn plain(
        &mut self,
        tensor: &Bound<'py, PyAny>,
        facts: Facts,
        place: Place<'_>,
        slots: &mut Vec<SlotRecord>,
    ) {
        let how = How {
            name: DataName { op: self.op, path: place.path },
            tape: self.with_data.then_some(self.tape),
            rewritten: self.written || self.rewritten.contains(&tensor.as_ptr().addr()),
        };
        let (record, token) = self.meter.plain(tensor, facts, how, &mut self.request);
        if let Some(token) = token {
            self.pending.push(Pending { slot: slots.len(), token });
        }
        slots.push(place.slot(SlotValue::Tensor(record)));
    }
}

/// Returns what Python's description says of a tensor as a whole.
fn whole(description: &Bound<'_, PyDict>) -> PyResult<TensorFacts> {
    let get = |key: &str| description.get_item(key).ok().flatten();
    let text = |key| get(key).and_then(|text| text.extract::<String>().ok());
    Ok(TensorFacts {
        dtype: text("dtype").unwrap_or_default().into(),
        shape: get("shape").map(|shape| shape.extract()).transpose()?.unwrap_or_default(),
        device: text("device").unwrap_or_default().into(),
        placement: text("placement"),
        note: text("note"),
        ..TensorFacts::default()
    })
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
        let place = Place { path, side, depth: 0 };
        let outcome = self
            .meter
            .narrowed(tensor, kind)
            .and_then(|narrowed| self.part(narrowed.as_ref().unwrap_or(tensor), kind, place, slots));
        if let Err(error) = outcome {
            slots.truncate(before);
            self.pending.retain(|pending| pending.slot < before);
            let reason = format!("{}: {}", class_name(tensor), short(&error));
            slots.push(place.slot(SlotValue::Unsupported(reason)));
        }
    }
}
