//! Converts the inputs and outputs of an op to the slots of its record.

use probe::dump::SlotSide;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use super::Recorder;
use crate::call::Call;
use crate::flatten::{Style, Walk};
use crate::measure::Collector;
use crate::token::Request;

impl Recorder {
    /// Adds the values met by `walk`; tensors on a device are requested once all have been met.
    pub(super) fn walk<'py>(
        &self,
        py: Python<'py>,
        call: &mut Call,
        style: Style,
        walk: impl FnOnce(&mut Walk<'_, Collector<'_, 'py>>),
    ) {
        let Call { record, pending, rewritten, stored, .. } = call;
        let mut collector = Collector {
            meter: &self.meter,
            tape: &self.tape,
            op: &record.name,
            pending,
            request: Request::default(),
            rewritten,
            written: false,
            with_data: *stored,
        };
        walk(&mut Walk { torch: &self.meter.torch, sink: &mut collector, style, slots: &mut record.slots });
        self.meter.send(py, collector.request);
    }

    pub(super) fn arguments(
        &self,
        call: &mut Call,
        args: &Bound<'_, PyTuple>,
        kwargs: &Bound<'_, PyDict>,
        join_numbers: bool,
    ) {
        self.walk(args.py(), call, Style { side: SlotSide::Input, join_numbers }, |walk| {
            let mut path = String::from("input");
            for (index, value) in args.iter().enumerate() {
                walk.at(&mut path, index, &value, 0);
            }
            path.clear();
            path.push_str("kwarg");
            for (key, value) in kwargs.iter() {
                if let Ok(key) = key.extract::<String>() {
                    walk.below(&mut path, &key, &value, 0);
                }
            }
        });
    }

    /// Adds the results: each item of a tuple gets a slot; anything else is `output.0`.
    pub(super) fn results(&self, call: &mut Call, result: &Bound<'_, PyAny>) {
        self.walk(result.py(), call, Style { side: SlotSide::Output, join_numbers: true }, |walk| {
            let mut path = String::from("output");
            if let Ok(items) = result.cast::<PyTuple>() {
                for (index, value) in items.iter().enumerate() {
                    walk.at(&mut path, index, &value, 0);
                }
            } else if let Ok(items) = result.cast::<PyList>() {
                for (index, value) in items.iter().enumerate() {
                    walk.at(&mut path, index, &value, 0);
                }
            } else if !result.is_none() {
                walk.below(&mut path, "0", result, 0);
            }
        });
    }
}
