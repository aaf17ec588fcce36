//! Lets the program control the recording: it marks where steps begin and end, its current scope, and its end. Also
//! decides whether anything is recorded now.
//!
//! The functions are C, so that any program can call them by name, as the Python package does:
//! `dlsym(RTLD_DEFAULT, "probe_agent_begin_step")`.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::entry::WATCHING;
use crate::{handles, links, notes, plan, watch};

#[cfg(feature = "record")]
use crate::{dump, graph, launch, settings::Settings, writer};

/// Version of the functions below; programs that know a different one do not call them.
const VERSION: u32 = 1;

/// Place in a program from which an operator was called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scope {
    /// Function of the framework, such as `Functional.gelu.1.forward`; empty if unknown.
    pub(crate) op: Box<str>,
    /// Module call, such as `Module.layers.0.mlp.MLP.forward.0`.
    pub(crate) module: Box<str>,
}

thread_local! {
    static SCOPES: RefCell<Vec<Option<Arc<Scope>>>> = const { RefCell::new(Vec::new()) };
    static MUTED: Cell<u32> = const { Cell::new(0) };
}

/// Scopes of threads whose operators are planned by other threads: each with its thread, in the order in which they
/// began.
static SHARED: Mutex<Vec<(libc::pthread_t, Option<Arc<Scope>>)>> = Mutex::new(Vec::new());

/// Waits until everything given to the queue so far is planned; null if operators are planned by the thread that
/// calls them.
static DRAIN: AtomicUsize = AtomicUsize::new(0);

/// Name of the thread that processes the queue of `torch_npu`.
const QUEUE_THREAD: &CStr = c"acl_thread";

/// True while a step is being recorded.
static RECORDING: AtomicBool = AtomicBool::new(false);
/// True if an operator planned now may be launched in a recorded step.
static PLANNING: AtomicBool = AtomicBool::new(false);

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

/// Returns true while a step is being recorded.
pub(crate) fn is_recording() -> bool {
    RECORDING.load(Ordering::Acquire)
}

/// Returns true if an operator planned now may be launched in a recorded step.
pub(crate) fn is_planning() -> bool {
    PLANNING.load(Ordering::Acquire)
}

/// Returns true if calls of this thread are observed.
pub(crate) fn is_on_in_this_thread() -> bool {
    MUTED.get() == 0
}

/// Returns the scope of this thread, or of the one whose operators it plans.
pub(crate) fn scope() -> Option<Arc<Scope>> {
    let own = SCOPES.with_borrow(|scopes| scopes.last().cloned().flatten());
    if own.is_some() || DRAIN.load(Ordering::Acquire) == 0 || !is_queue_thread() {
        return own;
    }
    let shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let (thread, last) = shared.last()?;
    // If two threads are at work, either may have called it.
    shared.iter().all(|(other, _)| other == thread).then(|| last.clone()).flatten()
}

/// Returns true if this thread processes the queue of `torch_npu`.
fn is_queue_thread() -> bool {
    thread_local!(static KNOWN: Cell<Option<bool>> = const { Cell::new(None) });
    KNOWN.get().unwrap_or_else(|| {
        let mut name = [0_u8; 16];
        // SAFETY: it writes at most this many bytes, the last of which is a zero.
        unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
        let is = CStr::from_bytes_until_nul(&name) == Ok(QUEUE_THREAD);
        KNOWN.set(Some(is));
        is
    })
}

/// Changes the shared scopes, once everything that was called before is planned.
fn share(change: impl FnOnce(&mut Vec<(libc::pthread_t, Option<Arc<Scope>>)>, libc::pthread_t)) {
    let drain = DRAIN.load(Ordering::Acquire);
    if drain == 0 {
        return;
    }
    // SAFETY: the function passed to `probe_agent_share_scopes`, which stays loaded.
    unsafe { std::mem::transmute::<usize, extern "C" fn()>(drain)() };
    // SAFETY: no preconditions.
    let thread = unsafe { libc::pthread_self() };
    change(&mut SHARED.lock().unwrap_or_else(PoisonError::into_inner), thread);
}

/// Updates the switches to match the state.
fn settle(state: &State) {
    let over = state.over || GIVEN_UP.load(Ordering::Acquire);
    let wanted = state.in_step && !over && wants(state.step);
    let recording = wanted && !dumps();
    let goes_on = goes_on(state);
    // Programs that keep their handles are followed while steps are still to come. So is everything if the launch
    // that ends a step is not seen being planned.
    let ahead = goes_on && !dumps() && (!plan::is_torch_npu() || ends_unplanned());
    // An operator planned now is launched after everything in the queue, which may be several steps later; and one
    // step more, if other threads plan beside the one that ends it.
    let counts = goes_on && counts_launches();
    let borders =
        counts && !dumps() && (ends_unplanned() || wants_any(state.step + 1, state.step + 1 + state.ahead));
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
    RECORDING.store(recording, Ordering::Release);
    PLANNING.store(recording || borders || captures, Ordering::Release);
    WATCHING.store(u8::from(following || counts), Ordering::Release);
    #[cfg(feature = "record")]
    if dumps() {
        dump::want(wanted.then_some(state.step));
    }
}

/// Returns true if steps that may be recorded are still to come.
fn goes_on(state: &State) -> bool {
    let over = state.over || GIVEN_UP.load(Ordering::Acquire);
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

/// Returns true if launches end steps.
#[cfg(feature = "record")]
pub(crate) fn counts_launches() -> bool {
    Settings::get().is_some_and(Settings::counts_launches)
}

/// Returns true if steps end with an operator of the older kind, which is not planned before it is launched.
#[cfg(feature = "record")]
fn ends_unplanned() -> bool {
    Settings::get()
        .is_some_and(|settings| settings.step_on.as_deref().is_some_and(|name| name.starts_with("aclop")))
}

/// Returns true if a graph is being captured.
#[cfg(feature = "record")]
fn captures() -> bool {
    graph::is_any_captured()
}

#[cfg(not(feature = "record"))]
const fn ends_unplanned() -> bool {
    false
}

#[cfg(not(feature = "record"))]
const fn captures() -> bool {
    false
}

#[cfg(not(feature = "record"))]
const fn dumps() -> bool {
    false
}

#[cfg(not(feature = "record"))]
pub(crate) const fn counts_launches() -> bool {
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
        RECORDING.store(false, Ordering::Release);
        WATCHING.store(0, Ordering::Release);
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
    RECORDING.store(false, Ordering::Release);
    PLANNING.store(false, Ordering::Release);
    WATCHING.store(0, Ordering::Release);
}

/// Returns true if the launch of an operator ends a step; `kind` is `aclnn` or `aclop`.
#[cfg(feature = "record")]
pub(crate) fn ends_step(kind: &str, operator: &str) -> bool {
    Settings::get().is_some_and(|settings| settings.ends_step(kind, operator)) && is_on_in_this_thread()
}

#[cfg(not(feature = "record"))]
pub(crate) const fn ends_step(_: &str, _: &str) -> bool {
    false
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
        if RECORDING.load(Ordering::Acquire) {
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

/// True if recording was given up.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// Stops recording; the reason was already reported. Takes no lock: a thread that holds one may be waiting for the
/// caller.
#[cfg(feature = "record")]
pub(crate) fn give_up() {
    GIVEN_UP.store(true, Ordering::Release);
    RECORDING.store(false, Ordering::Release);
    PLANNING.store(false, Ordering::Release);
    WATCHING.store(0, Ordering::Release);
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

/// Begins a scope on this thread that its operators are attributed to: `op` and `module` are texts or null.
///
/// # Safety
/// Both are null or zero-terminated texts.
#[unsafe(no_mangle)]
unsafe extern "C" fn probe_agent_enter(op: *const c_char, module: *const c_char) {
    let text = |text: *const c_char| {
        if text.is_null() {
            return Box::default();
        }
        // SAFETY: as the caller vouches.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into()
    };
    let scope = Some(Arc::new(Scope { op: text(op), module: text(module) }));
    share(|shared, thread| shared.push((thread, scope.clone())));
    SCOPES.with_borrow_mut(|scopes| scopes.push(scope));
}

/// Ends the scope entered last.
#[unsafe(no_mangle)]
extern "C" fn probe_agent_leave() {
    share(|shared, thread| {
        if let Some(place) = shared.iter().rposition(|(other, _)| *other == thread) {
            shared.remove(place);
        }
    });
    SCOPES.with_borrow_mut(Vec::pop);
}

/// Declares that another thread plans operators from now on (`TASK_QUEUE_ENABLE=2` of `torch_npu`): they are
/// attributed to the scopes of the threads that call them. `drain` waits until everything called so far is planned;
/// null ends this.
#[unsafe(no_mangle)]
extern "C" fn probe_agent_share_scopes(drain: Option<extern "C" fn()>) {
    DRAIN.store(drain.map_or(0, |drain| drain as usize), Ordering::Release);
    SHARED.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// Stops recording operators of this thread until [`probe_agent_unmute`] is called as often.
#[unsafe(no_mangle)]
extern "C" fn probe_agent_mute() {
    MUTED.set(MUTED.get() + 1);
}

/// See [`probe_agent_mute`].
#[unsafe(no_mangle)]
extern "C" fn probe_agent_unmute() {
    MUTED.set(MUTED.get().saturating_sub(1));
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
    let operators = crate::entry::operators();
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
