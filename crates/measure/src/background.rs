//! Threads that work next to a program whose time is precious.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread that shares processors fairly but does not preempt a running thread when it wakes up.
/// Waking an ordinary thread can cost the waker some milliseconds, a hundredth of a training step.
///
/// # Errors
/// If the system has no room for another thread.
pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.into()).spawn(move || {
        step_back();
        work()
    })
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "a call of the system that the standard library does not have")]
fn step_back() {
    // SAFETY: the struct holds integers (on some systems more than the priority), all of which should be 0.
    let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the parameters live during the call, and 0 is the calling thread. A refusal changes nothing.
    _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
}

#[cfg(not(target_os = "linux"))]
fn step_back() {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    #[expect(unsafe_code, reason = "asks the system")]
    fn threads_do_not_push_in() {
        // SAFETY: 0 is the calling thread.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let own = policy();
        assert_eq!(spawn("probe-test", policy).unwrap().join().unwrap(), libc::SCHED_BATCH);
        assert_eq!(policy(), own);
    }
}
