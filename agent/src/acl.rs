//! CANN functions with public signatures that this library intercepts by name.
//!
//! They are exported, so that programs linked to CANN find them, and returned by `dlsym` if CANN has them. Types are
//! declared here as far as calls need them; handles stay opaque. Each module lists the functions that it intercepts.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::notes::{self, Count};
use crate::symbols::{self, Address};

/// Result of a CANN function; 0 is success.
pub(crate) type Status = i32;
/// Result of the exported functions if CANN lacks the function behind them: the runtime's code for "not supported".
pub(crate) const UNSUPPORTED: Status = 200_001;

/// A function that intercepts one of CANN's.
pub(crate) struct Wrapper {
    name: &'static CStr,
    our: fn() -> Address,
    real: AtomicPtr<c_void>,
}

/// A wrapper that was requested from `dlsym`.
pub(crate) struct Asked {
    /// Address of our function.
    pub(crate) ours: Address,
    wrapper: &'static Wrapper,
}

impl Wrapper {
    /// `name` is zero-terminated; `our` returns the address of the intercepting function.
    pub(crate) const fn new(name: &'static str, our: fn() -> Address) -> Self {
        let name = match CStr::from_bytes_with_nul(name.as_bytes()) {
            Ok(name) => name,
            Err(_) => c"",
        };
        Self { name, our, real: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Returns this wrapper in the form in which `dlsym` is answered.
    pub(crate) fn asked(&'static self) -> Asked {
        Asked { ours: (self.our)(), wrapper: self }
    }

    /// Returns CANN's function; `None` if there is none.
    pub(crate) fn real(&self) -> Option<Address> {
        let known = self.real.load(Ordering::Acquire);
        if !known.is_null() {
            return Some(known);
        }
        let found = symbols::of_cann(self.name)?;
        self.real.store(found, Ordering::Release);
        Some(found)
    }
}

impl Asked {
    /// Returns the function that intercepts `real`. If two libraries have the function, the one met first wins.
    pub(crate) fn in_front_of(&self, real: Address) -> Address {
        let ours = self.ours;
        match self.wrapper.real.compare_exchange(
            std::ptr::null_mut(),
            real,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => ours,
            Err(before) if before == real => ours,
            Err(_) => {
                notes::count(Count::OtherProvider, &self.wrapper.name.to_string_lossy());
                real
            }
        }
    }

    /// Returns our function, if CANN has it as well.
    pub(crate) fn if_there(&self) -> Address {
        if self.wrapper.real().is_some() { self.ours } else { std::ptr::null_mut() }
    }
}

/// Defines the wrappers of a module, each pairing a CANN function with ours of the same name, and `wrapper`, which
/// finds one by name.
macro_rules! wrappers {
    ($($constant:ident $name:ident;)*) => {
        $(pub(crate) static $constant: $crate::acl::Wrapper =
            $crate::acl::Wrapper::new(concat!(stringify!($name), "\0"), || $name as *const () as $crate::symbols::Address);)*

        /// Returns the wrapper of the function of this name.
        pub(crate) fn wrapper(name: &str) -> Option<$crate::acl::Asked> {
            match name {
                $(stringify!($name) => Some($constant.asked()),)*
                _ => None,
            }
        }
    };
}
pub(crate) use wrappers;

/// Returns the function behind a wrapper, with its type. `$wrapper` must belong to a function of this signature, as
/// declared in CANN's headers.
macro_rules! real {
    ($wrapper:ident as $kind:ty) => {
        $wrapper.real().map(|real| {
            // SAFETY: the address of CANN's function of this name, whose signature is public.
            unsafe { std::mem::transmute::<$crate::symbols::Address, $kind>(real) }
        })
    };
}
pub(crate) use real;
