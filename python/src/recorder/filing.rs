//! Hands complete records to the writer in op order, although some measurements arrive late from a device.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use probe::capture::{OpRecord, SlotRecord, SlotValue};
use pyo3::prelude::*;

use super::{Recorder, lock};
use crate::call::Call;
use crate::device;
use crate::measure::{DataName, short};
use crate::tape::Due;
use crate::token::Pending;

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
        let Queue { records, .. } = std::mem::take(&mut *lock(py, &self.queue));
        if records.is_empty() {
            return;
        }
        let tokens = records.iter().flat_map(|(_, pending)| pending).map(|pending| &*pending.token);
        if let Err(error) = device::fetch(py, &self.meter, tokens) {
            self.faults.fetch_add(1, Ordering::Relaxed);
            lock(py, &self.first_fault).get_or_insert(short(&error));
        }
        for (mut record, pending) in records {
            for pending in pending {
                let Some(SlotRecord { path, value: SlotValue::Tensor(facts), .. }) =
                    record.slots.get_mut(pending.slot)
                else {
                    continue;
                };
                match pending.token.fetched() {
                    Ok(fetched) => {
                        facts.observation = Some(fetched.observation.clone());
                        if pending.token.with_data {
                            let name = DataName { op: &record.name, path };
                            let (data, note) = pending.token.written(&self.tape, py, name, facts);
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
            self.write(py, record);
        }
    }

    fn write(&self, py: Python<'_>, record: OpRecord) {
        match self.tape.push(record) {
            Due::Soon if !self.meter.crew.is_empty() => self.meter.crew.ask(),
            Due::Later | Due::Soon => {}
            Due::Now => self.tape.write(py),
        }
    }
}
