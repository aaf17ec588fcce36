//! Dumps of the CANN runtime on the command line: inspected, compared with one another and with other dumps, converted.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;

use assert_cmd::Command;
use support::command::Compare;
use support::testdata;

fn probe(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_probe")).args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn two_dumps_pair_by_order_within_streams_and_the_wrong_kernel_is_named() {
    let (b, c) = (testdata("cann/baseline"), testdata("cann/candidate"));
    let run = Compare::new(&b, &c).run();
    assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
    let report = run.json();
    assert_eq!(report["first_divergence"]["op"], "Kernel.Add.1.forward", "{}", run.stdout);
    assert_eq!(report["first_divergence"]["step"], 1);
    assert_eq!(report["counts"]["ops_paired"], 12);
    assert_eq!(report["culprits"].as_array().unwrap().len(), 1, "{}", run.stdout);
    assert_eq!(Compare::new(&b, &b).run().code, 0);
    // The first step differs by rounding alone, and weights that are tiled on one side are the same weights.
    assert_eq!(Compare::new(b.join("step0"), c.join("step0")).run().code, 0);
}

#[test]
fn files_and_folders_of_any_depth_are_inspected() {
    let (code, shown, _) = probe(&["inspect", testdata("cann/overflow").to_str().unwrap()]);
    assert_eq!(code, 0);
    assert!(shown.contains("CANN dump") && shown.contains("Kernel.Mul.0.forward"), "{shown}");
    assert!(shown.contains("note: overflow in Kernel.Mul.0.forward: AI Core"), "{shown}");
    let file = testdata("cann/good/ND.matmul_padded.3.7.1700000000000000");
    let (code, shown, _) =
        probe(&["inspect", file.to_str().unwrap(), "--tensor", "Kernel.ND.0.forward output.0"]);
    assert_eq!(code, 0);
    assert!(shown.contains("[3, 5]") && shown.contains("float16"), "{shown}");
    let (code, _, said) = probe(&["inspect", testdata("hostile/cann").to_str().unwrap()]);
    assert_eq!(code, 3);
    assert!(said.lines().count() > 20 && !said.contains("panicked"), "{said}");
}

#[test]
fn a_converted_dump_is_the_dump() {
    let place = tempfile::tempdir().unwrap();
    let (source, output) = (testdata("cann/candidate"), place.path().join("native"));
    let (code, said, _) = probe(&["convert", source.to_str().unwrap(), "-o", output.to_str().unwrap()]);
    assert_eq!(code, 0);
    assert!(said.contains("tensors") && said.contains("12 ops, 2 parts"), "{said}");
    let run = Compare::new(&source, &output).run();
    assert_eq!(run.code, 0, "{}", run.stdout);
    assert_eq!(run.json()["counts"]["verdicts"]["bit-equal"], 32, "{}", run.stdout);
    let (code, _, said) = probe(&["convert", source.to_str().unwrap(), "-o", output.to_str().unwrap()]);
    assert_eq!(
        (code, said.contains("is not empty; name a folder that is not there yet")),
        (2, true),
        "{said}"
    );
    // Tensors that cannot be decoded are left out and told; nothing of the draft stays.
    let (code, _, said) = probe(&[
        "convert",
        testdata("hostile/cann").to_str().unwrap(),
        "-o",
        place.path().join("x").to_str().unwrap(),
    ]);
    assert_eq!(code, 3);
    assert!(said.contains("left out: ") && said.contains("float4_e2m1"), "{said}");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
}

#[test]
fn kernels_pair_with_functions_by_kind_order_and_shape() {
    let place = tempfile::tempdir().unwrap();
    // What torch called: the same values under the names of functions.
    let functions = |side: &str, name: &str| {
        let npz = place.path().join(name);
        let (code, ..) = probe(&["convert", testdata(side).to_str().unwrap(), "-o", npz.to_str().unwrap()]);
        assert_eq!(code, 0);
        npz
    };
    let renamed =
        support::kernels::as_functions(&functions("cann/baseline", "b"), &place.path().join("functions"));
    let run = Compare::new(&renamed, testdata("cann/candidate")).run();
    assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
    let report = run.json();
    assert_eq!(report["first_divergence"]["op"], "Tensor.add.1.forward", "{}", run.stdout);
    assert!(run.stdout.contains("one side recorded kernels, the other functions"), "{}", run.stdout);
    assert_eq!(Compare::new(&renamed, testdata("cann/baseline")).run().code, 0);
}
