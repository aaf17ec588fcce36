//! Functions of CANN whose signatures are public and that this library stands in front of by name.
//!
//! They are exported, so that programs that are linked to CANN find them, and given out by `dlsym` where CANN has them. Types are
//! written down here as far as calls need them; handles stay opaque. Each module names those that it stands in front of.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::notes::{self, Count};
use crate::symbols::{self, Address};

/// Result of a function of CANN; 0 is success.
pub(crate) type Status = i32;
/// What the exported functions answer where CANN does not have the function behind them: the runtime's code for "not supported".
pub(crate) const UNSUPPORTED: Status = 200_001;

/// A function that stands in front of one of CANN's.
pub(crate) struct Wrapper {
    name: &'static CStr,
    our: fn() -> Address,
    real: AtomicPtr<c_void>,
}

/// A wrapper that `dlsym` was asked for.
pub(crate) struct Asked {
    /// Address of ours.
    pub(crate) ours: Address,
    wrapper: &'static Wrapper,
}

impl Wrapper {
    /// `name` ends with a zero; `our` gives the address of the function that stands in front.
    pub(crate) const fn new(name: &'static str, our: fn() -> Address) -> Self {
        let name = match CStr::from_bytes_with_nul(name.as_bytes()) {
            Ok(name) => name,
            Err(_) => c"",
        };
        Self { name, our, real: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// This one, as `dlsym` is answered.
    pub(crate) fn asked(&'static self) -> Asked {
        Asked { ours: (self.our)(), wrapper: self }
    }

    /// The function of CANN; `None` where there is none.
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
    /// What stands in front of `real`. Of two libraries that have the function, the one that is met first counts.
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

    /// Ours, where CANN has the function as well.
    pub(crate) fn if_there(&self) -> Address {
        if self.wrapper.real().is_some() { self.ours } else { std::ptr::null_mut() }
    }
}

/// The wrappers of a module, each with the function of CANN and of this library that is called like it, and `wrapper`, which finds one by name.
macro_rules! wrappers {
    ($($constant:ident $name:ident;)*) => {
        $(pub(crate) static $constant: $crate::acl::Wrapper =
            $crate::acl::Wrapper::new(concat!(stringify!($name), "\0"), || $name as *const () as $crate::symbols::Address);)*

        /// What stands in front of the function of this name.
        pub(crate) fn wrapper(name: &str) -> Option<$crate::acl::Asked> {
            match name {
                $(stringify!($name) => Some($constant.asked()),)*
                _ => None,
            }
        }
    };
}
pub(crate) use wrappers;

/// The function behind a wrapper, of its type. Expects that `$wrapper` is that of a function of this signature, as CANN's headers
/// have it.
macro_rules! real {
    ($wrapper:ident as $kind:ty) => {
        $wrapper.real().map(|real| {
            // SAFETY: the address of CANN's function of this name, whose signature is public.
            unsafe { std::mem::transmute::<$crate::symbols::Address, $kind>(real) }
        })
    };
}
pub(crate) use real;
