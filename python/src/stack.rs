//! Where in the user's program an op is called: a walk over the interpreter's frames, read as text once per place.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::interrupt;
use crate::private::Frames;

/// What a walk over the frames found.
#[derive(Debug)]
pub(crate) struct Place {
    /// Frames of the user's program, innermost first, as `File PATH, line N, in NAME, \n SOURCE`.
    pub(crate) frames: Arc<[String]>,
    /// True when the innermost user frame stands at an operator (`x + y`) and not at a call (`x.add(y)`).
    pub(crate) operator: bool,
    /// True when nothing of the user's lies between here and the start of the backward pass.
    pub(crate) engine_only: bool,
    /// Code objects of the walk: as long as they live, their addresses stand for nothing else.
    _code: Vec<Py<PyAny>>,
}

/// The place of one call, and the frame of the checkpointed region it is in.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) place: Arc<Place>,
    /// Number of the place, from 0, for the whole run.
    pub(crate) id: usize,
    /// Innermost frame of activation checkpointing: entered forward, or run again in the backward pass.
    pub(crate) checkpoint: Option<(CheckpointFrame, Py<PyAny>)>,
    /// True when the call is activation checkpointing's own, not the program's.
    pub(crate) own: bool,
}

/// Which function of activation checkpointing a frame belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckpointFrame {
    /// The region runs for the first time.
    Forward,
    /// The region runs again because the backward pass needs what was thrown away.
    Recompute,
    /// What checkpointing does for itself.
    Own,
    /// Starts a backward pass: what runs in it is in no region that this frame is in.
    Engine,
}

/// A hash that is its own value: keys are hashes already.
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

/// Reads stacks, and remembers the text of each.
#[derive(Debug)]
pub(crate) struct Stacks {
    frames: Frames,
    /// `probe.capture._frames.describe(frames)`: what is to be known of a walk that was not seen before.
    describe: Py<PyAny>,
    /// Addresses of code objects and the kinds of their frames: few, so that they are simply gone through.
    checkpoint_code: Vec<(usize, CheckpointFrame)>,
    places: HashMap<u128, (usize, Arc<Place>), BuildHasherDefault<Plain>>,
    by_id: Vec<Arc<Place>>,
}

/// Deeper stacks are cut: recursion that deep repeats itself.
const MAX_FRAMES: usize = 400;

impl Stacks {
    /// `describe` gets a list of frames, innermost first, and returns `(texts, operator, engine_only)`;
    /// `checkpoint_code` names the code objects of activation checkpointing and whether they run a region again;
    /// `border_code` those in which no region goes on, and whether they start a backward pass.
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

    /// The place of the current call.
    pub(crate) fn here(&mut self, py: Python<'_>) -> PyResult<Found> {
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
                    // A region that is run again counts as that, also for the regions inside it.
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
            return Ok(Found { place: Arc::clone(place), id: *id, checkpoint, own });
        }
        let place = Arc::new(self.read(py)?);
        let id = self.by_id.len();
        self.by_id.push(Arc::clone(&place));
        self.places.insert(hash, (id, Arc::clone(&place)));
        Ok(Found { place, id, checkpoint, own })
    }

    /// The frames of a place that was found before.
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
