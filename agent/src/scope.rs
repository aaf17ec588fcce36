//! Places in a program that its operators are attributed to, and threads whose operators are not recorded.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

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
