//! One op for every special value: the right verdict of each with data and with statistics alone, and metrics held
//! against two others: those of `numpy`, and the table of the older tool.
//!
//! `testdata/make/edge.py` made the pair and the tables.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::sync::LazyLock;

use crate::support::answer::{Answer, Row};
use crate::support::testdata;
use probe::judge::Role;
use probe::measure::Metric;

static DATA: LazyLock<Answer> =
    LazyLock::new(|| Answer::of(&testdata("edge/baseline"), &testdata("edge/candidate")));
static STATISTICS: LazyLock<Answer> = LazyLock::new(|| {
    Answer::of(&testdata("edge/statistics/baseline"), &testdata("edge/statistics/candidate"))
});

fn op(case: &str) -> String {
    format!("Torch.{case}.0.forward")
}

/// Verdict of the slot that a case is about, and the cause for which its op is named at fault, with data and with
/// statistics. Every other slot of the op agrees. `blind` are those that statistics cannot tell from agreement.
const EXPECTED: &str = "
# Zeros.
equal                     output.0            bit-equal              close
zeros_both                output.0            bit-equal              close
zeros_candidate           output.0            differs:numerics       differs:numerics
zeros_baseline            output.0            differs:numerics       differs:numerics
zeros_signed              output.0            close                  close
tiny_against_zero         output.0            close                  close
one_zero_same             output.0            bit-equal              close
one_zero_off              output.0            differs:numerics       differs:numerics

# NaN and infinities.
nan_same_places           output.0            close                  close
nan_same_places_rest_off  output.0            differs:numerics       close blind
nan_other_places          output.0            non-finite:non-finite  close blind
nan_candidate_only        output.0            non-finite:non-finite  non-finite:non-finite
nan_baseline_only         output.0            non-finite:non-finite  non-finite:non-finite
nan_all                   output.0            bit-equal              close
inf_same                  output.0            bit-equal              close
inf_other_sign            output.0            non-finite:non-finite  non-finite:non-finite
inf_against_nan           output.0            non-finite:non-finite  non-finite:non-finite
f16_overflow              output.0            non-finite:non-finite  non-finite:non-finite

# Tensors of one element.
scalar_float              output.0            differs:numerics       differs:numerics
scalar_equal              output.0            bit-equal              close
scalar_int                output.0            differs:numerics       differs:numerics
scalar_bool               output.0            differs:numerics       differs:numerics
scalar_nan                output.0            non-finite:non-finite  non-finite:non-finite
scalar_nan_both           output.0            bit-equal              close
shape_1                   output.0            differs:numerics       differs:numerics
shape_1_1                 output.0            differs:numerics       differs:numerics

# Shapes.
shape_5_against_1_5       output.0            bit-equal              close
shape_other               output.0            shape:structure        shape:structure
shape_flat                output.0            shape:structure        shape:structure
empty_both                output.0            bit-equal              bit-equal
empty_baseline            output.0            shape:structure        shape:structure

# Element types; what is exact is compared exactly.
bf16_against_f32          output.0            dtype:dtype            dtype:dtype
f64_against_f32           output.0            dtype:dtype            dtype:dtype
int32_against_int64       output.0            dtype:dtype            dtype:dtype
float_against_int         output.0            dtype:dtype            dtype:dtype
float_against_bool        output.0            dtype:dtype            dtype:dtype
int64_quarter             output.0            differs:numerics       close blind
int64_beyond_2_53         output.0            differs:numerics       differs:numerics
uint8_wrapped             output.0            differs:numerics       differs:numerics
bool_flips                output.0            differs:numerics       close blind
complex_imaginary         output.0            differs:numerics       differs:numerics
fp8_equal                 output.0            bit-equal              unknown
fp8_twice                 output.0            differs:numerics       unknown blind
f64_last_digits           output.0            close                  close

# Rounding, and what is not.
bf16_one_step             output.0            close                  close
f16_one_step              output.0            close                  close
f32_one_step              output.0            close                  close
denormal                  output.0            close                  close
third_off                 output.0            differs:numerics       differs:numerics
one_huge                  output.0            differs:numerics       differs:numerics
sign_flip                 output.0            differs:numerics       close blind
permuted                  output.0            differs:numerics       close blind
bf16_scaled               output.0            differs:numerics       close blind
limit_1_in_1000           output.0            differs:numerics       differs:numerics
opposite                  output.0            differs:numerics       close blind
orthogonal                output.0            differs:numerics       close blind
huge                      output.0            differs:numerics       differs:numerics

# Several results, arguments, and what one side lacks.
second_of_two             output.1            differs:numerics       differs:numerics
slice                     input.1             differs:argument       differs:argument
size                      input.1             differs:argument       differs:argument
text                      input.1             differs:argument       differs:argument
flag                      kwarg.training      differs:argument       differs:argument
eps                       output.0            differs:argument       differs:argument
none                      input.1             bit-equal              bit-equal
device                    kwarg.device        close                  close
dtype_by_place            input.1             unknown                unknown
nested                    kwarg.config.b.2    bit-equal              close
nested_off                kwarg.config.b.2    differs                differs
requires_grad             output.0            differs:argument       differs:argument
slot_baseline_only        output.1            missing:structure      missing:structure
slot_candidate_only       output.1            missing:structure      missing:structure
missing_file              output.0            unreadable             close
op_baseline_only          output.0            missing                missing
op_candidate_only         output.0            missing                missing
";

/// Returns the answer for a slot, in the form of the table.
fn said(answer: &Answer, row: &Row) -> String {
    let named = answer.culprit(&row.op).filter(|culprit| culprit.slot == row.slot || culprit.slot.is_empty());
    named.map_or_else(|| row.verdict.to_string(), |culprit| format!("{}:{}", row.verdict, culprit.cause))
}

#[test]
fn every_case_has_the_right_verdict_and_cause() {
    let mut wrong = String::new();
    let mut cases: Vec<String> = Vec::new();
    for line in EXPECTED.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [case, slot, data, statistics] = words[..4] else { panic!("{line}") };
        for (answer, expected) in [(&*DATA, data), (&*STATISTICS, statistics)] {
            let row = answer.row(&op(case), slot);
            let found = said(answer, row);
            if found != expected {
                _ = writeln!(wrong, "{case} {slot}: {found}, not {expected}: {}", row.reason);
            }
            // The eps that differs is told with the output that it changed; an op on one side lacks all its slots.
            let others = answer.rows.iter().filter(|other| other.op == row.op && other.slot != slot);
            for other in others.filter(|_| !matches!(case, "eps" | "op_baseline_only" | "op_candidate_only"))
            {
                if !other.verdict.is_fine() {
                    _ = writeln!(wrong, "{case} {}: {}", other.slot, other.verdict);
                }
            }
        }
        let blind = words.get(4) == Some(&"blind");
        let visible = |word: &str| word.split(':').nth(1).is_some();
        assert_eq!(blind, visible(data) && !visible(statistics), "{case}: what statistics cannot tell");
        cases.push(op(case));
    }
    for row in DATA.rows.iter().filter(|row| !cases.contains(&row.op)) {
        _ = writeln!(wrong, "{} has no line in the table", row.op);
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn reasons_say_what_was_found() {
    for (case, slot, part) in [
        ("bool_flips", "output.0", "2 of 4 elements differ"),
        ("int64_quarter", "output.0", "2 of 8 elements differ"),
        ("nan_other_places", "output.0", "baseline 1 NaN, candidate 1 NaN"),
        ("nan_same_places_rest_off", "output.0", "error 3.2e-2"),
        ("inf_same", "output.0", "at the same places on both sides"),
        ("inf_other_sign", "output.0", "baseline 1 +Inf, candidate 1 -Inf"),
        ("zeros_baseline", "output.0", "the baseline is all zero, the candidate is not"),
        ("tiny_against_zero", "output.0", "the baseline is all zero, the candidate within 2^-30 of it"),
        ("denormal", "output.0", "differs in denormal numbers only"),
        ("shape_5_against_1_5", "output.0", "shape [5] against [1, 5], same elements"),
        ("shape_other", "output.0", "shape [4, 3] against [3, 4]"),
        ("slice", "input.1", "[0, 1, None]) against slice([0, 2, None])"),
        ("device", "kwarg.device", "cuda:0 against cpu:None: devices are expected to differ"),
        ("dtype_by_place", "input.1", "the capture could not record this value"),
        ("bf16_scaled", "output.0", "all elements are scaled by 1.0056"),
        ("missing_file", "output.0", "Torch.missing_file.0.forward.output.0.pt: "),
        ("requires_grad", "output.0", "requires_grad false against true"),
    ] {
        let reason = &DATA.row(&op(case), slot).reason;
        assert!(reason.contains(part), "{case}: {reason:?} lacks {part:?}");
    }
    // Equal values in another form need no further word.
    for (case, reason) in [("bf16_against_f32", "bfloat16 against float32"), ("zeros_signed", "")] {
        assert_eq!(DATA.row(&op(case), "output.0").reason, reason, "{case}");
    }
}

#[test]
fn what_has_no_partner_or_no_file_is_counted() {
    let summary = &DATA.summary;
    assert_eq!((summary.counts.ops_baseline_only, summary.counts.ops_candidate_only), (1, 1));
    assert_eq!(summary.counts.role(Role::Unpaired), 2);
    let [missing] = &summary.incomplete[..] else { panic!("{:?}", summary.incomplete) };
    assert_eq!(missing.place, "step 0 rank 0 Torch.missing_file.0.forward output.0");
    assert_eq!(DATA.row(&op("nested_off"), "output.0").role, Role::Recovers);
}

#[test]
fn one_rounding_step_is_one_unit_in_the_last_place() {
    for case in ["bf16_one_step", "f16_one_step", "f32_one_step"] {
        assert_eq!(DATA.row(&op(case), "output.0").metric(Metric::MaxUlp), Some(1.0), "{case}");
    }
}

#[test]
fn metrics_agree_with_numpy_through_the_whole_pipeline() {
    let text = fs::read_to_string(testdata("edge/numpy.json")).unwrap();
    let expected: BTreeMap<String, BTreeMap<String, f64>> = serde_json::from_str(&text).unwrap();
    assert!(expected.len() >= 6, "the expectations are there");
    for (op, metrics) in expected {
        let row = DATA.row(&op, "output.0");
        for (name, value) in metrics {
            let metric = row.metrics.iter().find(|(metric, _)| metric.name() == name);
            let found = metric.and_then(|(_, found)| *found).unwrap_or(f64::NAN);
            assert!((found - value).abs() <= 1e-12 * value.abs(), "{op} {name}: {found:e}, NumPy {value:e}");
        }
    }
}

/// Metrics of the older tool that are wrong, and why.
const WRONG: [(&str, &[Metric], &str); 5] = [
    ("tiny_against_zero", &[Metric::Cosine], "takes a norm of 1e-30 for zero"),
    (
        "nan_same_places_rest_off",
        &[Metric::Within1e3, Metric::Within5e3],
        "counts places where both are NaN as equal",
    ),
    ("nan_all", &EVERY, "compares although no place has numbers on both sides"),
    (
        "int64_beyond_2_53",
        &[Metric::Euclidean, Metric::MaxAbsErr],
        "rounds integers to binary64 before the difference",
    ),
    ("complex_imaginary", &EVERY, "leaves out the imaginary parts"),
];

const EVERY: [Metric; 6] = [
    Metric::Cosine,
    Metric::Euclidean,
    Metric::MaxAbsErr,
    Metric::MaxRelErr,
    Metric::Within1e3,
    Metric::Within5e3,
];

/// Columns of the older tool's table, and the decimals it rounds to.
const COLUMNS: [(&str, Metric, Option<i32>); 6] = [
    ("Cosine", Metric::Cosine, Some(12)),
    ("EucDist", Metric::Euclidean, None),
    ("MaxAbsErr", Metric::MaxAbsErr, Some(12)),
    ("MaxRelativeErr", Metric::MaxRelErr, Some(12)),
    ("One Thousandth Err Ratio", Metric::Within1e3, Some(12)),
    ("Five Thousandths Err Ratio", Metric::Within5e3, Some(12)),
];

/// Rows of a CSV file by column name.
fn table(name: &str) -> Vec<BTreeMap<String, String>> {
    let text = fs::read_to_string(testdata(name)).unwrap();
    let cells = |line: &str| {
        let mut cells = vec![String::new()];
        let mut quoted = false;
        for c in line.chars() {
            match c {
                '"' => quoted = !quoted,
                ',' if !quoted => cells.push(String::new()),
                c => cells.last_mut().unwrap().push(c),
            }
        }
        cells
    };
    let mut lines = text.lines();
    let header = cells(lines.next().unwrap());
    let rows: Vec<_> = lines.map(|line| header.iter().cloned().zip(cells(line)).collect()).collect();
    assert!(rows.len() > 100, "the table is there");
    rows
}

/// Row of ours that a name of the older tool means; `None` where that has none of its own.
fn ours<'a>(answer: &'a Answer, name: &str) -> Option<&'a Row> {
    let (op, slot) = name.split_once(".forward.")?;
    let slot = slot.replace("kwargs.", "kwarg.");
    answer.rows.iter().find(|row| row.op == format!("{op}.forward") && row.slot == slot)
}

#[test]
fn metrics_agree_with_the_older_tool_where_it_is_right() {
    let mut compared = 0;
    let mut wrong = String::new();
    for row in table("edge/older_tool_tensor.csv") {
        for (column, metric, decimals) in COLUMNS {
            let theirs = match row[column].as_str() {
                // It gives nothing for scalars, other types, shapes and places of NaN.
                "unsupported" | "shape unmatched" | "N/A" => continue,
                "Nan" => None,
                number => Some(number.parse::<f64>().unwrap()),
            };
            let name = &row["NPU Name"];
            let found = ours(&DATA, name).unwrap_or_else(|| panic!("no row {name}")).metric(metric);
            let same = match (found, theirs) {
                (Some(found), Some(theirs)) => {
                    // Close to 1 it rounds cosine to 6 decimals.
                    let coarse = metric == Metric::Cosine && theirs > 0.9999;
                    let digits = if coarse { Some(6) } else { decimals };
                    let printed = digits.map_or(0.0, |digits| 0.51 * 10_f64.powi(-digits));
                    (found - theirs).abs() <= printed + 1e-12 * theirs.abs()
                }
                (found, theirs) => found.is_none() && theirs.is_none(),
            };
            let excuse = WRONG.iter().find(|(case, metrics, _)| {
                *name == format!("{}.output.0", op(case)) && metrics.contains(&metric)
            });
            compared += 1;
            if same != excuse.is_none() {
                let excuse = excuse.map_or("", |(_, _, why)| why);
                _ = writeln!(wrong, "{name} {column}: {found:?}, the older tool has {theirs:?}; {excuse}");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(compared > 600, "{compared} numbers compared");
}

#[test]
fn differences_of_statistics_agree_with_the_older_tool() {
    let mut compared = 0;
    for row in table("edge/older_tool_statistics.csv") {
        let number = |column: &str| row[column].trim().parse::<f64>().ok().filter(|x| x.is_finite());
        let (Some(max), Some(min)) = (number("Max diff"), number("Min diff")) else { continue };
        // Rows of scalars repeat their value in the columns of statistics.
        if !row["NPU Dtype"].starts_with("torch.") || row["NPU Dtype"] == "torch.Size" {
            continue;
        }
        // Names of keyword arguments do not tell them from positional ones in this table; it rounds integers to binary64.
        let name = row["NPU Name"].replace("forward.input.config", "forward.kwarg.config");
        if name.contains("int64_beyond_2_53") {
            continue;
        }
        let found = ours(&STATISTICS, &name).and_then(|ours| ours.metric(Metric::MaxAbsErr));
        if ["None", "Nan", " inf", " -inf"].contains(&&*row["NPU max"]) {
            continue;
        }
        let theirs = max.abs().max(min.abs());
        let found = found.unwrap_or_else(|| panic!("{name} has no statistics"));
        assert!((found - theirs).abs() <= 1e-12 * theirs, "{name}: {found:e}, the older tool has {theirs:e}");
        compared += 1;
    }
    assert!(compared > 100, "{compared} rows compared");
}
