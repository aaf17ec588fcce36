//! State of a thread: the program's module calls it is in, and whether it is inside the recorder.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::{agent, interrupt};

thread_local! {
    /// Module calls that this thread is in, outermost first.
    static SCOPES: RefCell<Vec<Arc<str>>> = const { RefCell::new(Vec::new()) };
    /// True while this thread is inside the recorder: code that runs then (a finaliser, for example) is not recorded.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as busy until dropped, and measures the time.
pub(super) struct Busy<'a> {
    spent: &'a AtomicU64,
    since: Instant,
}

impl<'a> Busy<'a> {
    /// Returns None if the thread is already busy. The nanoseconds are added to `spent`.
    pub(super) fn enter(spent: &'a AtomicU64) -> Option<Self> {
        (!BUSY.replace(true)).then(|| {
            agent::mute();
            Self { spent, since: Instant::now() }
        })
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        BUSY.set(false);
        agent::unmute();
        interrupt::hand_over();
        let spent = u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.spent.fetch_add(spent, Ordering::Relaxed);
    }
}

/// Enters the call `name` on this thread.
pub(super) fn enter(name: &str) {
    SCOPES.with_borrow_mut(|scopes| scopes.push(name.into()));
    agent::enter(None, Some(name));
}

/// Leaves the call that was entered last.
pub(super) fn leave() {
    if SCOPES.with_borrow_mut(Vec::pop).is_some() {
        agent::leave();
    }
}

/// The innermost module call of this thread.
pub(super) fn scope() -> Option<Arc<str>> {
    SCOPES.with_borrow(|scopes| scopes.last().cloned())
}
