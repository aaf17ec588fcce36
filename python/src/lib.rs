//! `probe._core`: the part of the Python package `probe` that is written in Rust.
//!
//! The package decides *when* something is recorded (modes, hooks, steps); this crate reads what there is to record off
//! Python's objects, measures it without the interpreter lock and hands it to the writer of the crate `probe`.
//!
//! ```text
//! recorder  what modes and hooks call: opens, fills and files records
//!   stack     where in the program a call stands
//!   names     what it is called
//!   flatten   its arguments and results, one slot a value
//!     tensor    what a tensor is
//!     measure   its numbers (cache: not twice; device: fetched later; identity: which slots hold the same)
//!   tape      the writer, and its first failure
//! cuda      tensors of CUDA devices, measured by a kernel of our own
//! private   what is read of torch and the interpreter past their public side (frame, shim, interior, symbols)
//! distributed  comparisons in shards, for `probe.distributed`
//! digest    identities of tensors, for packs of config-check (mersenne: how far a random generator has come)
//! ```

#![allow(clippy::needless_pass_by_value, reason = "pyo3 hands arguments over by value")]

mod agent;
mod cache;
mod call;
mod compiled;
mod cuda;
mod device;
mod digest;
mod distributed;
mod flatten;
mod identity;
mod interrupt;
mod measure;
mod mersenne;
mod names;
mod options;
mod private;
mod recorder;
mod stack;
mod tape;
mod tensor;
mod token;

use std::path::PathBuf;

use probe::capture::{CaptureError, Existing, prepare};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

/// Python's allocator aligns an object to 16 bytes, whatever the Rust value in it needs.
const fn fits_an_object<T>() -> bool {
    align_of::<T>() <= 16
}

const _: () = assert!(
    fits_an_object::<call::Call>()
        && fits_an_object::<cuda::Kernel>()
        && fits_an_object::<digest::DigestStream>()
        && fits_an_object::<digest::Digester>()
        && fits_an_object::<recorder::Recorder>(),
    "what is aligned to more goes behind a box"
);

/// The command line: runs `probe` with `arguments`, the first of which is the program's name, and returns its exit code.
#[pyfunction]
fn main(py: Python<'_>, arguments: Vec<String>) -> u8 {
    py.detach(|| probe::cli::run_with(arguments.into_iter().map(Into::into), distributed::stores()).code())
}

/// Raises `OSError` if a run must not record into the folder: it holds a dump of another one, or something else.
#[pyfunction]
fn check_folder(py: Python<'_>, output: PathBuf) -> PyResult<()> {
    match py.detach(|| prepare(&output, Existing::Keep, "overwrite=True")) {
        Err(error @ CaptureError::Occupied { .. }) => Err(PyOSError::new_err(error.to_string())),
        // What cannot be read now may be there when recording begins, which says so if it is not.
        Ok(()) | Err(_) => Ok(()),
    }
}

#[pymodule]
mod _core {
    #[pymodule_export]
    use super::call::Call;
    #[pymodule_export]
    use super::check_folder;
    #[pymodule_export]
    use super::cuda::Kernel;
    #[pymodule_export]
    use super::digest::{DigestStream, Digester, hash_bytes};
    #[pymodule_export]
    use super::distributed::{build_id, compare_shard, merge, plan, shard_ranks};
    #[pymodule_export]
    use super::main;
    #[pymodule_export]
    use super::mersenne::mersenne_draws;
    #[pymodule_export]
    use super::recorder::Recorder;
}
