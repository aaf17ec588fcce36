//! Call site of an op in the user's program: a walk over the interpreter's frames, converted to text once per place.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::interrupt;
use crate::private::Frames;

/// Result of a walk over the frames.
#[derive(Debug)]
pub(crate) struct Place {
    /// Frames of the user's program, innermost first, as `File PATH, line N, in NAME, \n SOURCE`.
    pub(crate) frames: Arc<[String]>,
    /// True if the innermost user frame is at an operator (`x + y`) and not at a call (`x.add(y)`).
    pub(crate) operator: bool,
    /// True if no user frame lies between here and the start of the backward pass.
    pub(crate) engine_only: bool,
    /// Code objects of the walk: while they live, their addresses are not reused.
    _code: Vec<Py<PyAny>>,
}

/// The place of one call, and the frame of the checkpointed region it is in.
#[derive(Debug)]
pub(crate) struct LocatedCall {
    pub(crate) place: Arc<Place>,
    /// Number of the place, from 0, for the whole run.
    pub(crate) id: usize,
    /// Innermost frame of activation checkpointing: entered forward, or recomputed in the backward pass.
    pub(crate) checkpoint: Option<(CheckpointFrame, Py<PyAny>)>,
    /// True if the call is activation checkpointing's own, not the program's.
    pub(crate) own: bool,
}

/// Kind of activation checkpointing function that a frame belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckpointFrame {
    /// The region runs for the first time.
    Forward,
    /// The region runs again because the backward pass needs discarded values.
    Recompute,
    /// Checkpointing's own work.
    Own,
    /// Starts a backward pass, whose ops are outside any region that contains this frame.
    Engine,
}

/// An identity hash: keys are hashes already.
#[derive(Debug, Default)]
pub(crate) struct Plain(u64);

impl Hasher for Plain {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u128(&mut self, value: u128) {
        #[expect(clippy::cast_possible_truncation, reason = "half of a hash is a hash")]
        let low = value as u64;
        self.0 = low;
    }
}

/// Reads stacks, and caches the text of each.
#[derive(Debug)]
pub(crate) struct Stacks {
    frames: Frames,
    /// `probe.recorder.frames.describe(frames)`: describes a walk not seen before.
    describe: Py<PyAny>,
    /// Addresses of code objects and the kinds of their frames: few enough for a linear search.
    checkpoint_code: Vec<(usize, CheckpointFrame)>,
    places: HashMap<u128, (usize, Arc<Place>), BuildHasherDefault<Plain>>,
    by_id: Vec<Arc<Place>>,
}

/// Deeper stacks are truncated: recursion that deep repeats itself.
const MAX_FRAMES: usize = 400;

impl Stacks {
    /// `describe` gets a list of frames, innermost first, and returns `(texts, operator, engine_only)`;
    /// `checkpoint_code` lists the code objects of activation checkpointing and whether they recompute a region;
    /// `border_code` those that end a region, and whether they start a backward pass.
    pub(crate) fn new(
        frames: Frames,
        describe: Py<PyAny>,
        checkpoint_code: Vec<(Py<PyAny>, bool)>,
        border_code: Vec<(Py<PyAny>, bool)>,
    ) -> Self {
        let region = |again| if again { CheckpointFrame::Recompute } else { CheckpointFrame::Forward };
        let border = |engine| if engine { CheckpointFrame::Engine } else { CheckpointFrame::Own };
        let regions = checkpoint_code.into_iter().map(|(code, again)| (code, region(again)));
        let borders = border_code.into_iter().map(|(code, engine)| (code, border(engine)));
        Self {
            frames,
            describe,
            checkpoint_code: regions
                .chain(borders)
                .map(|(code, kind)| {
                    // The functions of an imported module live as long as the process.
                    let address = code.as_ptr() as usize;
                    std::mem::forget(code);
                    (address, kind)
                })
                .collect(),
            places: HashMap::default(),
            by_id: Vec::new(),
        }
    }

    /// Returns the place of the current call.
    pub(crate) fn here(&mut self, py: Python<'_>) -> PyResult<LocatedCall> {
        let mut next = Frames::current(py);
        let mut hash = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835_u128;
        let mut checkpoint = None;
        let (mut own, mut beyond) = (false, false);
        for _ in 0..MAX_FRAMES {
            let Some(frame) = next else { break };
            let address = Frames::code(&frame)?.as_ptr() as usize;
            #[expect(clippy::cast_sign_loss, reason = "bits of a hash")]
            let instruction = self.frames.last_instruction(&frame)? as u64;
            let word = (address as u128) << 64 | u128::from(instruction);
            hash = (hash ^ word).wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).rotate_left(53);
            if let Some(&(_, kind)) = self.checkpoint_code.iter().find(|(code, _)| *code == address)
                && !beyond
            {
                match kind {
                    CheckpointFrame::Engine => beyond = true,
                    CheckpointFrame::Own => own |= checkpoint.is_none(),
                    // Everything inside a recomputed region counts as recomputed, including inner regions.
                    CheckpointFrame::Forward | CheckpointFrame::Recompute => {
                        if checkpoint.is_none() || kind == CheckpointFrame::Recompute {
                            checkpoint = Some((kind, frame.clone().unbind()));
                        }
                    }
                }
            }
            next = self.frames.back(&frame)?;
        }
        if let Some((id, place)) = self.places.get(&hash) {
            return Ok(LocatedCall { place: Arc::clone(place), id: *id, checkpoint, own });
        }
        let place = Arc::new(self.read(py)?);
        let id = self.by_id.len();
        self.by_id.push(Arc::clone(&place));
        self.places.insert(hash, (id, Arc::clone(&place)));
        Ok(LocatedCall { place, id, checkpoint, own })
    }

    /// Returns the frames of a place that was found before.
    pub(crate) fn frames(&self, id: usize) -> Option<Arc<[String]>> {
        self.by_id.get(id).map(|place| Arc::clone(&place.frames))
    }

    fn read(&self, py: Python<'_>) -> PyResult<Place> {
        let mut next = Frames::current(py);
        let (mut frames, mut code) = (Vec::new(), Vec::new());
        for _ in 0..MAX_FRAMES {
            let Some(frame) = next else { break };
            code.push(Frames::code(&frame)?.unbind());
            next = self.frames.back(&frame)?;
            frames.push(frame);
        }
        let (texts, operator, engine_only): (Vec<Bound<'_, PyString>>, bool, bool) =
            interrupt::asked(py, || self.describe.bind(py).call1((&frames,)))?.extract()?;
        let texts: Result<Vec<String>, _> = texts.iter().map(|text| text.extract::<String>()).collect();
        Ok(Place { frames: texts?.into(), operator, engine_only, _code: code })
    }
}
