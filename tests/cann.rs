//! Dumps of the CANN runtime on the command line: inspected, compared with one another and with other dumps, converted.

use std::fs;

use crate::support::command::{Compare, probe};
use crate::support::testdata;

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
        (code, said.contains("is not empty; name a folder that does not exist yet")),
        (2, true),
        "{said}"
    );
}

#[test]
fn what_cannot_be_read_is_left_out_and_told_and_the_rest_is_converted() {
    let place = tempfile::tempdir().unwrap();
    let hostile = testdata("hostile/cann");
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let (mixed, output) = (path("mixed"), path("native"));
    fs::create_dir(&mixed).unwrap();
    for name in ["type_without_decoder", "payload_short", "nz_does_not_follow", "header_cut"] {
        let name = format!("{name}.op.1.7.1700000000000000");
        fs::copy(hostile.join(&name), format!("{mixed}/{name}")).unwrap();
    }
    let (code, shown, said) = probe(&["convert", &mixed, "-o", &output]);
    assert_eq!(code, 3, "{said}");
    assert!(shown.contains("1 tensor (24 bytes) of 3 ops, 1 part"), "{shown}");
    for told in ["float4_e2m1", "output.0: its bytes 133 to 157", "FRACTAL_NZ [1, 1, 16, 16]", "header_cut"] {
        assert!(
            said.lines().any(|line| line.starts_with("error: left out: ") && line.contains(told)),
            "{said}"
        );
    }
    assert_eq!(said.lines().count(), 4, "{said}");
    // The input that its file holds whole, with the elements that it has there.
    let values = |dump: &str| {
        let (.., shown) =
            match probe(&["inspect", dump, "--tensor", "Kernel.payload_short.0.forward input.0"]) {
                (0 | 3, shown, _) => ((), shown),
                other => panic!("{other:?}"),
            };
        shown.lines().skip_while(|line| !line.contains("[3, 2]")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(values(&mixed), values(&output));
    // A folder of nothing but damage lists twenty, and where the others are.
    let (code, _, said) = probe(&["convert", hostile.to_str().unwrap(), "-o", &path("x")]);
    assert_eq!((code, said.lines().count()), (3, 21), "{said}");
    assert!(said.lines().last().unwrap().contains("more; `probe inspect "), "{said}");
    // No draft stays.
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 3);
}

#[test]
fn kernels_pair_with_functions_by_kind_order_and_shape() {
    let place = tempfile::tempdir().unwrap();
    // Calls of torch: the same values under the names of functions.
    let functions = |side: &str, name: &str| {
        let npz = place.path().join(name);
        let (code, ..) = probe(&["convert", testdata(side).to_str().unwrap(), "-o", npz.to_str().unwrap()]);
        assert_eq!(code, 0);
        npz
    };
    let renamed = crate::support::kernels::as_functions(
        &functions("cann/baseline", "b"),
        &place.path().join("functions"),
    );
    let run = Compare::new(&renamed, testdata("cann/candidate")).run();
    assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
    let report = run.json();
    assert_eq!(report["first_divergence"]["op"], "Tensor.add.1.forward", "{}", run.stdout);
    assert!(run.stdout.contains("one side recorded kernels, the other functions"), "{}", run.stdout);
    assert_eq!(Compare::new(&renamed, testdata("cann/baseline")).run().code, 0);
}
