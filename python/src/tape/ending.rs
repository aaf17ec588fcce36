//! The end of a step: its last records are written, by a thread if they have waited for a device.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use probe::capture::{CaptureError, DumpWriter, OpRecord};
use probe::measure::background;
use pyo3::prelude::*;

use super::{Opening, Reel, Tape, locked};

/// How a step ends.
#[derive(Debug)]
pub(crate) enum End {
    Finished,
    /// The program ended inside it, in this op, if known.
    Cut {
        op: Option<String>,
        error: String,
    },
}

impl End {
    fn write(&self, writer: &mut DumpWriter) -> Result<(), CaptureError> {
        match self {
            Self::Finished => writer.finish_step(),
            Self::Cut { op, error } => writer.cut_step(op.as_deref(), error),
        }
    }
}

impl Tape {
    /// Ends the step.
    pub(crate) fn end_step(&self, py: Python<'_>, end: &End) {
        let was_opened = locked(&self.opening).is_none();
        let mut reel = self.complete(py);
        if was_opened {
            self.spool.steps.fetch_add(1, Ordering::Relaxed);
            self.finish(&mut reel, end);
        } else {
            *locked(&self.opening) = None;
            *locked(&self.nonfinite) = None;
        }
    }

    /// Ends the step while the program goes on: `records` makes its last records, on a thread that does not use Python.
    pub(crate) fn end_step_later(
        self: &Arc<Self>,
        py: Python<'_>,
        records: impl FnOnce() -> Vec<OpRecord> + Send + 'static,
        end: End,
    ) {
        // The step before this.
        py.detach(|| self.wait());
        let opening = locked(&self.opening).take();
        if opening.is_none() {
            self.spool.steps.fetch_add(1, Ordering::Relaxed);
        }
        let tape = Arc::clone(self);
        let mut work = Some(move || tape.write_end(records, opening, &end));
        let mut ending = locked(&self.ending);
        // Not moved into the thread before there is one.
        let (send, receive) = std::sync::mpsc::sync_channel(1);
        let spawned = background::spawn("probe-end", move || {
            if let Ok(work) = receive.recv() {
                run(work);
            }
        });
        if let Ok(thread) = spawned {
            _ = send.send(work.take());
            *ending = Some(thread);
        } else {
            drop(ending);
            py.detach(|| run(work));
        }
    }

    fn write_end(&self, records: impl FnOnce() -> Vec<OpRecord>, opening: Option<Opening>, end: &End) {
        let mut reel = locked(&self.spool.reel);
        let outcome = catch_unwind(AssertUnwindSafe(|| self.write_all(&mut reel, records, opening, end)));
        if outcome.is_err() {
            reel.abandon("a panic in the thread that writes a step");
        }
    }

    fn write_all(
        &self,
        reel: &mut Reel,
        records: impl FnOnce() -> Vec<OpRecord>,
        opening: Option<Opening>,
        end: &End,
    ) {
        if let Some(opening) = opening {
            self.begin(reel, opening);
        }
        self.spool.move_to(reel);
        let records = records();
        for record in &records {
            self.note(record);
        }
        reel.run(|writer| writer.push_all(&records));
        self.finish(reel, end);
    }

    /// Ends the step in the writer. A step without ops leaves nothing behind, also where data was written: the arguments of calls that were
    /// withdrawn, as that of `item`.
    fn finish(&self, reel: &mut Reel, end: &End) {
        let ops = locked(&self.tally).ops;
        let is_finished = matches!(end, End::Finished);
        if let Some((step, _)) = reel.begun.pop_if(|(_, before)| is_finished && before.ops == ops) {
            reel.run(|writer| writer.forget_step(step));
        } else {
            reel.run(|writer| end.write(writer));
        }
    }
}

fn run(work: Option<impl FnOnce()>) {
    if let Some(work) = work {
        work();
    }
}
