//! `probe._core`: the Rust part of the Python package `probe`.
//!
//! The package decides *when* something is recorded (modes, hooks, steps); this crate reads the values from Python's
//! objects, measures them without the interpreter lock and hands them to the writer of the crate `probe`.
//!
//! ```text
//! recorder  called by modes and hooks: opens, fills and files records
//!   stack     call site in the program
//!   names     names of calls
//!   gradients  values of the backward pass, from hooks of its nodes
//!   flatten   arguments and results, one slot per value
//!     tensor    facts about a tensor
//!     measure   statistics of a tensor (cache: not twice; device: fetched later; identity: slots that hold the same)
//!   tape      the writer, and its first failure
//!     nonfinite  the op that makes the first NaN or infinity of a step
//! cuda      tensors of CUDA devices, measured by a kernel of our own
//! private   reads of torch and the interpreter past their public interface (frame, shim, interior, symbols)
//! distributed  comparisons in shards, for `probe.distributed`
//! rollout   log-probabilities of tokens, for `probe.rollout`
//! dump       reads dumps, for `probe.replay`
//! digest    identities of tensors, for packs of config-check (mersenne: number of draws of a random generator)
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
mod dump;
mod flatten;
mod identity;
mod interrupt;
mod measure;
mod mersenne;
mod names;
mod nonfinite;
mod options;
mod private;
mod recorder;
mod rollout;
mod stack;
mod tape;
mod tensor;
mod token;

use std::path::PathBuf;

use probe::capture::{CaptureError, Existing, prepare};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

/// Python's allocator aligns objects to 16 bytes, whatever the Rust value in them needs.
const fn fits_an_object<T>() -> bool {
    align_of::<T>() <= 16
}

const _: () = assert!(
    fits_an_object::<call::Call>()
        && fits_an_object::<cuda::Kernel>()
        && fits_an_object::<dump::Dump>()
        && fits_an_object::<dump::Part>()
        && fits_an_object::<digest::DigestStream>()
        && fits_an_object::<digest::Digester>()
        && fits_an_object::<recorder::Recorder>(),
    "what is aligned to more goes behind a box"
);

/// Command line: runs `probe` with `arguments`, the first of which is the program's name, and returns its exit code.
#[pyfunction]
fn main(py: Python<'_>, arguments: Vec<String>) -> u8 {
    py.detach(|| probe::cli::run_with(arguments.into_iter().map(Into::into), distributed::stores()).code())
}

/// Raises `OSError` if a run must not record into the folder: it holds another dump, or something else.
#[pyfunction]
fn check_folder(py: Python<'_>, output: PathBuf) -> PyResult<()> {
    match py.detach(|| prepare(&output, Existing::Keep, "overwrite=True")) {
        Err(error @ CaptureError::Occupied { .. }) => Err(PyOSError::new_err(error.to_string())),
        // A folder unreadable now may be readable when recording begins, which reports it otherwise.
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
    use super::dump::{Dump, Part};
    #[pymodule_export]
    use super::main;
    #[pymodule_export]
    use super::mersenne::mersenne_draws;
    #[pymodule_export]
    use super::recorder::{Gradients, ParameterHook, Recorder};
    #[pymodule_export]
    use super::rollout::write_tokens;
}
