//! Properties of a whole part: the dtypes the two runs compute in, and the purpose of the captures.

use std::collections::BTreeMap;

use super::ops::{Kind, Traits, base};
use super::precision::Precision;
use probe_dump::{DType, Op, OpKind, Phase, Rank, Slot, SlotSide, Task};
use probe_pair::PartPair;

/// Fraction of float tensors that must differ in dtype for the runs to count as computing in different dtypes.
const MIXED_SHARE: f64 = 0.3;

/// Fraction of ops that must change the dtype by themselves for that to be a setting (autocast) and not their
/// fault.
const MIXED_OPS: f64 = 0.2;

/// Facts about one part that apply to every slot.
#[derive(Debug, Clone, Default)]
pub(super) struct Setting {
    /// The runs compute in different float dtypes: the baseline's, the candidate's, number of tensors.
    pub(super) mixed: Option<(DType, DType, usize)>,
    /// Precision of the coarsest float dtype (except fp8) that is used substantially.
    pub(super) coarsest: Option<&'static Precision>,
    /// Binary32 products are computed in this coarser dtype (autocast).
    pub(super) autocast: Option<&'static Precision>,
    /// The runs are of different frameworks, which index with integers of different widths.
    pub(super) two_frameworks: bool,
    /// Functions whose results autocast leaves in another dtype on each side, in every call.
    pub(super) lists: BTreeMap<Box<str>, (DType, DType)>,
    /// Both captures recorded checksums or hashes to prove equality of bits.
    pub(super) exact_task: bool,
}

impl Setting {
    pub(super) fn of(pair: &PartPair) -> Self {
        let exact = |task| matches!(task, Task::Checksum | Task::Xor | Task::Hash);
        Self {
            mixed: mixed_precision(pair),
            coarsest: coarsest(pair),
            autocast: autocast(&pair.baseline),
            lists: lists(pair),
            two_frameworks: pair.baseline.framework != pair.candidate.framework,
            exact_task: exact(pair.baseline.task) && exact(pair.candidate.task),
        }
    }
}

fn float_dtype(slot: &Slot) -> Option<DType> {
    slot.value.tensor()?.dtype.known().filter(|dtype| dtype.is_float())
}

fn mixed_precision(pair: &PartPair) -> Option<(DType, DType, usize)> {
    let (mut floats, mut mismatched) = (0_usize, 0_usize);
    let (mut ops, mut introducing) = (0_usize, 0_usize);
    let mut tally: Vec<((DType, DType), usize)> = Vec::new();
    for op in &pair.ops {
        let (mut input, mut result, mut has_result) = (false, false, false);
        for slots in op.slots.iter() {
            let (Some(b), Some(c)) = pair.slot(op, slots) else { continue };
            let (Some(x), Some(y)) = (float_dtype(b), float_dtype(c)) else { continue };
            floats += 1;
            has_result |= b.side.is_result();
            if x != y {
                mismatched += 1;
                *(if b.side.is_result() { &mut result } else { &mut input }) = true;
                match tally.iter_mut().find(|(key, _)| *key == (x, y)) {
                    Some((_, count)) => *count += 1,
                    None => tally.push(((x, y), 1)),
                }
            }
        }
        ops += usize::from(has_result);
        introducing += usize::from(result && !input);
    }
    let throughout = mismatched as f64 >= MIXED_SHARE * floats as f64;
    let by_setting = introducing >= 3 && introducing as f64 >= MIXED_OPS * ops as f64;
    let ((b, c), _) = tally.into_iter().max_by_key(|(_, count)| *count)?;
    (mismatched > 2 && (throughout || by_setting)).then_some((b, c, mismatched))
}

fn coarsest(pair: &PartPair) -> Option<&'static Precision> {
    let mut counts: Vec<(DType, usize)> = Vec::new();
    let mut total = 0_usize;
    let slots = |ops: &[Op]| ops.iter().flat_map(|op| &op.slots).filter_map(float_dtype).collect::<Vec<_>>();
    for dtype in slots(&pair.baseline.ops).into_iter().chain(slots(&pair.candidate.ops)) {
        total += 1;
        match counts.iter_mut().find(|(known, _)| *known == dtype) {
            Some((_, count)) => *count += 1,
            None => counts.push((dtype, 1)),
        }
    }
    counts
        .into_iter()
        .filter(|(dtype, count)| dtype.size() > 1 && *count * 20 >= total)
        .filter_map(|(dtype, _)| Precision::of(dtype))
        .reduce(Precision::coarser)
}

/// Returns the functions that only one side's autocast computes in a coarser dtype: devices have lists of their
/// own. Every call on inputs of equal dtypes shows the same two dtypes, and there are several.
fn lists(pair: &PartPair) -> BTreeMap<Box<str>, (DType, DType)> {
    let mut shown: BTreeMap<Box<str>, Vec<(DType, DType)>> = BTreeMap::new();
    if autocast(&pair.baseline).is_none() || autocast(&pair.candidate).is_none() {
        return BTreeMap::new();
    }
    for op in &pair.ops {
        let (Some(b), Some(_)) = pair.op(op) else { continue };
        let dtypes = op.slots.iter().filter_map(|slots| {
            let (b, c) = pair.slot(op, slots);
            let (b, c) = (b?, c?);
            Some((b.side.is_result(), float_dtype(b)?, float_dtype(c)?))
        });
        let (results, given): (Vec<_>, Vec<_>) = dtypes.partition(|(is_result, ..)| *is_result);
        let is_function = b.name.kind() == OpKind::Api && b.name.phase() == Phase::Forward;
        let Some(&(_, x, y)) = results.first().filter(|_| is_function) else { continue };
        if given.iter().all(|(_, x, y)| x == y) {
            shown.entry(base(b).into()).or_default().push((x, y));
        }
    }
    let alike = |calls: &[(DType, DType)]| calls.len() > 1 && calls.iter().all(|call| *call == calls[0]);
    let apart = shown.into_iter().filter(|(_, calls)| alike(calls) && calls[0].0 != calls[0].1);
    apart.map(|(name, calls)| (name, calls[0])).collect()
}

/// Returns the coarsest dtype in which a side's products with binary32 inputs have their result.
fn autocast(side: &Rank) -> Option<&'static Precision> {
    let single = Precision::of(DType::F32)?;
    let ops = side.ops.iter().filter(|op| op.name.phase() == Phase::Forward);
    let computes = ops.filter(|op| Traits::of(op).kind == Kind::Product);
    let coarse = computes.filter_map(|op| {
        let floats = |given: bool| {
            op.slots.iter().filter(move |slot| slot.side.is_result() != given).filter_map(float_dtype)
        };
        let all_single = floats(true).all(|dtype| dtype == DType::F32);
        floats(false).next().filter(|_| all_single).and_then(Precision::of)
    });
    coarse.reduce(Precision::coarser).filter(|precision| precision.unit > single.unit)
}

/// Ops that overwrite their first input without reading it.
const OVERWRITING: [&str; 8] =
    ["copy_", "zero_", "fill_", "normal_", "uniform_", "bernoulli_", "exponential_", "random_"];

/// Results of the primitive for batch norm that nothing reads.
const UNSET: [&str; 2] = ["output.1", "output.2"];

/// Collectives whose first input is the receive buffer.
const RECEIVING: [&str; 11] = [
    "recv",
    "irecv",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_base",
    "_all_gather_base",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "reduce_scatter_base",
    "_reduce_scatter_base",
    "all_to_all_single",
];

/// Values of which an op writes only a part: CTC's table of probabilities ends for each sequence at the length of
/// its target.
const PARTLY_WRITTEN: [(&str, &str); 2] = [("_ctc_loss", "output.1"), ("_ctc_loss_backward", "input.6")];

/// Returns true if the slot's content is whatever the memory held before.
pub(super) fn is_uninitialised(op: &Op, slot: &Slot) -> bool {
    let api = op.name.api();
    let received =
        slot.side == SlotSide::Input && (&*slot.path == "input.0" || slot.path.starts_with("input.0."));
    // MindSpore's primitive on CPU returns batch statistics that it does not compute.
    let unset =
        op.name.stem().starts_with("Primitive.") && api == "BatchNorm" && UNSET.contains(&&*slot.path);
    (slot.side == SlotSide::Output && (op.name.only_allocates() || unset))
        || PARTLY_WRITTEN.contains(&(api, &*slot.path))
        || (received && op.name.phase() == Phase::Forward && RECEIVING.contains(&api))
        || (slot.side == SlotSide::Input && &*slot.path == "input.0" && OVERWRITING.contains(&api))
}
