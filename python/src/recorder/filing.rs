//! Hands complete records to the writer in op order, although some measurements arrive late from a device.

use std::sync::Arc;

use probe::capture::{OpRecord, SlotRecord, SlotValue, TensorFacts};
use pyo3::prelude::*;

use super::thread::Busy;
use super::{Recorder, lock};
use crate::call::Call;
use crate::device::{self, Arrived};
use crate::measure::{DataName, short};
use crate::tape::{Due, End};
use crate::token::{Pending, Token, Written};

/// Most tensors on devices whose results wait there until fetched: about 1 KiB each on CUDA, 4 KiB elsewhere.
/// Fetching makes the program wait for the device, so it happens at the end of a step, or earlier if there are this
/// many. Waiting results are lost if the program is killed.
const WAITING: usize = 16_384;

/// Most bytes of tensors that were copied whole and wait in the same way.
const WAITING_BYTES: usize = 256 << 20;

/// Op records in filing order, while some measurements are still on a device.
#[derive(Debug, Default)]
pub(super) struct Queue {
    records: Vec<(OpRecord, Vec<Pending>)>,
    /// Number of their waiting slots.
    waiting: usize,
    /// Bytes of waiting copies.
    held: usize,
}

impl Recorder {
    /// Hands a complete record to the writer, or keeps it until its measurements arrive.
    pub(super) fn file(&self, py: Python<'_>, call: &mut Call) {
        let (record, pending) = call.take();
        let full = {
            let mut queue = lock(py, &self.queue);
            if pending.is_empty() && queue.records.is_empty() {
                drop(queue);
                self.write(py, record);
                return;
            }
            // Tensors already measured for another slot take no more room.
            for pending in pending.iter().filter(|pending| Arc::strong_count(&pending.token) <= 2) {
                queue.waiting += 1;
                queue.held += pending.token.held();
            }
            queue.records.push((record, pending));
            queue.waiting >= WAITING || queue.held >= WAITING_BYTES
        };
        if full {
            self.settle(py);
        }
    }

    /// Fetches the measurements still on a device and writes the records that wait for them.
    pub(super) fn settle(&self, py: Python<'_>) {
        let (records, arrived) = self.fetched(py);
        arrived.keep();
        for (mut record, pending) in records {
            fill(&mut record, pending, |token, name, facts| token.written(&self.tape, py, name, facts));
            self.write(py, record);
        }
    }

    /// Ends the step. Records that wait for a device are written while the program goes on, unless their data is
    /// written too: that is in Python's memory.
    pub(super) fn end_step(&self, py: Python<'_>, end: End) {
        let Some(_busy) = Busy::enter(&self.spent) else { return };
        let with_data =
            |(_, pending): &(_, Vec<Pending>)| pending.iter().any(|pending| pending.token.with_data);
        let later = {
            let queue = lock(py, &self.queue);
            !queue.records.is_empty() && !queue.records.iter().any(with_data)
        };
        if later {
            let (records, arrived) = self.fetched(py);
            let complete = move || {
                arrived.keep();
                let filled = |(mut record, pending)| {
                    fill(&mut record, pending, |_, _, _| Written::default());
                    record
                };
                records.into_iter().map(filled).collect()
            };
            self.tape.end_step_later(py, complete, end);
        } else {
            self.settle(py);
            self.tape.end_step(py, &end);
        }
        self.meter.restart(py);
        *lock(py, &self.last_region) = None;
    }

    /// Takes the records that wait, and fetches what they wait for.
    fn fetched(&self, py: Python<'_>) -> (Vec<(OpRecord, Vec<Pending>)>, Arrived) {
        let Queue { records, .. } = std::mem::take(&mut *lock(py, &self.queue));
        let tokens = records.iter().flat_map(|(_, pending)| pending).map(|pending| &pending.token);
        let arrived = device::fetch(py, &self.meter, tokens).unwrap_or_else(|error| {
            self.count_fault(py, || short(&error));
            Arrived::default()
        });
        (records, arrived)
    }

    fn write(&self, py: Python<'_>, record: OpRecord) {
        match self.tape.push(py, record) {
            Due::Soon if !self.meter.crew.is_empty() => self.meter.crew.ask(),
            Due::Later | Due::Soon => {}
            Due::Now => self.tape.write(py),
        }
    }
}

/// Puts the measurements that have arrived into a record; `write` writes the data of a tensor where that is wanted.
fn fill(
    record: &mut OpRecord,
    pending: Vec<Pending>,
    mut write: impl FnMut(&Token, DataName<'_>, &TensorFacts) -> Written,
) {
    for Pending { slot, token } in pending {
        let Some(SlotRecord { path, value: SlotValue::Tensor(facts), .. }) = record.slots.get_mut(slot)
        else {
            continue;
        };
        match token.fetched() {
            Ok(fetched) => {
                facts.observation = Some(fetched.observation.clone());
                if token.with_data {
                    let (data, note) = write(&token, DataName { op: &record.name, path }, facts);
                    facts.data = data;
                    facts.note = facts.note.take().or(note);
                }
                if facts.data.is_none() {
                    facts.bytes.clone_from(&fetched.bytes);
                }
            }
            Err(reason) => {
                facts.note.get_or_insert_with(|| reason.to_owned());
            }
        }
    }
}
