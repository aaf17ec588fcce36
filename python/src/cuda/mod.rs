//! Tensors of CUDA devices, measured by one launch for all of a call, which Rust makes without asking Python.
//!
//! ```text
//! kernel    measures tensors and fetches the results; the class that Python sees
//!   batch     the input of one launch
//!   stream    memory that the launches of one stream use, one after the other
//!   driver    the functions of the driver
//! ```
//!
//! The kernel is `python/probe/recorder/device_cuda.cu`, compiled by `probe.recorder.device_cuda`. Where it cannot be had, torch's operations
//! measure, as on all other devices.

mod batch;
mod driver;
mod kernel;
mod stream;

pub(crate) use batch::Spec;
pub(crate) use kernel::{Copies, FromKernel, Kernel, Place, index_of};
