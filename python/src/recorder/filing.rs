//! Hands complete records to the writer, in the order of the ops, though numbers of some arrive late from a device.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use probe::capture::{OpRecord, SlotRecord, SlotValue};
use pyo3::prelude::*;

use super::{Recorder, lock};
use crate::call::Call;
use crate::device;
use crate::measure::{Pending, Token, short};
use crate::tape::Due;

/// Records with numbers on a device that are gathered before the numbers are fetched.
const DEVICE_BATCH: usize = 256;

/// A batch this old is fetched when another record arrives: what a killed program loses.
const DEVICE_AGE: Duration = Duration::from_millis(200);

/// Records of ops in the order in which they are filed, while numbers of some are still on a device.
#[derive(Debug, Default)]
pub(super) struct Queue {
    records: Vec<(OpRecord, Vec<Pending>)>,
    /// When the first of them came.
    since: Option<Instant>,
}

impl Recorder {
    /// Hands a complete record to the writer, or keeps it until its numbers are there.
    pub(super) fn file(&self, py: Python<'_>, call: &mut Call) {
        let (record, pending) = call.take();
        let full = {
            let mut queue = lock(py, &self.queue);
            if pending.is_empty() && queue.records.is_empty() {
                drop(queue);
                self.write(py, record);
                return;
            }
            let since = *queue.since.get_or_insert_with(Instant::now);
            queue.records.push((record, pending));
            queue.records.len() >= DEVICE_BATCH || since.elapsed() >= DEVICE_AGE
        };
        if full {
            self.settle(py);
        }
    }

    /// Fetches the numbers that are still on a device and writes the records that wait for them.
    pub(super) fn settle(&self, py: Python<'_>) {
        let Queue { records, .. } = std::mem::take(&mut *lock(py, &self.queue));
        if records.is_empty() {
            return;
        }
        let tokens: Vec<&Token> =
            records.iter().flat_map(|(_, pending)| pending.iter().map(|pending| &pending.token)).collect();
        let fetched = device::fetch(py, &self.meter.device, &tokens);
        let mut fetched = match fetched {
            Ok(fetched) => fetched.into_iter(),
            Err(error) => {
                self.faults.fetch_add(1, Ordering::Relaxed);
                lock(py, &self.first_fault).get_or_insert(short(&error));
                Vec::new().into_iter()
            }
        };
        for (mut record, pending) in records {
            for pending in pending {
                let fetched = fetched.next().flatten();
                let Some(SlotRecord { value: SlotValue::Tensor(facts), .. }) =
                    record.slots.get_mut(pending.slot)
                else {
                    continue;
                };
                match fetched {
                    Some(fetched) => {
                        (facts.observation, facts.bytes) = (Some(fetched.observation), fetched.bytes);
                    }
                    None => {
                        facts.note.get_or_insert_with(|| "not fetched from the device".into());
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
