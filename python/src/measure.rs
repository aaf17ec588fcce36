//! Measures the tensors of a call: each once, and not again while unchanged.

mod collector;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use probe::capture::TensorFacts;
use probe::dump::{Content, DType, NO_DATA, Observation, SMALL_TENSOR, TensorRef, element_count};
use probe::measure::{self, Crew};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyModule;

use crate::cache::{Cache, Entry, Layout, Measured, sample};
use crate::cuda::{Kernel, Spec, index_of};
use crate::identity::{Identities, print_of, view_of};
use crate::interrupt;
use crate::tape::Tape;
use crate::tensor::{Facts, Marks, Memory, Order, TensorKind, Torch, storage};
use crate::token::{Request, Token};
pub(crate) use collector::Collector;

/// Smaller tensors are measured without releasing the interpreter lock: reacquiring it costs more.
const DETACH_BYTES: usize = 64 << 10;

/// Smaller tensors are measured again rather than looked up.
const LOOK_UP_BYTES: usize = 4 << 10;

/// Name of a tensor's data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DataName<'a> {
    pub(crate) op: &'a str,
    pub(crate) path: &'a str,
}

/// Options for recording one tensor.
#[derive(Debug, Clone, Copy)]
struct How<'a> {
    name: DataName<'a>,
    /// Destination of its data, if wanted.
    tape: Option<&'a Tape>,
    /// True if torch has yet to count its last write.
    rewritten: bool,
}

/// Everything needed for measuring besides the tensor.
#[derive(Debug)]
pub(crate) struct Meter {
    pub(crate) torch: Torch,
    pub(crate) content: Content,
    /// True if tensors in host memory are measured like those on a device.
    as_on_device: bool,
    /// `probe.private.tensors.parts(tensor)`: components of a tensor that is not plainly strided.
    pub(crate) parts: Py<PyAny>,
    /// `probe.recorder.device.Device`, for tensors outside host memory.
    pub(crate) device: Py<PyAny>,
    /// `probe.recorder.slices.Slices`: the part of a tensor that is recorded in its place, if the user wants slices.
    narrow: Option<Py<PyAny>>,
    /// Kernel that measures on a device, by the device's name; `None` if there is none.
    kernels: Mutex<HashMap<String, Option<Py<Kernel>>>>,
    /// Helps with large tensors.
    pub(crate) crew: Crew,
    pub(crate) cache: Mutex<Cache<Measured>>,
    /// The same for tensors outside host memory.
    tokens: Mutex<Cache<Arc<Token>>>,
    identities: Mutex<Identities>,
    /// Weak references that keep the identities of cached storages from being reused.
    weak: Mutex<Vec<usize>>,
    free_weak: Py<PyAny>,
}

impl Meter {
    /// `torch` reads the tensors of the module `of`.
    pub(crate) fn new(
        torch: Torch,
        of: &Bound<'_, PyModule>,
        (content, as_on_device): (Content, bool),
        crew: Crew,
        parts: Py<PyAny>,
        device: Py<PyAny>,
        narrow: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let free_weak = of.getattr("UntypedStorage")?.getattr("_free_weak_ref")?.unbind();
        Ok(Self {
            torch,
            content,
            as_on_device,
            parts,
            device,
            narrow,
            kernels: Mutex::default(),
            crew,
            cache: Mutex::default(),
            tokens: Mutex::default(),
            identities: Mutex::default(),
            weak: Mutex::default(),
            free_weak,
        })
    }

    fn cache(&self, py: Python<'_>) -> MutexGuard<'_, Cache<Measured>> {
        self.cache.lock_py_attached(py).unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn tokens(&self, py: Python<'_>) -> MutexGuard<'_, Cache<Arc<Token>>> {
        self.tokens.lock_py_attached(py).unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn identities(&self, py: Python<'_>) -> MutexGuard<'_, Identities> {
        self.identities.lock_py_attached(py).unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Returns the part of a tensor that is recorded in its place; None for all of it.
    fn narrowed<'py>(
        &self,
        tensor: &Bound<'py, PyAny>,
        kind: TensorKind,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(narrow) = self.narrow.as_ref().filter(|_| kind == TensorKind::Plain) else {
            return Ok(None);
        };
        let part = interrupt::asked(tensor.py(), || narrow.bind(tensor.py()).call1((tensor,)))?;
        Ok((!part.is_none()).then_some(part))
    }

    /// Begins or ends a step.
    pub(crate) fn restart(&self, py: Python<'_>) {
        self.clear(py);
        self.identities(py).restart();
    }

    /// Forgets all tensors and their measurements.
    fn clear(&self, py: Python<'_>) {
        self.cache(py).clear();
        self.tokens(py).clear();
        self.identities(py).clear();
        let weak = {
            let mut weak = self.weak.lock_py_attached(py).unwrap_or_else(std::sync::PoisonError::into_inner);
            std::mem::take(&mut *weak)
        };
        for reference in weak {
            // Freeing our own reference cannot fail; if torch disagrees, the process only keeps some bytes.
            _ = self.free_weak.call1(py, (reference,));
        }
    }

    /// Forgets the measurements of the memory that contains `tensor`: it is being written to.
    pub(crate) fn forget(&self, tensor: &Bound<'_, PyAny>) {
        // Tensors without a storage are not cached.
        if let Ok(storage) = self.torch.storage(tensor) {
            self.cache(tensor.py()).forget(storage);
            self.tokens(tensor.py()).forget(storage);
            self.identities(tensor.py()).wrote(storage);
        }
    }

    /// Keeps the address of a tensor's storage from being reused until [`Self::clear`]. Returns false if that is
    /// impossible.
    fn hold(&self, tensor: &Bound<'_, PyAny>, identity: usize) -> bool {
        let py = tensor.py();
        if self.identities(py).holds(identity) {
            return true;
        }
        if self.identities(py).is_full() {
            self.clear(py);
        }
        let reference =
            storage(tensor).and_then(|storage| storage.call_method0(intern!(py, "_weak_ref"))?.extract());
        let Ok(reference) = reference else { return false };
        self.weak.lock_py_attached(py).unwrap_or_else(std::sync::PoisonError::into_inner).push(reference);
        self.identities(py).hold(identity);
        true
    }

    /// Returns true if a tensor of this many bytes is stored verbatim instead of as a sketch.
    const fn stores(&self, bytes: usize) -> bool {
        is_stored(self.content, bytes)
    }

    /// Returns the measurement of a tensor in host memory, cached or new. `Err` says why there is none.
    fn on_host(
        &self,
        tensor: &Bound<'_, PyAny>,
        facts: &Facts,
        memory: &Memory,
        how: How<'_>,
        marks: Option<Marks>,
    ) -> Result<(Measured, Option<String>), String> {
        let (py, tape) = (tensor.py(), how.tape);
        let Some(dtype) = facts.dtype else {
            return Err(format!("{} is not measured", facts.dtype_name));
        };
        #[expect(unsafe_code, reason = "memory of a tensor that torch owns")]
        // SAFETY: it is in host memory. `tensor` keeps it alive while the interpreter is held, `held` while it is
        // not.
        let bytes = unsafe { memory.bytes() };
        // Statistics do not depend on the order of the elements: memory order is faster, and the same for all
        // transposed views.
        let order = if self.content == Content::STATISTICS && tape.is_none() {
            Order::of_memory(facts)
        } else {
            Order::of_rows(facts)
        };
        let released = |_| format!("{NO_DATA}: its memory is released");
        let size = size_of(facts, dtype);
        if size < LOOK_UP_BYTES && tape.is_none() {
            let view = TensorRef::strided(bytes, dtype, &order.shape, &order.strides, facts.offset);
            let view = view.map_err(released)?;
            let stored = self.stores(size);
            let content = if stored { SMALL } else { self.content };
            let observation = Arc::new(measure::observe(view, content));
            return Ok((Measured { observation, data: None, bytes: stored.then(|| elements(&view)) }, None));
        }
        let failed = |error| short(&error);
        // A tensor that is not held may be a different one when its address is seen again.
        let marks = marks.filter(|marks| size >= LOOK_UP_BYTES && marks.is_torchs_alone);
        let version = marks.map_or(-1, |marks| marks.version);
        let layout = Layout { version, offset: facts.offset, order, dtype };
        let view = TensorRef::strided(bytes, dtype, &layout.order.shape, &layout.order.strides, facts.offset)
            .map_err(released)?;
        let mark = marks.map_or(0, |_| sample(&view));
        let known = marks.and_then(|marks| self.cache(py).get(marks.storage, &layout, mark));
        if let Some(known) = &known
            && (known.data.is_some() || tape.is_none())
        {
            return Ok((known.clone(), None));
        }
        let work = || self.measured(view, facts, how, known);
        let detached = size >= DETACH_BYTES || tape.is_some();
        // While the interpreter lock is released, another thread may give the tensor another storage.
        let held = detached.then(|| storage(tensor)).transpose().map_err(failed)?;
        let (measured, note) = if detached { py.detach(work) } else { work() };
        drop(held);
        if let Some(marks) = marks {
            let entry = Entry { layout, rewritten: how.rewritten, sample: mark, measured: measured.clone() };
            self.cache(py).insert(marks.storage, entry);
        }
        Ok((measured, note))
    }

    /// Measures a tensor, unless it is `known`, and writes its data if that is wanted.
    fn measured(
        &self,
        view: TensorRef<'_>,
        facts: &Facts,
        how: How<'_>,
        known: Option<Measured>,
    ) -> (Measured, Option<String>) {
        let stored = facts.dtype.is_some_and(|dtype| self.stores(size_of(facts, dtype)));
        let content = if stored { SMALL } else { self.content };
        let observation = match known {
            Some(known) => known.observation,
            None => Arc::new(measure::observe_with(&self.crew, view, content)),
        };
        let (data, note) = how.tape.map_or((None, None), |tape| {
            tape.write_data(how.name, (&facts.dtype_name, &shape_of(facts)), &view, stored)
        });
        let bytes = (stored && data.is_none()).then(|| elements(&view));
        (Measured { observation, data, bytes }, note)
    }

    /// Returns the placeholder of a tensor on a device: it is measured there with the others of `request`, or copied
    /// if its elements are wanted, unless that was done before.
    fn on_device<'py>(
        &self,
        tensor: &Bound<'py, PyAny>,
        facts: &Facts,
        How { tape, rewritten, .. }: How<'_>,
        marks: Option<Marks>,
        request: &mut Request<'py>,
    ) -> Arc<Token> {
        let py = tensor.py();
        let marks = marks.filter(|marks| marks.is_torchs_alone && marks.version >= 0).zip(facts.dtype);
        let layout = marks.map(|(marks, dtype)| {
            let order = Order::of_rows(facts);
            (marks.storage, Layout { version: marks.version, offset: facts.offset, order, dtype })
        });
        let with_data = tape.is_some() && facts.dtype.is_some();
        if let Some((storage, layout)) = &layout
            && let Some(known) = self.tokens(py).get(*storage, layout, 0)
            && (known.with_data || !with_data)
        {
            return known;
        }
        // Measured here when its elements arrive: small tensors, and those for which there is no other way to the
        // requested content.
        let is_copied = facts.dtype.is_some_and(|dtype| {
            with_data || self.content == Content::HASH || self.stores(size_of(facts, dtype))
        });
        let token = Arc::new(Token::new(facts.dtype, with_data));
        let storage = layout.as_ref().map(|(storage, _)| *storage);
        let is_small = facts.dtype.is_some_and(|dtype| size_of(facts, dtype) < SMALL_TENSOR);
        let kernel = if with_data || is_copied && !is_small { None } else { self.kernel(py, &facts.device) };
        let kernel =
            kernel.and_then(|kernel| Some((kernel, index_of(&facts.device)?, Spec::new(facts, is_copied)?)));
        request.add(tensor.clone(), is_copied, token.clone(), storage, kernel);
        if let Some((storage, layout)) = layout {
            let entry = Entry { layout, rewritten, sample: 0, measured: token.clone() };
            self.tokens(py).insert(storage, entry);
        }
        token
    }

    /// Returns the kernel that measures tensors of a device, if there is one and it works.
    fn kernel<'py>(&self, py: Python<'py>, device: &str) -> Option<Bound<'py, Kernel>> {
        let known = |kernels: &HashMap<String, Option<Py<Kernel>>>| {
            kernels.get(device).map(|kernel| kernel.as_ref().map(|kernel| kernel.bind(py).clone()))
        };
        let lock = || self.kernels.lock_py_attached(py).unwrap_or_else(std::sync::PoisonError::into_inner);
        let found = known(&lock());
        let kernel = found.unwrap_or_else(|| {
            let asked =
                interrupt::asked(py, || self.device.bind(py).call_method1(intern!(py, "kernel"), (device,)));
            let kernel: Option<Py<Kernel>> = asked.ok().and_then(|kernel| kernel.extract().ok()).flatten();
            let bound = kernel.as_ref().map(|kernel| kernel.bind(py).clone());
            lock().insert(device.to_owned(), kernel);
            bound
        });
        kernel.filter(|kernel| kernel.get().broken(py).is_none())
    }

    /// Makes the device measure the requested tensors.
    pub(crate) fn send(&self, py: Python<'_>, request: Request<'_>) {
        for storage in request.send(self.device.bind(py)) {
            // A tensor in it has no placeholder: it is tried again.
            self.tokens(py).forget(storage);
        }
    }

    /// Records a plainly strided tensor. Measurements on a device come later, from [`Pending`](crate::token::Pending).
    fn plain<'py>(
        &self,
        tensor: &Bound<'py, PyAny>,
        facts: Facts,
        how: How<'_>,
        request: &mut Request<'py>,
    ) -> (TensorFacts, Option<Arc<Token>>) {
        let (mut measured, mut note, mut token) = (None, None, None);
        let marks = facts.memory.as_ref().and_then(|_| facts.marks.or_else(|| Marks::of(tensor).ok()));
        let marks = marks.filter(|marks| self.hold(tensor, marks.storage));
        if let Some(memory) = facts.memory.as_ref().filter(|_| facts.on_host && !self.as_on_device) {
            match self.on_host(tensor, &facts, memory, how, marks) {
                Ok((mut found, remark)) => {
                    if self.content == Content::STATISTICS && how.tape.is_none() && Order::is_permuted(&facts)
                    {
                        // One measurement serves all transposed views; places refer to the view in memory order.
                        let shared = Observation::clone(&found.observation);
                        found.observation = Arc::new(Observation { places: None, ..shared });
                    }
                    (measured, note) = (Some(found), remark);
                }
                Err(reason) => note = Some(reason),
            }
        } else if facts.memory.is_none() {
            note = Some(NO_DATA.into());
        } else {
            token = Some(self.on_device(tensor, &facts, how, marks, request));
        }
        let (observation, data, bytes) = measured.map_or((None, None, None), |measured| {
            (Some(measured.observation), measured.data, measured.bytes)
        });
        let identity = marks.map(|marks| {
            let print = observation.as_deref().map(print_of);
            self.identities(tensor.py()).of(marks, view_of(&facts), how.rewritten, print)
        });
        let stride = |stride| i64::try_from(stride).unwrap_or(i64::MAX);
        let record = TensorFacts {
            shape: shape_of(&facts),
            dtype: facts.dtype_name,
            strides: Some(facts.strides.into_iter().map(stride).collect()),
            device: facts.device,
            requires_grad: Some(facts.requires_grad),
            placement: None,
            observation,
            data,
            bytes,
            identity,
            note,
        };
        (record, token)
    }
}

/// Measured content of a small tensor: its elements are stored instead of a sketch.
pub(crate) const SMALL: Content = Content::HASH;

/// Returns true if with this content a tensor of so many bytes is stored verbatim instead of as a sketch.
pub(crate) const fn is_stored(content: Content, bytes: usize) -> bool {
    content.sketch.is_some() && bytes < SMALL_TENSOR
}

/// Size of the elements in bytes, in row-major order.
fn size_of(facts: &Facts, dtype: DType) -> usize {
    element_count(&facts.shape).unwrap_or(usize::MAX).saturating_mul(dtype.size())
}

fn shape_of(facts: &Facts) -> Vec<u64> {
    facts.shape.iter().map(|&size| size as u64).collect()
}

/// Returns the elements of a small tensor, in row-major order.
fn elements(tensor: &TensorRef<'_>) -> Arc<[u8]> {
    tensor.contiguous_bytes().map_or_else(|| tensor.to_bytes().into(), Into::into)
}

/// First line of an exception, truncated.
pub(crate) fn short(error: &PyErr) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().chars().take(200).collect()
}
