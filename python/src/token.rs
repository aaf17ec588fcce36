//! What stands for tensors on a device, from the call that holds them until their numbers have been fetched.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use probe::capture::{DataLocation, TensorFacts};
use probe::dump::{DType, TensorRef};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::device::{Fetched, LOST};
use crate::interrupt;
use crate::measure::{DataName, short};
use crate::tape::Tape;

/// A place where data was written, or why it was not.
pub(crate) type Written = (Option<DataLocation>, Option<String>);

/// What a device gave in place of the numbers of a tensor, for all slots that hold it.
#[derive(Debug)]
pub(crate) struct Token {
    /// From when the device was asked until it is fetched.
    object: Mutex<Option<Py<PyAny>>>,
    /// The type of the elements, for those that are fetched and measured here.
    pub(crate) dtype: Option<DType>,
    /// Whether the data is written.
    pub(crate) with_data: bool,
    /// Bytes that wait on the device beside the numbers.
    held: OnceLock<usize>,
    fetched: OnceLock<Result<Fetched, String>>,
    written: OnceLock<Written>,
}

impl Token {
    pub(crate) const fn new(dtype: Option<DType>, with_data: bool) -> Self {
        Self {
            object: Mutex::new(None),
            dtype,
            with_data,
            held: OnceLock::new(),
            fetched: OnceLock::new(),
            written: OnceLock::new(),
        }
    }

    /// The device has begun: `object` is what it gave.
    fn begun(&self, object: Bound<'_, PyAny>) -> PyResult<()> {
        // Whoever asked comes once.
        _ = self.held.set(object.getattr(intern!(object.py(), "held"))?.extract()?);
        *self.object.lock().unwrap_or_else(PoisonError::into_inner) = Some(object.unbind());
        Ok(())
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

    /// Takes what is to be fetched, if that was not done yet.
    pub(crate) fn take(&self) -> Option<Py<PyAny>> {
        self.object.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Keeps what was fetched, or why nothing was.
    pub(crate) fn keep(&self, fetched: Result<Fetched, String>) {
        // Whoever took the object comes once.
        _ = self.fetched.set(fetched);
    }

    /// What was fetched, or why nothing was.
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
}

/// One of them.
#[derive(Debug)]
struct Asked<'py> {
    tensor: Bound<'py, PyAny>,
    token: Arc<Token>,
    /// The storage that it is known again by, if it is.
    storage: Option<usize>,
}

impl<'py> Request<'py> {
    pub(crate) fn add(
        &mut self,
        tensor: Bound<'py, PyAny>,
        is_copied: bool,
        token: Arc<Token>,
        storage: Option<usize>,
    ) {
        let asked = if is_copied { &mut self.copied } else { &mut self.measured };
        asked.push(Asked { tensor, token, storage });
    }

    /// Asks `device`, a `probe.recorder.device.Device`. Each token has what was given for it then, or why nothing was; storages of the latter
    /// are returned.
    pub(crate) fn send(self, device: &Bound<'py, PyAny>) -> Vec<usize> {
        let py = device.py();
        let mut failed = Vec::new();
        for (method, asked) in [(intern!(py, "observe"), self.measured), (intern!(py, "copy"), self.copied)] {
            if asked.is_empty() {
                continue;
            }
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
        failed
    }
}
