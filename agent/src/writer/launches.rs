//! Steps, and the launches in them, in the order in which they were made.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use probe_capture::{CaptureError, DumpWriter, OpRecord};
use probe_dump::{CALLED_IN, DType};

use super::slots::{self, Measured};
use super::{CLOSED, IDLE, Message, Recorder, WRITTEN, manifest};
use crate::device::{Context, Event};
use crate::graph::{self, Replay};
use crate::launch::Record;
use crate::notes::{self, Count};
use crate::plan::Basis;
use crate::ring::Next;
use crate::settings::{self, Settings};

/// Longest time that a launch may be under way once everything else is over.
const ABANDONED: Duration = Duration::from_secs(5);
/// The same while others come after it.
const LONGEST_LAUNCH: Duration = Duration::from_secs(120);

/// The dump being written.
pub(super) struct Writer<'a> {
    pub(super) recorder: &'a Recorder,
    pub(super) settings: &'a Settings,
    pub(super) dump: DumpWriter,
    step: Option<u64>,
    /// Number of calls of each operator in the step.
    calls: HashMap<(&'static str, Cow<'static, str>), u32>,
    pub(super) known: HashMap<(u128, DType, Box<[i64]>), Measured>,
    /// Number of launches of each step.
    launches: Vec<(u64, u64)>,
}

impl Writer<'_> {
    pub(super) fn run(recorder: &Recorder, settings: &Settings) -> Result<(), CaptureError> {
        let dump = DumpWriter::create_over(
            settings.existing(),
            &settings.output,
            &manifest::of(settings),
            settings::rank(),
        )?;
        let mut writer = Writer {
            recorder,
            settings,
            dump,
            step: None,
            calls: HashMap::new(),
            known: HashMap::new(),
            launches: Vec::new(),
        };
        match writer.take_all() {
            Ok(()) => writer.close(),
            Err(error) => {
                // The first reason counts.
                _ = writer.dump.abandon(&error.to_string());
                Err(error)
            }
        }
    }

    fn take_all(&mut self) -> Result<(), CaptureError> {
        let ring = &self.recorder.ring;
        let mut waited = Duration::ZERO;
        let mut gathered = false;
        loop {
            let next = ring.next(IDLE);
            if matches!(next, Next::End) {
                return Ok(());
            }
            let Next::Item(message) = next else {
                if gathered && self.step.is_some() {
                    self.dump.flush()?;
                    gathered = false;
                }
                waited += IDLE;
                // A launch left by an exception never finishes. A launch may take long: CANN compiles operators.
                let patience = if CLOSED.load(Ordering::Acquire) { ABANDONED } else { LONGEST_LAUNCH };
                if waited >= patience && ring.holds_back() {
                    waited = Duration::ZERO;
                    notes::count(Count::Dropped, "a launch that did not return");
                    ring.skip();
                }
                continue;
            };
            waited = Duration::ZERO;
            let taken = match message {
                Message::Launch(record) => self.launch(*record),
                Message::Replay(replay) => self.replay(*replay),
                Message::StepEnd(step) => self.finish_step(step),
            };
            ring.done();
            taken?;
            gathered = true;
        }
    }

    fn finish_step(&mut self, step: u64) -> Result<(), CaptureError> {
        if self.step == Some(step) {
            self.step = None;
            self.calls.clear();
            self.known.clear();
            self.dump.finish_step()?;
        }
        Ok(())
    }

    /// Writes a launch after waiting for its copies.
    fn launch(&mut self, mut record: Record) -> Result<(), CaptureError> {
        let event = record.event.take();
        if let Some(why) = self.wait(record.context, event) {
            record.lose(&why);
        }
        self.write(record, |_| {})
    }

    /// Writes the launches of a graph that has run. Its memory is free for the next replay when this returns.
    fn replay(&mut self, mut replay: Replay) -> Result<(), CaptureError> {
        let event = replay.event.take();
        let failure = self.wait(replay.context, event);
        let check = |record: &mut Record| {
            if let Some(why) = failure.clone().or_else(|| replay.graph.is_overwritten()) {
                record.lose(&why);
            }
        };
        for record in &replay.graph.launches {
            self.write(record.again(replay.step), check)?;
        }
        Ok(())
    }

    /// Waits until a stream has made its copies; returns the reason if there are none.
    fn wait(&self, context: Context, event: Option<Event>) -> Option<String> {
        let event = event?;
        // A graph may be captured elsewhere, and waiting is not allowed during a capture.
        let status = graph::outside_captures(
            || CLOSED.load(Ordering::Acquire),
            || {
                self.recorder.runtime.enter(context);
                self.recorder.runtime.wait(event)
            },
        );
        let why = (status != 0).then(|| format!("the stream failed ({status})"))?;
        notes::count(Count::CopyFailed, &why);
        Some(why)
    }

    /// Writes a launch whose copies have arrived. `check` discards untrustworthy copies, and is called again after
    /// they were measured.
    fn write(&mut self, mut record: Record, check: impl Fn(&mut Record)) -> Result<(), CaptureError> {
        check(&mut record);
        if self.step != Some(record.step) {
            if let Some(step) = self.step {
                self.finish_step(step)?;
            }
            self.dump.begin_step(record.step)?;
            self.step = Some(record.step);
            self.launches.push((record.step, 0));
        }
        let api = if record.plan.basis == Basis::Signature { "Aclop" } else { "Aclnn" };
        let number = self.calls.entry((api, record.plan.operator.clone())).or_insert(0);
        let name = format!("{api}.{}.{number}.forward", record.plan.operator);
        *number += 1;
        slots::check(&mut record);
        let mut slots = self.slots(&name, &record)?;
        let lost = |record: &Record| record.tensors.iter().filter(|copied| copied.without.is_some()).count();
        let before = lost(&record);
        check(&mut record);
        if lost(&record) != before {
            slots = self.slots(&name, &record)?;
        }
        let scope = record.plan.scope.as_deref();
        let mut notes = Vec::new();
        if let Some(op) = scope.map(|scope| &*scope.op).filter(|op| !op.is_empty()) {
            notes.push(format!("{CALLED_IN}{op}"));
        }
        match record.plan.basis {
            Basis::Difference => notes.push("inputs and outputs inferred from what changed".to_owned()),
            Basis::Unscanned => notes.push("arguments unknown".to_owned()),
            Basis::Table | Basis::Signature => {}
        }
        notes.extend(record.note);
        self.dump.push(&OpRecord {
            name,
            scope: scope.map(|scope| String::from(&*scope.module)).filter(|module| !module.is_empty()),
            note: (!notes.is_empty()).then(|| notes.join("; ")),
            slots,
            ..OpRecord::default()
        })?;
        if let Some((_, count)) = self.launches.last_mut() {
            *count += 1;
        }
        WRITTEN.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
    /// Ends the dump. A step under way ends with the program.
    fn close(mut self) -> Result<(), CaptureError> {
        if let Some(step) = self.step {
            self.finish_step(step)?;
        }
        let counts = notes::all();
        let lines: Vec<String> = counts
            .iter()
            .map(|(what, tally)| format!("{} {} (first: {})", tally.count, what.line(), tally.first))
            .collect();
        self.dump.close(&lines)?;
        if !self.settings.quiet {
            let steps: Vec<String> = self
                .launches
                .iter()
                .map(|(step, count)| format!("{count} launches in step {step}"))
                .collect();
            let steps = if steps.is_empty() { "nothing".to_owned() } else { steps.join(", ") };
            notes::say(&format!("{steps} recorded in {}", self.settings.output.display()));
            for line in lines {
                notes::say(&line);
            }
        }
        Ok(())
    }
}
