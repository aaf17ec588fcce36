//! Guards the decoding of bytes by libraries that panic on some damaged files.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// True while this thread is inside [`guarded`].
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `decode`; `None` if it panics, of which nothing is printed. What it worked on must not be used again then.
pub fn guarded<T>(decode: impl FnOnce() -> T) -> Option<T> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let others = take_hook();
        set_hook(Box::new(move |panic| {
            if !GUARDED.get() {
                others(panic);
            }
        }));
    });
    let outer = GUARDED.replace(true);
    let decoded = catch_unwind(AssertUnwindSafe(decode)).ok();
    GUARDED.set(outer);
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_nothing_and_the_next_one_is_no_longer_guarded() {
        assert_eq!(guarded(|| 7), Some(7));
        assert_eq!(guarded(|| guarded(|| panic!("inside")).unwrap_or(3)), Some(3));
        assert_eq!(guarded::<()>(|| panic!("slice must not be empty")), None);
        assert!(!GUARDED.get());
    }
}
