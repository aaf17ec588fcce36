//! Interface to the recorder of the runtime below Python, if it is loaded into the process: it is told which op runs,
//! and muted while this recorder measures, whose operators are not the program's.

use std::ffi::{CString, c_char};
use std::sync::OnceLock;

use crate::private::Library;

/// Functions of `libprobe_agent.so`.
#[derive(Debug, Clone, Copy)]
struct Agent {
    enter: unsafe extern "C" fn(*const c_char, *const c_char),
    leave: unsafe extern "C" fn(),
    mute: unsafe extern "C" fn(),
    unmute: unsafe extern "C" fn(),
}

fn agent() -> Option<&'static Agent> {
    static AGENT: OnceLock<Option<Agent>> = OnceLock::new();
    AGENT
        .get_or_init(|| {
            let global = Library::global();
            #[expect(unsafe_code, reason = "functions of our own library, found by name")]
            #[expect(clippy::multiple_unsafe_ops_per_block, reason = "one argument holds for all four")]
            // SAFETY: any library that has functions of these names defines them with these signatures.
            unsafe {
                Some(Agent {
                    enter: global.function(c"probe_agent_enter")?,
                    leave: global.function(c"probe_agent_leave")?,
                    mute: global.function(c"probe_agent_mute")?,
                    unmute: global.function(c"probe_agent_unmute")?,
                })
            }
        })
        .as_ref()
}

/// Tells the agent that this thread runs `op`, in the call `module`, until [`leave`].
pub(crate) fn enter(op: Option<&str>, module: Option<&str>) {
    let Some(agent) = agent() else { return };
    let text = |text: Option<&str>| CString::new(text.unwrap_or_default()).unwrap_or_default();
    let (op, module) = (text(op), text(module));
    #[expect(unsafe_code, reason = "a function of our own library")]
    // SAFETY: both are zero-terminated texts.
    unsafe {
        (agent.enter)(op.as_ptr(), module.as_ptr());
    }
}

/// Ends the module entered last.
pub(crate) fn leave() {
    if let Some(agent) = agent() {
        #[expect(unsafe_code, reason = "a function of our own library")]
        // SAFETY: no condition.
        unsafe {
            (agent.leave)();
        }
    }
}

/// Excludes what this thread launches from the recording, until [`unmute`].
pub(crate) fn mute() {
    if let Some(agent) = agent() {
        #[expect(unsafe_code, reason = "a function of our own library")]
        // SAFETY: no condition.
        unsafe {
            (agent.mute)();
        }
    }
}

/// See [`mute`].
pub(crate) fn unmute() {
    if let Some(agent) = agent() {
        #[expect(unsafe_code, reason = "a function of our own library")]
        // SAFETY: no condition.
        unsafe {
            (agent.unmute)();
        }
    }
}
