//! Entry of intercepted calls: `dlsym` hands out stubs and wrappers, and the assembly code behind the stubs.

use std::ffi::{CStr, c_char};

use crate::stubs::{is_stub, stand_in_front};
use crate::symbols::{self, Address};
use crate::{notes, wrappers};

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

/// Returns our answer to `dlsym`; null if the real one should answer.
pub(crate) extern "C" fn instead(handle: Address, name: *const c_char) -> Address {
    let find = |handle, name: &CStr| symbols::lookup(handle, name);
    notes::guarded("dlsym", || replacement(handle, name, find)).unwrap_or(std::ptr::null_mut())
}

/// The same for `dlvsym`.
pub(crate) extern "C" fn instead_of_version(
    handle: Address,
    name: *const c_char,
    version: *const c_char,
) -> Address {
    // SAFETY: a requested version is a zero-terminated text.
    let find = |handle, name: &CStr| unsafe { symbols::lookup_version(handle, name, version) };
    notes::guarded("dlvsym", || replacement(handle, name, find)).unwrap_or(std::ptr::null_mut())
}

fn replacement(
    handle: Address,
    name: *const c_char,
    find: impl Fn(Address, &CStr) -> Option<Address>,
) -> Address {
    let nothing = std::ptr::null_mut();
    symbols::find_real();
    if name.is_null() || handle == libc::RTLD_NEXT {
        // "The next one" depends on the caller, which only the real function can determine.
        return nothing;
    }
    // SAFETY: a looked-up name is a zero-terminated text.
    let name = unsafe { CStr::from_ptr(name) };
    let bytes = name.to_bytes();
    if ![b"acl".as_slice(), b"PTA", b"Can"].iter().any(|start| bytes.starts_with(start)) {
        return nothing;
    }
    let Ok(text) = name.to_str() else { return nothing };
    if let Some(wrapper) = wrappers::of(text) {
        return match find(handle, name) {
            // Our own function, which the program sees among the libraries that were loaded first.
            Some(real) if real == wrapper.ours => wrapper.if_there(),
            Some(real) => wrapper.in_front_of(real),
            None => nothing,
        };
    }
    if !text.starts_with("aclnn") {
        return nothing;
    }
    match find(handle, name) {
        Some(real) if is_stub(real) => real,
        Some(real) => stand_in_front(text, real),
        None => nothing,
    }
}

/// Finds functions by name like the C library's own `dlsym`, except for intercepted ones.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn dlsym() {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!("endbr64", "jmp probe_agent_dlsym");
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!("hint #34", "b probe_agent_dlsym");
}

/// Like [`dlsym`], for a given version.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn dlvsym() {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!("endbr64", "jmp probe_agent_dlvsym");
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!("hint #34", "b probe_agent_dlvsym");
}
