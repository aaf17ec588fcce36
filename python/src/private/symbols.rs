//! Functions of libraries that the process has loaded already, found by name: none is linked against, and where one is
//! missing there is another, slower way.

use std::ffi::{CStr, c_void};
use std::path::Path;

/// A library of this process.
#[derive(Debug)]
pub(crate) struct Library {
    handle: *mut c_void,
}

impl Library {
    /// The function of this name.
    ///
    /// # Safety
    /// `F` is a pointer to a function of the signature that the function has.
    #[expect(unsafe_code, reason = "the caller knows the signature")]
    pub(crate) unsafe fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>(), "no pointer to a function") };
        let address = self.address(name)?;
        // SAFETY: `F` is a pointer to a function, by the caller's word, and has the size of this address, which is one's.
        Some(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&address) })
    }
}

#[cfg(unix)]
impl Library {
    /// What every library can see: the interpreter, whether it is the program itself or a library of it.
    pub(crate) const fn global() -> Self {
        Self { handle: libc::RTLD_DEFAULT }
    }

    /// The library of this file, if it is loaded; nothing is loaded for it.
    pub(crate) fn loaded(path: &Path) -> Option<Self> {
        use std::os::unix::ffi::OsStrExt;
        let path = std::ffi::CString::new(path.as_os_str().as_bytes()).ok()?;
        #[expect(unsafe_code, reason = "the loader has a C interface")]
        // SAFETY: `path` ends with a zero. With RTLD_NOLOAD nothing is loaded and so no code of the file runs. The
        // reference that is gained is never given back: the library stays.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        (!handle.is_null()).then_some(Self { handle })
    }

    fn address(&self, name: &CStr) -> Option<*mut c_void> {
        #[expect(unsafe_code, reason = "the loader has a C interface")]
        // SAFETY: `handle` is one of the loader's, and `name` ends with a zero.
        let address = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }
}

/// Elsewhere nothing is found.
#[cfg(not(unix))]
impl Library {
    pub(crate) const fn global() -> Self {
        Self { handle: std::ptr::null_mut() }
    }

    pub(crate) const fn loaded(_path: &Path) -> Option<Self> {
        None
    }

    const fn address(&self, _name: &CStr) -> Option<*mut c_void> {
        None
    }
}
