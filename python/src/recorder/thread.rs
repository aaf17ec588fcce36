//! What a thread is in: module calls of the program's, and the recorder itself.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::{agent, interrupt};

thread_local! {
    /// Module calls that this thread is in, outermost first.
    static SCOPES: RefCell<Vec<Arc<str>>> = const { RefCell::new(Vec::new()) };
    /// True while this thread is inside the recorder: what runs then (a finaliser, say) is not recorded.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as busy until dropped, and counts the time.
pub(super) struct Busy<'a> {
    spent: &'a AtomicU64,
    since: Instant,
}

impl<'a> Busy<'a> {
    /// None where the thread is busy already. The nanoseconds are added to `spent`.
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

/// This thread is in the call `name` from now on.
pub(super) fn enter(name: &str) {
    SCOPES.with_borrow_mut(|scopes| scopes.push(name.into()));
    agent::enter(None, Some(name));
}

/// The call that was entered last has ended.
pub(super) fn leave() {
    if SCOPES.with_borrow_mut(Vec::pop).is_some() {
        agent::leave();
    }
}

/// The innermost module call of this thread.
pub(super) fn scope() -> Option<Arc<str>> {
    SCOPES.with_borrow(|scopes| scopes.last().cloned())
}
