//! A run on two ranks against one on one device, recorded with torch's tensor parallelism over gloo (`testdata/layouts/make.py`).

use crate::support::command::Compare;
use crate::support::testdata;

#[test]
fn two_ranks_that_compute_the_same_agree_with_one() {
    let run = Compare::new(testdata("layouts/one"), testdata("layouts/tp2")).run();
    assert_eq!(run.code, 0, "{}", run.stdout);
    let run = Compare::new(testdata("layouts/tp2"), testdata("layouts/one")).run();
    assert_eq!(run.code, 0, "{}", run.stdout);
}

#[test]
fn a_reduction_left_out_is_named_with_its_group() {
    let run = Compare::new(testdata("layouts/one"), testdata("layouts/tp2_dropped")).run();
    let words = run.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(run.code, 1);
    assert!(words.contains("Module.attention.out.Linear.forward.0 output.0"), "{}", run.stdout);
    let said = "each of ranks 0-1 holds a partial sum; the all-reduce over tp is missing";
    assert!(words.contains(said), "{}", run.stdout);
    assert!(words.contains("cause numerics"), "{}", run.stdout);
}
