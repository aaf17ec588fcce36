//! The `probe` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    give_memory_back();
    probe::cli::run(std::env::args_os()).into()
}

/// Makes the allocator return large blocks to the system when they are freed.
///
/// glibc takes the first large block that a program frees as a sign that more will follow, and from then on allocates blocks of up to 32 MiB from its
/// heap. Data that grows while a dump is read then leaves gaps there that are never filled: a fifth of the memory of a comparison. Setting the limit,
/// here to its initial value, turns that off.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn give_memory_back() {
    const LARGE: libc::c_int = 128 << 10;
    // SAFETY: sets a number; no other thread is running yet.
    #[expect(unsafe_code, reason = "a setting of the allocator that the standard library does not reach")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
const fn give_memory_back() {}
