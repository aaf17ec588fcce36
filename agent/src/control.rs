//! What the program may say: where steps begin and end, what it is doing, that it ends. And whether anything is recorded now.
//!
//! The functions are C, so that any program can call them by name: `dlsym(RTLD_DEFAULT, "probe_agent_begin_step")`. The Python
//! package does.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::entry::WATCHING;
use crate::{handles, links, notes, plan, watch};

#[cfg(feature = "record")]
use crate::{dump, graph, launch, settings::Settings, writer};

/// Version of the functions below; programs that know another leave them alone.
const VERSION: u32 = 1;

/// Where in a program an operator was called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scope {
    /// The function of the framework, such as `Functional.gelu.1.forward`; empty where it is not known.
    pub(crate) op: Box<str>,
    /// The call of a module, such as `Module.layers.0.mlp.MLP.forward.0`.
    pub(crate) module: Box<str>,
}

thread_local! {
    static SCOPES: RefCell<Vec<Option<Arc<Scope>>>> = const { RefCell::new(Vec::new()) };
    static MUTED: Cell<u32> = const { Cell::new(0) };
}

/// What threads are doing that other threads plan the operators of: each with its number, in the order in which they began.
static SHARED: Mutex<Vec<(libc::pthread_t, Option<Arc<Scope>>)>> = Mutex::new(Vec::new());

/// Waits until what was given to the queue so far is planned; null where operators are planned by the thread that calls them.
static DRAIN: AtomicUsize = AtomicUsize::new(0);

/// Name of the thread that the queue of `torch_npu` is worked off by.
const QUEUE_THREAD: &CStr = c"acl_thread";

/// Whether a step is being recorded.
static RECORDING: AtomicBool = AtomicBool::new(false);
/// Whether what is planned now may be launched in a step that is recorded.
static PLANNING: AtomicBool = AtomicBool::new(false);

/// Where the recording of this process stands.
#[derive(Debug)]
struct State {
    /// The step that runs.
    step: u64,
    /// Whether a step is under way: begun and not ended.
    in_step: bool,
    /// Whether nothing is recorded any more, in this process.
    over: bool,
    /// Whether the program says where steps begin and end.
    told: bool,
    /// Launches that will end a step, and are planned and not made yet: so many steps the queue of `torch_npu` is ahead.
    ahead: u64,
    process: i32,
}

static STATE: Mutex<State> =
    Mutex::new(State { step: 0, in_step: false, over: true, told: false, ahead: 0, process: 0 });

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a step is being recorded.
pub(crate) fn is_recording() -> bool {
    RECORDING.load(Ordering::Acquire)
}

/// Whether what is planned now may be launched in a step that is recorded.
pub(crate) fn is_planning() -> bool {
    PLANNING.load(Ordering::Acquire)
}

/// Whether calls of this thread are looked at.
pub(crate) fn is_on_in_this_thread() -> bool {
    MUTED.get() == 0
}

/// What this thread is doing, or the one whose operators it plans.
pub(crate) fn scope() -> Option<Arc<Scope>> {
    let own = SCOPES.with_borrow(|scopes| scopes.last().cloned().flatten());
    if own.is_some() || DRAIN.load(Ordering::Acquire) == 0 || !is_queue_thread() {
        return own;
    }
    let shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let (thread, last) = shared.last()?;
    // Of two threads that are at work, either may have called it.
    shared.iter().all(|(other, _)| other == thread).then(|| last.clone()).flatten()
}

/// Whether this thread works off the queue of `torch_npu`.
fn is_queue_thread() -> bool {
    thread_local!(static KNOWN: Cell<Option<bool>> = const { Cell::new(None) });
    KNOWN.get().unwrap_or_else(|| {
        let mut name = [0_u8; 16];
        // SAFETY: it writes at most so many bytes, the last of which is a zero.
        unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
        let is = CStr::from_bytes_until_nul(&name) == Ok(QUEUE_THREAD);
        KNOWN.set(Some(is));
        is
    })
}

/// Changes what is shared, once everything that was called before is planned.
fn share(change: impl FnOnce(&mut Vec<(libc::pthread_t, Option<Arc<Scope>>)>, libc::pthread_t)) {
    let drain = DRAIN.load(Ordering::Acquire);
    if drain == 0 {
        return;
    }
    // SAFETY: what `probe_agent_share_scopes` was given, which stays.
    unsafe { std::mem::transmute::<usize, extern "C" fn()>(drain)() };
    // SAFETY: no condition.
    let thread = unsafe { libc::pthread_self() };
    change(&mut SHARED.lock().unwrap_or_else(PoisonError::into_inner), thread);
}

/// Brings switches in line with the state.
fn settle(state: &State) {
    let over = state.over || GIVEN_UP.load(Ordering::Acquire);
    let wanted = state.in_step && !over && wants(state.step);
    let recording = wanted && !dumps();
    let goes_on = goes_on(state);
    // Programs that keep their handles are followed while steps are still to come. So is everything where nobody sees the launch that ends
    // a step being planned.
    let ahead = goes_on && !dumps() && (!plan::is_torch_npu() || ends_unplanned());
    // What is planned now is launched after everything that the queue holds, which may be several steps later; and one step more, where other
    // threads plan beside the one that ends it.
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

/// Whether steps are still to come that may be recorded.
fn goes_on(state: &State) -> bool {
    let over = state.over || GIVEN_UP.load(Ordering::Acquire);
    !over && last().is_none_or(|last| state.step <= last)
}

/// Whether anything is recorded by this process, now or in a step that is still to come.
#[cfg(feature = "record")]
pub(crate) fn has_steps_to_come() -> bool {
    let state = state();
    // SAFETY: no condition.
    state.process == unsafe { libc::getpid() } && goes_on(&state)
}

/// Whether launches are.
#[cfg(feature = "record")]
pub(crate) fn will_record() -> bool {
    !dumps() && has_steps_to_come()
}

/// Brings switches in line with what has changed elsewhere: a capture has begun or ended, or the program is seen to run on `torch_npu`.
pub(crate) fn resettle() {
    settle(&state());
}

/// Whether CANN's own dumps are taken in place of launches.
#[cfg(feature = "record")]
fn dumps() -> bool {
    Settings::dumps()
}

/// Whether launches end steps.
#[cfg(feature = "record")]
pub(crate) fn counts_launches() -> bool {
    Settings::get().is_some_and(Settings::counts_launches)
}

/// Whether steps end with an operator of the older kind, which is not planned before it is launched.
#[cfg(feature = "record")]
fn ends_unplanned() -> bool {
    Settings::get()
        .is_some_and(|settings| settings.step_on.as_deref().is_some_and(|name| name.starts_with("aclop")))
}

/// Whether a graph is being captured.
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

/// Whether any step from `first` to `last` is to be recorded.
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

/// When the library is loaded.
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
        // SAFETY: no condition.
        state.process = unsafe { libc::getpid() };
        settle(&state);
    }
}

/// In a process that was forked off: its parent records, unless that has not begun.
extern "C" fn forked() {
    // A lock that another thread held stays locked here for good.
    let Ok(mut state) = STATE.try_lock() else {
        RECORDING.store(false, Ordering::Release);
        WATCHING.store(0, Ordering::Release);
        return;
    };
    #[cfg(feature = "record")]
    if !writer::has_begun() && !dump::has_begun() {
        // SAFETY: no condition.
        state.process = unsafe { libc::getpid() };
        // The queue is the parent's.
        state.ahead = 0;
        return;
    }
    state.over = true;
    RECORDING.store(false, Ordering::Release);
    PLANNING.store(false, Ordering::Release);
    WATCHING.store(0, Ordering::Release);
}

/// Whether the launch of an operator ends a step; `kind` is `aclnn` or `aclop`.
#[cfg(feature = "record")]
pub(crate) fn ends_step(kind: &str, operator: &str) -> bool {
    Settings::get().is_some_and(|settings| settings.ends_step(kind, operator)) && is_on_in_this_thread()
}

#[cfg(not(feature = "record"))]
pub(crate) const fn ends_step(_: &str, _: &str) -> bool {
    false
}

/// A launch that will end a step has been planned: what this thread plans from now on belongs to a later step.
pub(crate) fn step_end_planned() {
    let mut state = state();
    // In a graph it ends steps as often as that runs.
    if state.over || state.told || captures() {
        return;
    }
    state.ahead += 1;
    settle(&state);
}

/// A launch that was to end the step that runs has been made, or has failed.
#[cfg(feature = "record")]
pub(crate) fn step_end_launched(succeeded: bool) {
    let mut state = state();
    state.ahead = state.ahead.saturating_sub(1);
    if succeeded {
        end_counted(&mut state);
    }
}

/// A graph has run that holds launches that end a step: it ends one.
#[cfg(feature = "record")]
pub(crate) fn step_end_replayed() {
    end_counted(&mut state());
}

/// Ends the step that runs, and begins the next.
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

/// The number of the step that runs.
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

/// Called when the process ends, before CANN takes itself down.
#[cfg(feature = "record")]
pub(crate) extern "C" fn process_ends() {
    let mut state = state();
    // SAFETY: no condition.
    if state.process == unsafe { libc::getpid() } {
        close(&mut state);
    }
}

/// Whether recording was given up.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// Nothing is recorded any more, and why was said. Takes no lock: who calls it may be waited for by one who holds it.
#[cfg(feature = "record")]
pub(crate) fn give_up() {
    GIVEN_UP.store(true, Ordering::Release);
    RECORDING.store(false, Ordering::Release);
    PLANNING.store(false, Ordering::Release);
    WATCHING.store(0, Ordering::Release);
}

/// Version of these functions.
#[unsafe(no_mangle)]
extern "C" fn probe_agent_version() -> u32 {
    VERSION
}

/// The program says from now on where steps begin and end; until it does, nothing is recorded.
#[unsafe(no_mangle)]
extern "C" fn probe_agent_hold() {
    let mut state = state();
    if !state.told {
        (state.told, state.in_step) = (true, false);
        settle(&state);
    }
}

/// A step begins. Whatever was given to streams before should have reached them.
#[unsafe(no_mangle)]
extern "C" fn probe_agent_begin_step(step: u64) {
    let mut state = state();
    end_step(&mut state);
    (state.told, state.step, state.in_step) = (true, step, true);
    settle(&state);
}

/// The step ends.
#[unsafe(no_mangle)]
extern "C" fn probe_agent_end_step() {
    let mut state = state();
    end_step(&mut state);
    settle(&state);
}

/// Whether a step of this number would be recorded.
#[unsafe(no_mangle)]
extern "C" fn probe_agent_wants_step(step: u64) -> bool {
    !state().over && wants(step)
}

/// Writes what is left, and ends the recording.
#[unsafe(no_mangle)]
extern "C" fn probe_agent_close() {
    close(&mut state());
}

/// This thread begins something that its operators are attributed to: `op` and `module` are texts or null.
///
/// # Safety
/// Both are null or texts that end with a zero.
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

/// It has ended.
#[unsafe(no_mangle)]
extern "C" fn probe_agent_leave() {
    share(|shared, thread| {
        if let Some(place) = shared.iter().rposition(|(other, _)| *other == thread) {
            shared.remove(place);
        }
    });
    SCOPES.with_borrow_mut(Vec::pop);
}

/// Operators are planned by another thread from now on (`TASK_QUEUE_ENABLE=2` of `torch_npu`): they are attributed to what the threads that call them are doing.
/// `drain` waits until everything that was called so far is planned; null ends it.
#[unsafe(no_mangle)]
extern "C" fn probe_agent_share_scopes(drain: Option<extern "C" fn()>) {
    DRAIN.store(drain.map_or(0, |drain| drain as usize), Ordering::Release);
    SHARED.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// Operators of this thread are not recorded until [`probe_agent_unmute`] is called as often.
#[unsafe(no_mangle)]
extern "C" fn probe_agent_mute() {
    MUTED.set(MUTED.get() + 1);
}

/// See [`probe_agent_mute`].
#[unsafe(no_mangle)]
extern "C" fn probe_agent_unmute() {
    MUTED.set(MUTED.get().saturating_sub(1));
}

/// Tells `watcher` of every launch, or nobody where it is null.
#[unsafe(no_mangle)]
extern "C" fn probe_agent_watch(watcher: Option<watch::Watcher>) {
    watch::set(watcher);
    settle(&state());
}

/// What was found and counted, as JSON, into `target` of so many bytes. Returns how many it takes, with the zero at its end.
///
/// # Safety
/// So many bytes may be written to `target`.
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
