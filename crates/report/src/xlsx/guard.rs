//! Turns faults of the library that writes the workbook into errors.
//!
//! The library writes rows to a temporary file and panics when that fails, for example on a full disk. Such a panic
//! becomes an error with the operating system's reason, and nothing is printed.

use std::any::Any;
use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use rust_xlsxwriter::XlsxError;

thread_local! {
    /// True while this thread is inside [`guarded`].
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`, a call of the library. After a failure, the objects it worked on must not be used again.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T, XlsxError>) -> io::Result<()> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let others = take_hook();
        set_hook(Box::new(move |panic| {
            if !GUARDED.get() {
                others(panic);
            }
        }));
    });
    GUARDED.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(|| work().map(drop)));
    GUARDED.set(false);
    match outcome {
        Ok(result) => result.map_err(refused),
        Err(panic) => Err(reason(&*panic)),
    }
}

/// Converts the library's error, to the underlying I/O error if there is one.
pub(super) fn refused(error: XlsxError) -> io::Error {
    match error {
        XlsxError::IoError(error) | XlsxError::TempFileError(_, error) => error,
        other => io::Error::other(other.to_string()),
    }
}

/// Extracts the operating system's error from a panic message such as `Couldn't write to xml file: Os { code: 28, kind:
/// ...`.
fn reason(panic: &(dyn Any + Send)) -> io::Error {
    let words = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    let words = words.unwrap_or("the workbook could not be written");
    let code = words.split_once("code: ").map(|(_, rest)| rest);
    let digits = code.and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    match digits.and_then(|digits| digits.parse().ok()) {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::other(words.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_the_error_of_the_system() {
        let opened = || std::fs::File::open("/no such file");
        let (error, expected) = (guarded(|| Ok(opened().unwrap())).unwrap_err(), opened().unwrap_err());
        assert_eq!((error.kind(), error.to_string()), (expected.kind(), expected.to_string()));
        let error = guarded::<()>(|| panic!("no reason")).unwrap_err();
        assert_eq!(error.to_string(), "no reason");
    }

    #[test]
    fn errors_of_the_system_keep_their_kind() {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        for error in [XlsxError::IoError(missing()), XlsxError::TempFileError("folder".into(), missing())] {
            assert_eq!(refused(error).kind(), io::ErrorKind::NotFound);
        }
        assert!(!refused(XlsxError::RowColumnLimitError).to_string().is_empty());
    }
}
