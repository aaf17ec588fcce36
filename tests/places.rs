//! Places of extremes: what they add to statistics, and that a sound pair is not accused for them.

use std::path::Path;
use std::sync::Arc;

use crate::support::answer::Answer;
use crate::support::three_ops::wave;
use probe::capture::{CaptureTask, DumpWriter, OpRecord, RunManifest, SlotRecord, SlotValue, TensorFacts};
use probe::dump::{Content, DType, SlotSide, TensorRef};
use probe::judge::{Cause, RunVerdict, Verdict};
use probe::measure::observe;
use probe::report::text::{TextOptions, render};

const ROWS: usize = 64;
const COLUMNS: usize = 96;

/// One op on an input, and what reads its result.
struct Run<'a> {
    op: &'a str,
    input: &'a [f32],
    output: &'a [f32],
    dtype: DType,
    columns: usize,
    task: CaptureTask,
    /// True if an op makes indices before, by sorting.
    sorts: bool,
}

impl Run<'_> {
    fn write(&self, root: &Path) {
        let mut writer =
            DumpWriter::create(root, &RunManifest { task: self.task, ..RunManifest::default() }, 0).unwrap();
        writer.begin_step(0).unwrap();
        if self.sorts {
            let order: Vec<u8> = (0_i64..).take(ROWS).flat_map(i64::to_le_bytes).collect();
            let order = TensorRef::strided(&order, DType::I64, &[ROWS], &[1], 0).unwrap();
            let facts = TensorFacts {
                dtype: "torch.int64".into(),
                shape: vec![ROWS as u64],
                observation: Some(Arc::new(observe(order, Content::STATISTICS))),
                ..TensorFacts::default()
            };
            let order = SlotRecord {
                path: "output.0".into(),
                side: SlotSide::Output,
                value: SlotValue::Tensor(facts),
            };
            let slots = vec![self.slot("input.0", SlotSide::Input, self.input), order];
            let name = "Tensor.argsort.0.forward".into();
            writer.push(&OpRecord { name, slots, ..OpRecord::default() }).unwrap();
        }
        for (name, values) in
            [(self.op, [self.input, self.output]), ("Functional.layer_norm.9.forward", [self.output; 2])]
        {
            let slots = [("input.0", SlotSide::Input), ("output.0", SlotSide::Output)];
            let slots = slots.iter().zip(values).map(|(&(path, side), values)| self.slot(path, side, values));
            let slots = slots.collect();
            writer.push(&OpRecord { name: name.into(), slots, ..OpRecord::default() }).unwrap();
        }
        writer.finish_step().unwrap();
        writer.close(&[]).unwrap();
    }

    fn slot(&self, path: &str, side: SlotSide, values: &[f32]) -> SlotRecord {
        let bytes: Vec<u8> = match self.dtype {
            DType::Bf16 => values.iter().flat_map(|v| half::bf16::from_f32(*v).to_le_bytes()).collect(),
            _ => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        };
        let (shape, strides) = ([values.len() / self.columns, self.columns], [self.columns, 1]);
        let tensor = TensorRef::strided(&bytes, self.dtype, &shape, &strides, 0).unwrap();
        let content =
            if self.task == CaptureTask::Statistics { Content::STATISTICS } else { Content::SKETCH };
        let facts = TensorFacts {
            dtype: self.dtype.torch_name().into(),
            shape: shape.iter().map(|&size| size as u64).collect(),
            observation: Some(Arc::new(observe(tensor, content))),
            ..TensorFacts::default()
        };
        SlotRecord { path: path.into(), side, value: SlotValue::Tensor(facts) }
    }
}

/// A pair in which the candidate's op made `other` of the same input.
struct Pair<'a> {
    op: &'a str,
    output: Vec<f32>,
    other: Vec<f32>,
    dtype: DType,
    columns: usize,
    task: CaptureTask,
    sorts: bool,
}

impl Pair<'_> {
    /// `op` makes another wave of one wave, in other places in the candidate.
    fn rearranged(op: &str, change: impl Fn(&mut [f32])) -> Pair<'_> {
        let output = wave(2);
        let mut other = output.clone();
        change(&mut other);
        let (dtype, task) = (DType::F32, CaptureTask::Statistics);
        Pair { op, output, other, dtype, columns: COLUMNS, task, sorts: false }
    }

    fn compare(&self) -> Answer {
        let folder = tempfile::tempdir().unwrap();
        let input = wave(1);
        for (name, output) in [("baseline", &self.output), ("candidate", &self.other)] {
            let &Pair { op, dtype, columns, task, sorts, .. } = self;
            Run { op, input: &input, output, dtype, columns, task, sorts }.write(&folder.path().join(name));
        }
        Answer::of(&folder.path().join("baseline"), &folder.path().join("candidate"))
    }

    fn is_silent(&self) -> bool {
        let answer = self.compare();
        answer.summary.verdict == RunVerdict::Agree && answer.summary.culprits.is_empty()
    }
}

/// As a kernel does that reads the memory of a transposed matrix row by row.
fn transpose(values: &mut [f32]) {
    let read: Vec<f32> =
        (0..ROWS * COLUMNS).map(|index| values[index % ROWS * COLUMNS + index / ROWS]).collect();
    values.copy_from_slice(&read);
}

fn shift(values: &mut [f32]) {
    values.rotate_right(COLUMNS);
}

const KEEP: [&str; 4] = [
    "Tensor.contiguous.0.forward",
    "Functional.linear.0.forward",
    "Tensor.__add__.0.forward",
    "Tensor.__mul__.0.backward",
];

#[test]
fn elements_in_other_places_are_seen_in_statistics() {
    for op in KEEP {
        for change in [transpose, shift, |values: &mut [f32]| values.reverse()] {
            let answer = Pair::rearranged(op, change).compare();
            let cause = if op.contains("backward") { Cause::Gradient } else { Cause::Numerics };
            assert_eq!(answer.first(), Some((op, "output.0", cause)), "{answer:?}");
            assert_eq!(answer.summary.culprits.len(), 1, "{op}");
            let first = answer.summary.first_divergence.as_ref().unwrap();
            let said = "inputs have equal statistics, equal statistics, but elements are rearranged";
            assert_eq!(first.reason, said);
            let row = answer.rows.iter().find(|row| row.op == op && row.slot == "output.0").unwrap();
            assert_eq!(row.verdict, Verdict::Differs);
        }
    }
}

#[test]
fn the_answer_shows_both_places() {
    let mut pair = Pair::rearranged(KEEP[0], |_| ());
    // In the last element of its row, and in the first of the next.
    pair.output[3 * COLUMNS + 95] = 7.5;
    pair.output[100] = -9.25;
    pair.other = pair.output.clone();
    pair.other.rotate_right(1);
    let answer = pair.compare();
    let text = render(&answer.summary, &TextOptions::default());
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = "where largest element at [3, 95] against [4, 0] of [64, 96]: 7.5 on both sides; \
                smallest element at [1, 4] against [1, 5]: -9.25 on both sides";
    assert!(joined.contains(said), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let place = answer.summary.culprits[0].place.as_ref().unwrap();
    let extremes = place.extremes.as_ref().unwrap();
    assert_eq!(extremes.greatest.each_ref().map(|found| &*found.index), [&[3, 95][..], &[4, 0]]);
    assert!(extremes.least.iter().all(|found| found.value.to_bits() == (-9.25_f64).to_bits()));
}

#[test]
fn a_sketch_shows_them_and_is_judged_by_its_distance() {
    let mut pair = Pair::rearranged(KEEP[1], shift);
    pair.task = CaptureTask::Sketch;
    let answer = pair.compare();
    assert_eq!(answer.first(), Some((KEEP[1], "output.0", Cause::Numerics)));
    let first = answer.summary.first_divergence.as_ref().unwrap();
    assert!(first.reason.contains("from its sketch") && !first.reason.contains("places"), "{}", first.reason);
    assert!(first.place.as_ref().unwrap().extremes.is_some());
}

#[test]
fn other_rounding_alone_is_no_fault_wherever_the_extremes_are() {
    for op in KEEP {
        // Every element off by some 1e-7; the greatest and its double change the order.
        let rounded = |values: &mut [f32]| {
            let noise = wave(3);
            for (value, noise) in values.iter_mut().zip(noise) {
                *value *= 1.0 + 6e-8 * noise;
            }
        };
        let mut pair = Pair::rearranged(op, rounded);
        pair.output[5000] = 4.0;
        pair.output[100] = 4.0_f32.next_down();
        pair.other[5000] = 4.0_f32.next_down();
        pair.other[100] = 4.0;
        assert!(pair.is_silent(), "{op}");
    }
}

#[test]
fn functions_that_saturate_may_be_first_at_their_bound_anywhere() {
    for op in ["Functional.softmax.0.forward", "Functional.sigmoid.0.forward", "Functional.relu.0.forward"] {
        let (high, low) = (1.0_f32, 1.0_f32.next_down());
        let mut pair = Pair::rearranged(op, |_| ());
        for (place, (b, c)) in
            [(high, low), (low, high), (high, high), (low, high), (high, low)].iter().enumerate()
        {
            (pair.output[600 * place], pair.other[600 * place]) = (*b, *c);
        }
        pair.output.iter_mut().chain(&mut pair.other).for_each(|value| *value = value.clamp(0.0, 1.0));
        assert!(pair.is_silent(), "{op}");
    }
}

#[test]
fn elements_that_are_nearly_equal_or_few_or_short_may_change_places() {
    let nearly = |index: usize| if index % 7 == 3 { 0.5_f32 } else { 0.5_f32.next_down() };
    let mut pair = Pair::rearranged(KEEP[1], |_| ());
    pair.output = (0..ROWS * COLUMNS).map(nearly).collect();
    pair.other = pair.output.clone();
    pair.other.rotate_left(1);
    assert!(pair.is_silent(), "nearly equal");

    let mut pair = Pair::rearranged(KEEP[1], |_| ());
    pair.output = wave(2)[..40].to_vec();
    pair.other = pair.output.iter().rev().copied().collect();
    pair.columns = 8;
    assert!(pair.is_silent(), "few");

    let mut pair = Pair::rearranged(KEEP[1], shift);
    pair.dtype = DType::Bf16;
    assert!(pair.is_silent(), "of bfloat16, whose flips cancel");
    // A copy rounds nothing.
    pair.op = KEEP[0];
    assert_eq!(pair.compare().first(), Some((KEEP[0], "output.0", Cause::Numerics)));
}

#[test]
fn what_was_sorted_may_be_in_another_order_of_which_statistics_show_nothing() {
    for op in KEEP {
        let mut pair = Pair::rearranged(op, shift);
        pair.sorts = true;
        assert!(pair.is_silent(), "{op}");
    }
    // Nor do they of what a module does that no function inside shows.
    assert!(Pair::rearranged("Module.fc.Linear.forward.0", shift).is_silent());
}

#[test]
fn what_arrives_in_other_places_accuses_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (wave(1), wave(2));
    for name in ["baseline", "candidate"] {
        let (mut input, mut output) = (input.clone(), output.clone());
        if name == "candidate" {
            shift(&mut input);
            shift(&mut output);
        }
        let (dtype, task) = (DType::F32, CaptureTask::Statistics);
        Run { op: KEEP[1], input: &input, output: &output, dtype, columns: COLUMNS, task, sorts: false }
            .write(&folder.path().join(name));
    }
    let answer = Answer::of(&folder.path().join("baseline"), &folder.path().join("candidate"));
    assert!(answer.summary.culprits.is_empty(), "{:?}", answer.summary.culprits);
    let row = answer.rows.iter().find(|row| row.slot == "input.0").unwrap();
    assert_eq!(row.reason, "equal statistics, but elements are rearranged");
}
