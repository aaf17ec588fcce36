//! Functions of libraries already loaded by the process, found by name: none is linked against, and if one is missing
//! there is a slower alternative.

use std::ffi::{CStr, c_void};
use std::path::Path;

/// A library of this process.
#[derive(Debug)]
pub(crate) struct Library {
    handle: *mut c_void,
}

impl Library {
    /// Returns the function of this name.
    ///
    /// # Safety
    /// `F` is a function pointer with the signature of that function.
    #[expect(unsafe_code, reason = "the caller knows the signature")]
    pub(crate) unsafe fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>(), "no pointer to a function") };
        let address = self.address(name)?;
        // SAFETY: the caller vouches that `F` is a function pointer, and it has the size of this address, which is a
        // function's.
        Some(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&address) })
    }
}

#[cfg(unix)]
impl Library {
    /// Global scope, visible to every library: includes the interpreter, whether it is the program itself or a
    /// library.
    pub(crate) const fn global() -> Self {
        Self { handle: libc::RTLD_DEFAULT }
    }

    /// Returns the library of this file if it is loaded; loads nothing.
    pub(crate) fn loaded(path: &Path) -> Option<Self> {
        use std::os::unix::ffi::OsStrExt;
        let path = std::ffi::CString::new(path.as_os_str().as_bytes()).ok()?;
        #[expect(unsafe_code, reason = "the loader has a C interface")]
        // SAFETY: `path` is zero-terminated. With RTLD_NOLOAD nothing is loaded, so no code of the file runs. The
        // reference gained is never released: the library stays.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        (!handle.is_null()).then_some(Self { handle })
    }

    fn address(&self, name: &CStr) -> Option<*mut c_void> {
        #[expect(unsafe_code, reason = "the loader has a C interface")]
        // SAFETY: `handle` comes from the loader, and `name` is zero-terminated.
        let address = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }
}

/// Finds nothing on other platforms.
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
