//! Copies the tensors of a launch: inputs before it, outputs after it, both on its own stream. Nothing waits for the
//! device.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::control;
use crate::device::{Context, Event, Runtime, Stream};
use crate::graph::{self, Destination, Share};
use crate::handles::{Tensor, acl_size};
use crate::notes::{self, Count};
use crate::plan::{self, Argument, Basis, Plan};
use crate::ring::{Item, Piece, rounded};
use crate::roles::Role;
use crate::scope::{self, Scope};
use crate::settings::Settings;
use crate::stubs::Function;
use crate::switches;
use crate::watch;
use crate::writer::{self, Message, Recorder};

/// A tensor of a launch, with its copies.
#[derive(Debug, Clone)]
pub(crate) struct Copied {
    pub(crate) tensor: Arc<Tensor>,
    pub(crate) role: Role,
    /// Contents before the launch.
    pub(crate) before: Option<Piece>,
    /// Contents after the launch.
    pub(crate) after: Option<Piece>,
    /// Second copy of an input, made after the launch to check that it is only read.
    pub(crate) check: Option<Piece>,
    /// Reason why there is no copy.
    pub(crate) without: Option<String>,
}

/// A launch, as passed to the writer.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) step: u64,
    pub(crate) plan: Arc<Plan>,
    /// The tensors of the plan in order: those of lists one after the other, without empty entries.
    pub(crate) tensors: Vec<Copied>,
    /// Reached when the copies are finished.
    pub(crate) event: Option<Event>,
    pub(crate) context: Context,
    pub(crate) device: i32,
    pub(crate) note: Option<String>,
}

/// A launch under way.
#[derive(Debug)]
pub(crate) struct Open {
    record: Record,
    stream: Stream,
    place: Place,
}

/// Destination of the copies of a launch.
#[derive(Debug)]
enum Place {
    /// An entry of the ring, by its number.
    Ring(u64),
    /// The graph being captured: the copies are made with each replay.
    Graph(Share),
    /// None.
    Nowhere,
}

thread_local! {
    /// Entries of the launches that this thread is in, with the stack address of each. One left by an exception stays
    /// until a launch comes from above it.
    static OPEN: RefCell<Vec<(u64, usize)>> = const { RefCell::new(Vec::new()) };
}

/// Formats in which strides determine the element positions: NCHW, NHWC, ND, NDHWC, NCDHW, NCL and the undefined one.
const PLAIN_FORMATS: [i32; 7] = [-1, 0, 1, 2, 27, 30, 47];

/// Returns true if launches currently matter to anyone.
pub(crate) fn is_looked_at() -> bool {
    switches::is_recording() || graph::is_any_captured() || watch::is_set()
}

/// Runs before an operator is launched; `None` if it is not recorded.
pub(crate) fn before(
    function: &'static Function,
    executor: u64,
    stream: Stream,
    stack: usize,
) -> Option<Open> {
    let plan = plan::launched(executor);
    watch::tell(&function.operator, plan.as_deref());
    if !switches::is_recording() && !graph::is_any_captured() {
        return None;
    }
    if plan.as_ref().map_or(!scope::is_on_in_this_thread(), |plan| plan.muted) {
        return None;
    }
    let plan = plan.unwrap_or_else(|| Arc::new(Plan::bare(&*function.operator, Basis::Unscanned)));
    let open = begin(plan, stream, stack)?;
    if open.record.plan.basis == Basis::Unscanned {
        notes::count(Count::UnknownExecutor, &format!("aclnn{}", function.operator));
    }
    Some(open)
}

/// Begins to record a launch with these arguments, which was made at stack address `stack`.
pub(crate) fn begin(plan: Arc<Plan>, stream: Stream, stack: usize) -> Option<Open> {
    let settings = Settings::get()?;
    let destination = graph::destination(stream);
    if matches!(destination, Destination::Nowhere) || !destination.is_graph() && !switches::is_recording() {
        return None;
    }
    let recorder = Recorder::get()?;
    // Stacks grow downwards: launches made below this one are over.
    let over = OPEN.with_borrow_mut(|open| open.extract_if(.., |(_, at)| *at <= stack).collect::<Vec<_>>());
    for (number, _) in over {
        recorder.ring.set(number, Item::Dropped);
    }
    let wanted = settings.wants(&plan.operator);
    let share = match destination {
        Destination::Graph(capture) => Some(graph::add(capture, stream, &plan, wanted)?),
        _ if wanted => None,
        _ => return None,
    };
    let runtime = recorder.runtime;
    let record = Record {
        step: control::step(),
        tensors: tensors(&plan),
        plan,
        event: None,
        context: runtime.context(),
        device: runtime.device(),
        note: None,
    };
    match share {
        Some(share) => Some(into_graph(record, share, stream)),
        None => Some(into_ring(record, recorder, settings, stream, stack)),
    }
}

/// Copies the inputs of a launch to the ring.
fn into_ring(
    mut record: Record,
    recorder: &Recorder,
    settings: &Settings,
    stream: Stream,
    stack: usize,
) -> Open {
    let limit = settings.max_tensor.unwrap_or(usize::MAX).min(recorder.ring.size() / 2);
    let checks = record.plan.function.is_some_and(|function| {
        record.plan.basis == Basis::Table && function.checked.fetch_add(1, Ordering::Relaxed) == 0
    });
    let layout = Layout::of(&mut record, limit, checks);
    let Some(taken) = recorder.ring.take(layout.bytes, Duration::from_secs(settings.patience)) else {
        notes::count(Count::Dropped, &format!("aclnn{}", record.plan.operator));
        return record.without("the writer did not keep up", stream, Place::Nowhere);
    };
    OPEN.with_borrow_mut(|open| open.push((taken.number, stack)));
    layout.begin(&mut record, taken.address, recorder.runtime, stream);
    Open { record, stream, place: Place::Ring(taken.number) }
}

/// Does the same in a graph being captured: the copies become part of it.
fn into_graph(mut record: Record, share: Share, stream: Stream) -> Open {
    let operator = format!("aclnn{}", record.plan.operator);
    record.note = Some(share.note());
    if let Some(scope) = record.plan.scope.clone().filter(|scope| !scope.op.is_empty()) {
        // Calls are numbered within a step, and replays are in different steps.
        let scope = Scope { op: Box::default(), module: scope.module.clone() };
        Arc::make_mut(&mut record.plan).scope = Some(Arc::new(scope));
    }
    if share.is_grouped() {
        notes::count(Count::Grouped, &operator);
        return record.without(
            "the program changes its arguments between replays",
            stream,
            Place::Graph(share),
        );
    }
    let limit = Settings::get().and_then(|settings| settings.max_tensor).unwrap_or(usize::MAX);
    let layout = Layout::of(&mut record, limit, false);
    let Some(address) = share.room(layout.bytes) else {
        notes::count(Count::GraphFull, &format!("{operator}, {} bytes", layout.bytes));
        return record.without(
            "does not fit into the memory for graphs (--graph-memory)",
            stream,
            Place::Graph(share),
        );
    };
    if let Ok(runtime) = Runtime::get() {
        layout.begin(&mut record, address, runtime, stream);
    }
    Open { record, stream, place: Place::Graph(share) }
}

/// Positions of a launch's copies, relative to the start of its memory.
struct Layout {
    /// For each tensor: its elements on the device, and the positions of the copies before and after, and of the one
    /// for checking.
    places: Vec<(Option<Extent>, [Option<usize>; 3])>,
    bytes: usize,
}

impl Layout {
    /// Lays out the tensors that can be copied. With `checks`, inputs are copied a second time.
    fn of(record: &mut Record, limit: usize, checks: bool) -> Self {
        let extents: Vec<Option<Extent>> =
            record.tensors.iter_mut().map(|copied| wanted(copied, limit)).collect();
        let written: Vec<Extent> = record
            .tensors
            .iter()
            .zip(&extents)
            .filter(|(copied, _)| copied.role != Role::Input)
            .filter_map(|(_, extent)| *extent)
            .collect();
        // Memory that occurs twice among the inputs is copied once.
        let mut known: HashMap<(usize, usize), usize> = HashMap::new();
        let mut bytes = 0;
        let mut places = Vec::with_capacity(extents.len());
        for (copied, found) in record.tensors.iter().zip(extents) {
            let Some(extent) = found else {
                places.push((None, [None; 3]));
                continue;
            };
            let mut place = || {
                let offset = bytes;
                bytes += rounded(extent.bytes);
                offset
            };
            let before = (copied.role != Role::Output)
                .then(|| *known.entry((extent.address, extent.bytes)).or_insert_with(&mut place));
            let after = (copied.role != Role::Input).then(&mut place);
            let check =
                (checks && copied.role == Role::Input && !written.iter().any(|other| other.meets(&extent)))
                    .then(&mut place);
            places.push((found, [before, after, check]));
        }
        Self { places, bytes }
    }

    /// Assigns the copies their addresses from `start` on, and makes those of the inputs.
    fn begin(self, record: &mut Record, start: usize, runtime: &Runtime, stream: Stream) {
        let mut made = Vec::new();
        for (copied, (extent, places)) in record.tensors.iter_mut().zip(self.places) {
            let Some(extent) = extent else { continue };
            let [before, after, check] = places
                .map(|offset| offset.map(|offset| Piece { address: start + offset, bytes: extent.bytes }));
            (copied.before, copied.after, copied.check) = (before, after, check);
            if let Some(piece) = before
                && !made.contains(&piece.address)
            {
                made.push(piece.address);
                copy(runtime, copied, &extent, piece, stream);
            }
        }
    }
}

/// Returns the tensors of a plan, in order.
fn tensors(plan: &Plan) -> Vec<Copied> {
    let mut found = Vec::new();
    for parameter in &plan.parameters {
        let all: &[Option<Arc<Tensor>>] = match &parameter.argument {
            Argument::Tensor(tensor) => &[Some(tensor.clone())],
            Argument::Tensors(tensors) => tensors,
            _ => continue,
        };
        found.extend(all.iter().flatten().map(|tensor| Copied {
            tensor: tensor.clone(),
            role: parameter.role,
            before: None,
            after: None,
            check: None,
            without: None,
        }));
    }
    found
}

/// Memory that contains the elements of a tensor.
#[derive(Debug, Clone, Copy)]
struct Extent {
    address: usize,
    bytes: usize,
}

impl Extent {
    /// Returns true if two extents overlap.
    const fn meets(&self, other: &Self) -> bool {
        self.address < other.address + other.bytes && other.address < self.address + self.bytes
    }
}

/// Returns the memory to copy for a tensor: none if it has no elements, or cannot be read, which is noted.
fn wanted(copied: &mut Copied, limit: usize) -> Option<Extent> {
    let tensor = &copied.tensor;
    let mut refuse = |what: Count, why: String| {
        notes::count(what, &why);
        copied.without = Some(why);
        None
    };
    if tensor.sizes.shape().contains(&0) {
        return None;
    }
    let Some(size) = acl_size(tensor.dtype) else {
        return refuse(Count::UnknownFormat, format!("CANN's element type {} is not measured", tensor.dtype));
    };
    if !PLAIN_FORMATS.contains(&tensor.format) {
        return refuse(Count::UnknownFormat, format!("CANN's format {} is not measured", tensor.format));
    }
    match extent(tensor, size) {
        Some(extent) if extent.bytes > limit => refuse(
            Count::TooLarge,
            format!("{} bytes, the limit is {limit} (--ring, --max-tensor)", extent.bytes),
        ),
        Some(extent) => Some(extent),
        None => refuse(
            Count::UnknownFormat,
            format!("shape {:?} with strides {:?}", tensor.sizes.shape(), tensor.sizes.strides()),
        ),
    }
}

/// Returns the memory of the elements; `None` if shape and strides are invalid, which includes negative strides.
fn extent(tensor: &Tensor, size: usize) -> Option<Extent> {
    if tensor.data == 0 {
        return None;
    }
    let mut last = 0_usize;
    for (&count, &stride) in tensor.sizes.shape().iter().zip(tensor.sizes.strides()) {
        let steps = usize::try_from(count).ok()?.checked_sub(1)?;
        last = last.checked_add(steps.checked_mul(usize::try_from(stride).ok()?)?)?;
    }
    let offset = usize::try_from(tensor.offset).ok()?.checked_mul(size)?;
    let address = tensor.data.checked_add(offset)?;
    Some(Extent { address, bytes: last.checked_add(1)?.checked_mul(size)? })
}

fn copy(runtime: &Runtime, copied: &mut Copied, extent: &Extent, piece: Piece, stream: Stream) {
    // SAFETY: the piece belongs to this launch until the writer, which waits for the stream, returns it; a graph's
    // piece belongs to it until the graph is gone.
    #[expect(unsafe_code, reason = "the device writes to pinned memory")]
    let status = unsafe { runtime.copy(piece.address as *mut u8, extent.address, extent.bytes, stream) };
    if status != 0 {
        let why = format!("the device refused the copy ({status})");
        notes::count(Count::CopyFailed, &why);
        copied.lose(why);
    }
}

impl Copied {
    /// Discards the copies and notes the reason.
    pub(crate) fn lose(&mut self, why: String) {
        (self.before, self.after, self.check, self.without) = (None, None, None, Some(why));
    }
}

impl Record {
    /// Opens a launch of which only name and arguments are recorded.
    fn without(mut self, why: &str, stream: Stream, place: Place) -> Open {
        let note = self.note.take();
        self.note = Some(note.map_or_else(|| why.to_owned(), |note| format!("{note}; {why}")));
        for copied in &mut self.tensors {
            copied.without.get_or_insert_with(|| why.to_owned());
        }
        Open { record: self, stream, place }
    }

    /// Returns the same launch in another step, as a replay of the graph makes it.
    pub(crate) fn again(&self, step: u64) -> Self {
        Self {
            step,
            plan: self.plan.clone(),
            tensors: self.tensors.clone(),
            event: None,
            context: self.context,
            device: self.device,
            note: self.note.clone(),
        }
    }

    /// Discards all copies of the launch.
    pub(crate) fn lose(&mut self, why: &str) {
        for copied in &mut self.tensors {
            copied.lose(why.to_owned());
        }
    }
}

impl Open {
    /// Runs after the launch.
    pub(crate) fn after(mut self, succeeded: bool) {
        let Some(recorder) = Recorder::get() else { return };
        if let Place::Ring(number) = self.place {
            OPEN.with_borrow_mut(|open| open.retain(|(other, _)| *other != number));
        }
        if succeeded && !matches!(self.place, Place::Nowhere) {
            self.copy_results(recorder.runtime);
        }
        match self.place {
            Place::Nowhere if succeeded => recorder.ring.push(Message::Launch(Box::new(self.record))),
            Place::Graph(share) if succeeded => share.keep(self.record),
            Place::Nowhere | Place::Graph(_) => {}
            Place::Ring(number) => {
                // Needed even after a failed launch: copies made before it are under way.
                match recorder.runtime.mark(self.stream) {
                    Ok(event) => self.record.event = Some(event),
                    Err(status) => {
                        let why = format!("the stream accepts no mark ({status})");
                        notes::count(Count::CopyFailed, &why);
                        self.record.lose(&why);
                    }
                }
                if !succeeded {
                    for copied in &mut self.record.tensors {
                        (copied.after, copied.check) = (None, None);
                    }
                    self.record.note = Some("the launch failed".to_owned());
                }
                recorder.ring.set(number, Item::Ready(Message::Launch(Box::new(self.record))));
            }
        }
    }

    fn copy_results(&mut self, runtime: &Runtime) {
        for copied in &mut self.record.tensors {
            let Some(extent) = acl_size(copied.tensor.dtype).and_then(|size| extent(&copied.tensor, size))
            else {
                continue;
            };
            for piece in [copied.after, copied.check].into_iter().flatten() {
                copy(runtime, copied, &extent, piece, self.stream);
            }
        }
    }
}

/// Notes that a step has ended.
pub(crate) fn step_ended(step: u64) {
    if let Some(recorder) = writer::Recorder::begun() {
        recorder.ring.push(Message::StepEnd(step));
    }
}
