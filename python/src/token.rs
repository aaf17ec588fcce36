//! Tokens stand for tensors on a device, from the call that holds them until their numbers have been fetched.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use probe::capture::{DataLocation, TensorFacts};
use probe::dump::{DType, TensorRef};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::cuda::{Kernel, Place, Spec};
use crate::device::{Fetched, LOST};
use crate::interrupt;
use crate::measure::{DataName, short};
use crate::tape::Tape;

/// A place where data was written, or why it was not.
pub(crate) type Written = (Option<DataLocation>, Option<String>);

/// A tensor that is still to be fetched.
#[derive(Debug)]
pub(crate) enum Waiting {
    /// An object that `probe.recorder.device.Device` gave.
    Object(Py<PyAny>),
    /// Where the kernel writes.
    Place(Place),
}

/// A device gives it in place of the numbers of a tensor, for all slots that hold the tensor.
#[derive(Debug)]
pub(crate) struct Token {
    /// From when the device was asked until it is fetched.
    waiting: Mutex<Option<Waiting>>,
    /// The type of the elements, for those that are fetched and measured here.
    pub(crate) dtype: Option<DType>,
    /// True if the data is written.
    pub(crate) with_data: bool,
    /// Bytes that wait on the device beside the numbers.
    held: OnceLock<usize>,
    fetched: OnceLock<Result<Fetched, String>>,
    written: OnceLock<Written>,
}

impl Token {
    pub(crate) const fn new(dtype: Option<DType>, with_data: bool) -> Self {
        Self {
            waiting: Mutex::new(None),
            dtype,
            with_data,
            held: OnceLock::new(),
            fetched: OnceLock::new(),
            written: OnceLock::new(),
        }
    }

    /// The device has begun: `object` is its answer.
    fn begun(&self, object: Bound<'_, PyAny>) -> PyResult<()> {
        // Whoever asked comes once.
        _ = self.held.set(object.getattr(intern!(object.py(), "held"))?.extract()?);
        self.waits_for(Waiting::Object(object.unbind()));
        Ok(())
    }

    fn waits_for(&self, waiting: Waiting) {
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(waiting);
    }

    /// Bytes that wait on the device beside the numbers.
    pub(crate) fn held(&self) -> usize {
        self.held.get().copied().unwrap_or(0)
    }

    /// Where the data is, once it was fetched; the first call writes it.
    pub(crate) fn written(
        &self,
        tape: &Tape,
        py: Python<'_>,
        name: DataName<'_>,
        facts: &TensorFacts,
    ) -> Written {
        let write = || {
            let fetched = self.fetched().ok()?;
            let (elements, dtype) = fetched.take_elements().zip(self.dtype)?;
            let elements = elements.bind(py).as_bytes();
            let shape = [elements.len() / dtype.size()];
            let row = TensorRef::strided(elements, dtype, &shape, &[1], 0).ok()?;
            let small = fetched.bytes.is_some();
            Some(py.detach(|| tape.write_data(name, (&facts.dtype, &facts.shape), &row, small)))
        };
        self.written.get_or_init(|| write().unwrap_or_default()).clone()
    }

    /// Takes the object to fetch, unless that was done before.
    pub(crate) fn take(&self) -> Option<Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Keeps the fetched measurement, or the reason there is none.
    pub(crate) fn keep(&self, fetched: Result<Fetched, String>) {
        // Whoever took the object comes once.
        _ = self.fetched.set(fetched);
    }

    /// The fetched numbers, or the reason why there are none.
    pub(crate) fn fetched(&self) -> Result<&Fetched, &str> {
        self.fetched.get().map_or(Err(LOST), |fetched| fetched.as_ref().map_err(String::as_str))
    }
}

/// A slot whose numbers are still on a device.
#[derive(Debug)]
pub(crate) struct Pending {
    /// Index of the slot in its op.
    pub(crate) slot: usize,
    pub(crate) token: Arc<Token>,
}

/// The tensors of a call that a device is asked for at once: much of what it costs the host to ask is the same for one and for many.
#[derive(Debug, Default)]
pub(crate) struct Request<'py> {
    /// To be measured.
    measured: Vec<Asked<'py>>,
    /// To be copied.
    copied: Vec<Asked<'py>>,
    /// For a kernel.
    launched: Vec<Launched<'py>>,
}

/// One of them.
#[derive(Debug)]
struct Asked<'py> {
    tensor: Bound<'py, PyAny>,
    token: Arc<Token>,
    /// The storage that it is known again by, if it is.
    storage: Option<usize>,
}

/// One that a kernel measures or copies.
#[derive(Debug)]
struct Launched<'py> {
    asked: Asked<'py>,
    is_copied: bool,
    kernel: Bound<'py, Kernel>,
    /// Number of the device.
    index: i32,
    spec: Spec,
}

impl<'py> Request<'py> {
    pub(crate) fn add(
        &mut self,
        tensor: Bound<'py, PyAny>,
        is_copied: bool,
        token: Arc<Token>,
        storage: Option<usize>,
        kernel: Option<(Bound<'py, Kernel>, i32, Spec)>,
    ) {
        let asked = Asked { tensor, token, storage };
        match kernel {
            Some((kernel, index, spec)) => {
                self.launched.push(Launched { asked, is_copied, kernel, index, spec });
            }
            None if is_copied => self.copied.push(asked),
            None => self.measured.push(asked),
        }
    }

    /// Asks kernels, and `device`, a `probe.recorder.device.Device`. Each token has what was given for it then, or why nothing was; storages
    /// of the latter are returned.
    pub(crate) fn send(mut self, device: &Bound<'py, PyAny>) -> Vec<usize> {
        let mut failed = Vec::new();
        for of_kernel in
            std::mem::take(&mut self.launched).chunk_by(|one, other| one.kernel.is(&other.kernel))
        {
            self.launch(of_kernel, device, &mut failed);
        }
        for (method, asked) in [("observe", self.measured), ("copy", self.copied)] {
            if !asked.is_empty() {
                ask(device, method, asked, &mut failed);
            }
        }
        failed
    }

    /// Asks the kernel that all of `launched` have. Where it fails, torch's operations are asked.
    fn launch(&mut self, launched: &[Launched<'py>], device: &Bound<'py, PyAny>, failed: &mut Vec<usize>) {
        let Some(Launched { kernel, .. }) = launched.first() else { return };
        let py = kernel.py();
        let specs: Vec<(i32, &Spec)> =
            launched.iter().map(|launched| (launched.index, &launched.spec)).collect();
        let places = kernel.get().observe(py, &specs);
        let broken = kernel.get().broken(py);
        if let Some(reason) = &broken {
            // Says it once, and does nothing else.
            _ = device.call_method1(intern!(py, "without_kernel"), (reason,));
        }
        for (Launched { asked, is_copied, .. }, place) in launched.iter().zip(places) {
            match place {
                Ok(place) => asked.token.waits_for(Waiting::Place(place)),
                Err(_) if broken.is_some() => {
                    let Asked { tensor, token, storage } = asked;
                    self.add(tensor.clone(), *is_copied, token.clone(), *storage, None);
                }
                Err(reason) => {
                    asked.token.keep(Err(reason));
                    failed.extend(asked.storage);
                }
            }
        }
    }
}

/// Asks a `probe.recorder.device.Device` for tensors by one of its methods.
fn ask<'py>(device: &Bound<'py, PyAny>, method: &str, asked: Vec<Asked<'py>>, failed: &mut Vec<usize>) {
    let py = device.py();
    let answers = PyList::new(py, asked.iter().map(|asked| &asked.tensor))
        .and_then(|tensors| interrupt::asked(py, || device.call_method1(method, (&tensors,))))
        .and_then(|answers| answers.extract::<Vec<Bound<'_, PyAny>>>());
    let (mut answers, reason) = match answers {
        Ok(answers) => (answers.into_iter(), LOST.to_owned()),
        Err(error) => (Vec::new().into_iter(), short(&error)),
    };
    for Asked { token, storage, .. } in asked {
        let begun = match answers.next() {
            None => Err(reason.clone()),
            Some(answer) => match answer.extract::<String>() {
                Ok(reason) => Err(reason),
                Err(_) => token.begun(answer).map_err(|error| short(&error)),
            },
        };
        if let Err(reason) = begun {
            token.keep(Err(reason));
            failed.extend(storage);
        }
    }
}
