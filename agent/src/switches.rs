//! Switches for recording, which every call reads and `control` sets.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

#[cfg(feature = "record")]
use crate::{scope, settings::Settings};

/// Nonzero if calls are observed: sends them through [`before`](crate::call::before).
pub(crate) static WATCHING: AtomicU8 = AtomicU8::new(0);

/// True while a step is being recorded.
static RECORDING: AtomicBool = AtomicBool::new(false);

/// True if an operator planned now may be launched in a recorded step.
static PLANNING: AtomicBool = AtomicBool::new(false);

/// True if recording was given up.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// Returns true while a step is being recorded.
pub(crate) fn is_recording() -> bool {
    RECORDING.load(Ordering::Acquire)
}

/// Returns true if an operator planned now may be launched in a recorded step.
pub(crate) fn is_planning() -> bool {
    PLANNING.load(Ordering::Acquire)
}

/// Stops recording; the reason was already reported. Takes no lock: a thread that holds one may be waiting for the
/// caller.
#[cfg(feature = "record")]
pub(crate) fn give_up() {
    GIVEN_UP.store(true, Ordering::Release);
    set(false, false, false);
}

/// Updates the switches; `watching` is true if calls are looked at.
pub(crate) fn set(recording: bool, planning: bool, watching: bool) {
    RECORDING.store(recording, Ordering::Release);
    PLANNING.store(planning, Ordering::Release);
    WATCHING.store(u8::from(watching), Ordering::Release);
}

/// Returns true if recording was given up.
pub(crate) fn is_given_up() -> bool {
    GIVEN_UP.load(Ordering::Acquire)
}

/// Returns true if launches end steps.
#[cfg(feature = "record")]
pub(crate) fn counts_launches() -> bool {
    Settings::get().is_some_and(Settings::counts_launches)
}

/// Returns true if steps end with an operator of the older kind, which is not planned before it is launched.
#[cfg(feature = "record")]
pub(crate) fn ends_unplanned() -> bool {
    Settings::get()
        .is_some_and(|settings| settings.step_on.as_deref().is_some_and(|name| name.starts_with("aclop")))
}

#[cfg(not(feature = "record"))]
pub(crate) const fn ends_unplanned() -> bool {
    false
}

#[cfg(not(feature = "record"))]
pub(crate) const fn counts_launches() -> bool {
    false
}

/// Returns true if the launch of an operator ends a step; `kind` is `aclnn` or `aclop`.
#[cfg(feature = "record")]
pub(crate) fn ends_step(kind: &str, operator: &str) -> bool {
    Settings::get().is_some_and(|settings| settings.ends_step(kind, operator))
        && scope::is_on_in_this_thread()
}

#[cfg(not(feature = "record"))]
pub(crate) const fn ends_step(_: &str, _: &str) -> bool {
    false
}
