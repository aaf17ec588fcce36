//! Lets the program control the recording: it marks where steps begin and end, and its end. Also decides if anything is
//! recorded now.
//!
//! Control and what it switches (`plan`, `launch`, `graph`, `dump`, `writer`) call one another, because events go both ways:
//! a launch ends a step, and the end of a step closes what launches were recorded in.
//!
//! The functions are C, so that any program can call them by name, as the Python package does:
//! `dlsym(RTLD_DEFAULT, "probe_agent_begin_step")`.

use std::ffi::c_char;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{handles, links, notes, plan, switches, watch};

#[cfg(feature = "record")]
use crate::{dump, graph, launch, settings::Settings, writer};

/// Version of the functions below; programs that know a different one do not call them.
const VERSION: u32 = 1;

/// State of this process's recording.
#[derive(Debug)]
struct State {
    /// The current step.
    step: u64,
    /// True while a step is under way: begun and not ended.
    in_step: bool,
    /// True once nothing is recorded any more in this process.
    over: bool,
    /// True if the program marks where steps begin and end.
    told: bool,
    /// Launches that will end a step and are planned but not made yet: the queue of `torch_npu` is this many steps
    /// ahead.
    ahead: u64,
    process: i32,
}

static STATE: Mutex<State> =
    Mutex::new(State { step: 0, in_step: false, over: true, told: false, ahead: 0, process: 0 });

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Updates the switches to match the state.
fn settle(state: &State) {
    let over = state.over || switches::is_given_up();
    let wanted = state.in_step && !over && wants(state.step);
    let recording = wanted && !dumps();
    let goes_on = goes_on(state);
    // Programs that keep their handles are followed while steps are still to come. So is everything if the launch
    // that ends a step is not seen being planned.
    let ahead = goes_on && !dumps() && (!plan::is_torch_npu() || switches::ends_unplanned());
    // An operator planned now is launched after everything in the queue, which may be several steps later; and one
    // step more, if other threads plan beside the one that ends it.
    let counts = goes_on && switches::counts_launches();
    let borders = counts
        && !dumps()
        && (switches::ends_unplanned() || wants_any(state.step + 1, state.step + 1 + state.ahead));
    // Graphs are recorded as they are captured: their replays are not planned again.
    let captures = goes_on && !dumps() && captures();
    let following = recording || ahead || borders || captures || watch::is_set();
    if following || counts {
        notes::guarded("links", links::look);
    }
    handles::follow(following);
    if !following {
        plan::forget_all();
    } else if !recording && !borders && !captures {
        plan::forget_single();
    }
    switches::set(recording, recording || borders || captures, following || counts);
    #[cfg(feature = "record")]
    if dumps() {
        dump::want(wanted.then_some(state.step));
    }
}

/// Returns true if steps that may be recorded are still to come.
fn goes_on(state: &State) -> bool {
    let over = state.over || switches::is_given_up();
    !over && last().is_none_or(|last| state.step <= last)
}

/// Returns true if this process records anything, now or in a later step.
#[cfg(feature = "record")]
pub(crate) fn has_steps_to_come() -> bool {
    let state = state();
    // SAFETY: no preconditions.
    state.process == unsafe { libc::getpid() } && goes_on(&state)
}

/// Returns true if launches are recorded, now or in a later step.
#[cfg(feature = "record")]
pub(crate) fn will_record() -> bool {
    !dumps() && has_steps_to_come()
}

/// Updates the switches after a change elsewhere: a capture has begun or ended, or the program was found to run on
/// `torch_npu`.
pub(crate) fn resettle() {
    settle(&state());
}

/// Returns true if CANN's own dumps are recorded instead of launches.
#[cfg(feature = "record")]
fn dumps() -> bool {
    Settings::dumps()
}

/// Returns true if a graph is being captured.
#[cfg(feature = "record")]
fn captures() -> bool {
    graph::is_any_captured()
}

#[cfg(not(feature = "record"))]
const fn captures() -> bool {
    false
}

#[cfg(not(feature = "record"))]
const fn dumps() -> bool {
    false
}

#[cfg(feature = "record")]
fn wants(step: u64) -> bool {
    Settings::get().is_some_and(|settings| settings.steps.contains(step))
}

/// Returns true if any step from `first` to `last` is to be recorded.
#[cfg(feature = "record")]
fn wants_any(first: u64, last: u64) -> bool {
    Settings::get().is_some_and(|settings| settings.steps.meets(first, last))
}

#[cfg(feature = "record")]
fn last() -> Option<u64> {
    Settings::get().and_then(|settings| settings.steps.last())
}

#[cfg(not(feature = "record"))]
const fn wants(_: u64) -> bool {
    false
}

#[cfg(not(feature = "record"))]
const fn wants_any(_: u64, _: u64) -> bool {
    false
}

#[cfg(not(feature = "record"))]
const fn last() -> Option<u64> {
    None
}

/// Runs when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

extern "C" fn loaded() {
    crate::symbols::find_real();
    // SAFETY: the functions do not unwind and are never unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    #[cfg(feature = "record")]
    if Settings::get().is_some() {
        let mut state = state();
        (state.over, state.in_step) = (false, true);
        // SAFETY: no preconditions.
        state.process = unsafe { libc::getpid() };
        settle(&state);
    }
}

/// Runs in a forked process: its parent records, unless it has not begun.
extern "C" fn forked() {
    // A lock held by another thread stays locked here forever.
    let Ok(mut state) = STATE.try_lock() else {
        switches::set(false, switches::is_planning(), false);
        return;
    };
    #[cfg(feature = "record")]
    if !writer::has_begun() && !dump::has_begun() {
        // SAFETY: no preconditions.
        state.process = unsafe { libc::getpid() };
        // The queue belongs to the parent.
        state.ahead = 0;
        return;
    }
    state.over = true;
    switches::set(false, false, false);
}

/// Notes that a launch that will end a step was planned: operators planned by this thread from now on belong to a
/// later step.
pub(crate) fn step_end_planned() {
    let mut state = state();
    // In a graph it ends a step at every replay.
    if state.over || state.told || captures() {
        return;
    }
    state.ahead += 1;
    settle(&state);
}

/// Notes that a launch that was to end the current step was made, or has failed.
#[cfg(feature = "record")]
pub(crate) fn step_end_launched(succeeded: bool) {
    let mut state = state();
    state.ahead = state.ahead.saturating_sub(1);
    if succeeded {
        end_counted(&mut state);
    }
}

/// Ends a step, since a graph has run that contains launches that end one.
#[cfg(feature = "record")]
pub(crate) fn step_end_replayed() {
    end_counted(&mut state());
}

/// Ends the current step and begins the next.
#[cfg(feature = "record")]
fn end_counted(state: &mut State) {
    if state.over || state.told {
        return;
    }
    end_step(state);
    state.step += 1;
    state.in_step = true;
    settle(state);
}

/// Returns the number of the current step.
#[cfg(feature = "record")]
pub(crate) fn step() -> u64 {
    state().step
}

fn end_step(state: &mut State) {
    if state.in_step {
        state.in_step = false;
        #[cfg(feature = "record")]
        if switches::is_recording() {
            launch::step_ended(state.step);
        }
    }
}

/// Ends the recording for good.
fn close(state: &mut State) {
    if state.over {
        return;
    }
    end_step(state);
    state.over = true;
    settle(state);
    #[cfg(feature = "record")]
    if dumps() {
        dump::close();
    } else {
        writer::close();
    }
}

/// Called when the process ends, before CANN shuts down.
#[cfg(feature = "record")]
pub(crate) extern "C" fn process_ends() {
    let mut state = state();
    // SAFETY: no preconditions.
    if state.process == unsafe { libc::getpid() } {
        close(&mut state);
    }
}

/// Returns the version of these functions.
#[unsafe(no_mangle)]
extern "C" fn probe_agent_version() -> u32 {
    VERSION
}

/// Lets the program mark from now on where steps begin and end; until it does, nothing is recorded.
#[unsafe(no_mangle)]
extern "C" fn probe_agent_hold() {
    let mut state = state();
    if !state.told {
        (state.told, state.in_step) = (true, false);
        settle(&state);
    }
}

/// Begins a step. Everything given to streams before should have reached them.
#[unsafe(no_mangle)]
extern "C" fn probe_agent_begin_step(step: u64) {
    let mut state = state();
    end_step(&mut state);
    (state.told, state.step, state.in_step) = (true, step, true);
    settle(&state);
}

/// Ends the step.
#[unsafe(no_mangle)]
extern "C" fn probe_agent_end_step() {
    let mut state = state();
    end_step(&mut state);
    settle(&state);
}

/// Returns true if a step of this number would be recorded.
#[unsafe(no_mangle)]
extern "C" fn probe_agent_wants_step(step: u64) -> bool {
    !state().over && wants(step)
}

/// Writes the remaining records, and ends the recording.
#[unsafe(no_mangle)]
extern "C" fn probe_agent_close() {
    close(&mut state());
}

/// Reports every launch to `watcher`, or to nobody if it is null.
#[unsafe(no_mangle)]
extern "C" fn probe_agent_watch(watcher: Option<watch::Watcher>) {
    watch::set(watcher);
    settle(&state());
}

/// Writes the findings and counts as JSON to `target`, which has `room` bytes. Returns the number of bytes needed,
/// including the final zero.
///
/// # Safety
/// `room` bytes may be written to `target`.
#[unsafe(no_mangle)]
unsafe extern "C" fn probe_agent_report(target: *mut c_char, room: usize) -> usize {
    let text = report();
    let bytes = text.as_bytes();
    if bytes.len() < room && !target.is_null() {
        // SAFETY: there is room for the text and its zero, as the caller vouches.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), target.cast(), bytes.len());
            target.cast::<u8>().add(bytes.len()).write(0);
        }
    }
    bytes.len() + 1
}

fn report() -> String {
    let operators = crate::stubs::operators();
    let with_roles = operators.iter().filter(|function| function.roles.is_some()).count();
    let counts: Vec<String> =
        notes::all().iter().map(|(count, tally)| format!("\"{}\": {}", count.key(), tally.count)).collect();
    format!(
        "{{\"version\": {VERSION}, \"cann\": {}, \"torch_npu\": {}, \"operators_found\": {}, \"operators_with_roles\": {}, \
         \"roles\": {}, \"counts\": {{{}}}{}}}",
        handles::can_be_made(),
        plan::is_torch_npu(),
        operators.len(),
        with_roles,
        crate::roles::known(),
        counts.join(", "),
        recorded(),
    )
}

#[cfg(feature = "record")]
fn recorded() -> String {
    writer::report()
}

#[cfg(not(feature = "record"))]
const fn recorded() -> &'static str {
    ""
}
