//! The CPU's floating-point mode while kernels run.
//!
//! A host process (such as a training script) may have enabled flush-to-zero or another rounding mode, and
//! threads inherit that. Results would then differ between hosts, and subnormals would count as zeros.

#![expect(unsafe_code, reason = "the mode can only be read and written by assembly")]

/// While it lives, the calling thread computes in the mode that Rust assumes: rounding to nearest, subnormals
/// kept. Dropping it restores the previous mode.
#[derive(Debug)]
pub(crate) struct DefaultFloat {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    before: u32,
}

/// Default of MXCSR: all exceptions masked, everything else off.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const DEFAULT: u32 = 0x1f80;

/// The exception flags, which report events and change nothing.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const FLAGS: u32 = 0x3f;

impl DefaultFloat {
    /// Enters the default mode; costs a few nanoseconds if it is already active.
    pub(crate) fn enter() -> Self {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            let before = mode();
            if before & !FLAGS != DEFAULT {
                set_mode(DEFAULT);
            }
            Self { before }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        Self {}
    }
}

impl Drop for DefaultFloat {
    fn drop(&mut self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.before & !FLAGS != DEFAULT {
            set_mode(self.before);
        }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn mode() -> u32 {
    let mut mode = 0_u32;
    // SAFETY: stores four bytes to a location of four bytes, and changes no register.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut mode, options(nostack, preserves_flags)) };
    mode
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn set_mode(mode: u32) {
    // SAFETY: loads four bytes from a location of four bytes. Both values ever passed were valid in this
    // register: the documented default, and a value read from it. Rust assumes the default, so entering it
    // breaks no assumption, and going back restores the mode of this library's caller.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const mode, options(nostack, preserves_flags)) };
}

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn flush_to_zero_is_off_inside_and_back_outside() {
        const FLUSH: u32 = 0x9fc0;
        let before = mode();
        set_mode(FLUSH);
        let inside = {
            let _control = DefaultFloat::enter();
            mode()
        };
        let after = mode();
        set_mode(before);
        assert_eq!((inside & !FLAGS, after & !FLAGS), (DEFAULT, FLUSH & !FLAGS));
    }
}
