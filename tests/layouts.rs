//! A run on two ranks against one on one device, recorded with torch's tensor parallelism over gloo (`testdata/layouts/make.py`).

use crate::support::command::Compare;
use crate::support::dump_builder::{Op, Side, Task, Tensor, op};
use crate::support::runs::compare_parts;
use crate::support::testdata;
use probe::judge::{Role, Verdict};

#[test]
fn two_ranks_that_compute_the_same_agree_with_one() {
    let run = Compare::new(testdata("layouts/one"), testdata("layouts/tp2")).run();
    assert_eq!(run.code, 0, "{}", run.stdout);
    let run = Compare::new(testdata("layouts/tp2"), testdata("layouts/one")).run();
    assert_eq!(run.code, 0, "{}", run.stdout);
}

fn said(baseline: &str, candidate: &str) -> (i32, String) {
    let run = Compare::new(testdata(baseline), testdata(candidate)).run();
    (run.code, run.stdout.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[test]
fn stages_of_a_pipeline_pair_by_the_numbers_of_the_whole_model() {
    let (code, text) = said("layouts/pipeline/one", "layouts/pipeline/two");
    assert_eq!(code, 0, "{text}");
    let (code, text) = said("layouts/pipeline/one", "layouts/pipeline/wrong");
    assert_eq!(code, 1);
    assert!(text.contains("stage 1 (rank 1) holds layer 0, expected 1"), "{text}");
    assert!(text.contains("layers.1."), "{text}");
}

#[test]
fn a_zigzag_order_that_is_not_undone_is_named() {
    let (code, text) = said("layouts/zigzag/one", "layouts/zigzag/two");
    assert_eq!(code, 1);
    assert!(text.contains("lie in the order 0, 3, 1, 2: zigzag is not undone"), "{text}");
}

#[test]
fn a_bias_added_on_every_rank_is_named() {
    let (code, text) = said("layouts/bias/one", "layouts/bias/two");
    assert_eq!(code, 1);
    assert!(text.contains("the bias is added on each of ranks 0-1, and so 2.000 times"), "{text}");
}

#[test]
fn a_declared_layout_that_does_not_fit_is_an_error_of_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("layouts.toml");
    for (dims, mesh, code, part) in [
        ("b s h", "tp=2", 0, ""),
        ("b s[tp] h", "tp=2", 2, "should hold [2, 2, 8], and recorded [2, 4, 8]"),
        ("b s[tp] h", "dp=2 tp=4", 2, "the mesh \"dp=2 tp=4\" does not have the 2 ranks that were recorded"),
        ("s h", "tp=2", 2, "2 dimensions, the value has 3"),
    ] {
        let line = format!(
            "[[layout]]\nop = 'Module.first.LayerNorm.forward.0'\ndims = '{dims}'\nmesh = '{mesh}'\n"
        );
        std::fs::write(&file, line).unwrap();
        let run =
            Compare::new(testdata("layouts/one"), testdata("layouts/tp2")).arg("--mapping").arg(&file).run();
        assert_eq!(run.code, code, "{}", run.stderr);
        assert!(run.stderr.contains(part) && run.stderr.lines().count() <= 1, "{}", run.stderr);
        assert!(code == 0 || run.stderr.contains("layouts.toml: layout of"), "{}", run.stderr);
    }
}

#[test]
fn a_rank_that_is_missing_leaves_the_comparison_incomplete_and_nobody_accused() {
    let folder = tempfile::tempdir().unwrap();
    let part = folder.path().join("tp2/step0/rank0");
    std::fs::create_dir_all(&part).unwrap();
    let copied = |name: &str| {
        std::fs::copy(testdata("layouts/tp2").join(name), folder.path().join("tp2").join(name)).unwrap();
    };
    let manifest = std::fs::read(testdata("layouts/tp2/manifest.json")).unwrap();
    let mut manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    manifest["environment"]["groups.tp"] = "0,1".into();
    std::fs::write(folder.path().join("tp2/manifest.json"), manifest.to_string()).unwrap();
    for entry in std::fs::read_dir(testdata("layouts/tp2/step0/rank0")).unwrap() {
        copied(&format!("step0/rank0/{}", entry.unwrap().file_name().to_str().unwrap()));
    }
    let compared = || Compare::new(testdata("layouts/one"), folder.path().join("tp2"));
    let run = compared().run();
    run.incomplete(&["step 0 of the candidate", "rank 1 of 2 is missing", "--rank"]);
    assert!(run.json()["first_divergence"].is_null(), "{}", run.stdout);
    let alone = compared().args("--rank 0").run();
    assert_eq!(alone.code, 1, "as one rank, it has other weights: {}", alone.stdout);
}

#[test]
fn a_file_of_a_rank_that_was_cut_short_leaves_the_comparison_incomplete_and_nobody_accused() {
    for damaged in ["rank0", "rank1"] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::copy(testdata("layouts/tp2/manifest.json"), folder.path().join("manifest.json")).unwrap();
        for rank in ["rank0", "rank1"] {
            let part = folder.path().join("step0").join(rank);
            std::fs::create_dir_all(&part).unwrap();
            for entry in std::fs::read_dir(testdata("layouts/tp2/step0").join(rank)).unwrap() {
                let entry = entry.unwrap();
                std::fs::copy(entry.path(), part.join(entry.file_name())).unwrap();
            }
        }
        let tensors = folder.path().join("step0").join(damaged).join("tensors-00000.safetensors");
        let file = std::fs::File::options().write(true).open(tensors).unwrap();
        file.set_len(file.metadata().unwrap().len() / 2).unwrap();
        let run = Compare::new(testdata("layouts/one"), folder.path()).run();
        run.incomplete(&[damaged, "tensors-00000.safetensors"]);
        assert!(run.json()["first_divergence"].is_null(), "{}", run.stdout);
    }
}

#[test]
fn a_reduction_left_out_is_named_with_its_group() {
    let run = Compare::new(testdata("layouts/one"), testdata("layouts/tp2_dropped")).run();
    let words = run.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(run.code, 1);
    assert!(words.contains("Module.attention.out.Linear.forward.0 output.0"), "{}", run.stdout);
    let said = "each of ranks 0-1 holds a partial sum; the all-reduce over tp is missing";
    assert!(words.contains(said), "{}", run.stdout);
    assert!(words.contains("cause layout"), "{}", run.stdout);
}

#[test]
fn the_workbook_holds_what_each_rank_holds() {
    use calamine::Reader as _;
    let run = Compare::new(testdata("layouts/one"), testdata("layouts/tp2")).args("--format xlsx").run();
    let mut book = calamine::open_workbook_auto(run.reports().join("result.xlsx")).unwrap();
    let tensors = book.worksheet_range("tensors").unwrap();
    let head: Vec<String> = tensors.rows().next().unwrap().iter().map(ToString::to_string).collect();
    let at = head.iter().position(|label| label == "pieces").expect("a column of pieces");
    let held: Vec<String> = tensors.rows().skip(1).map(|row| row[at].to_string()).collect();
    for said in ["ranks 0-1: replicas", "rank 0: [:, :, 0:4]; rank 1: [:, :, 4:8]"] {
        assert!(held.iter().any(|text| text == said), "{said} in {held:?}");
    }
    let plain = Compare::new(testdata("layouts/one"), testdata("layouts/one")).args("--format xlsx").run();
    let mut book = calamine::open_workbook_auto(plain.reports().join("result.xlsx")).unwrap();
    let head = book.worksheet_range("tensors").unwrap();
    assert!(!head.rows().next().unwrap().iter().any(|label| *label == "pieces"));
}

/// A step that two ranks make of what one rank makes of a whole. In step 0, ranks have a buffer of their own of which a mask leaves what it should,
/// which the layouts excuse. In step 1, weights have drifted, and `read` is what the candidate computes its loss from.
fn masked_then(read: &Tensor, part: &str, side: Side) -> Option<Vec<Op>> {
    let is_second = part.ends_with("rank1");
    if is_second && side == Side::Baseline {
        return None;
    }
    if part.starts_with("step0") {
        let buffer = side.pick(Tensor::wave(2, 64), Tensor::wave(if is_second { 21 } else { 22 }, 64));
        return Some(vec![
            op("Functional.embedding.0.forward").input(Tensor::wave(1, 64)).output(buffer.clone()),
            op("Functional.mul.0.forward").input(buffer).output(Tensor::wave(3, 64)),
        ]);
    }
    let read = side.pick(Tensor::wave(4, 64), read.clone());
    let loss = read.map(|x| 2.0 * x);
    Some(vec![
        op("Functional.mul.0.forward").input(read).output(loss),
        op("Module.fc.Linear.forward.0")
            .input(Tensor::wave(1, 32))
            .parameter("weight", side.scaled(&Tensor::wave(2, 32), 1.2))
            .output(side.scaled(&Tensor::wave(6, 32), 1.2)),
    ])
}

#[test]
fn a_finding_that_the_layouts_drop_hides_none_of_a_later_step() {
    let parts = ["step0/rank0", "step0/rank1", "step1/rank0", "step1/rank1"].map(|part| (part, Task::Tensor));
    let first = |read: &Tensor| {
        let answer = compare_parts(&parts, |part, side| masked_then(read, part, side));
        let buffer = answer.row("Functional.embedding.0.forward", "output.0");
        assert_eq!((buffer.verdict, buffer.role), (Verdict::Close, Role::Clean), "the layouts excuse it");
        answer.summary.first_divergence.map(|found| (found.step, found.op))
    };
    let sound = Tensor::wave(4, 64);
    assert_eq!(first(&sound), None);
    // The drift of the weights would explain as much, but no weight was read as yet.
    let off = sound.noisy(5, 0.08);
    assert_eq!(first(&off), Some((1, "Functional.mul.0.forward".to_owned())));
}

/// A step of which two ranks make a lookup that a mask makes whole, with values of their own before the mask, and a layer of which `weight` is the
/// candidate's.
fn looked_up_then(weight: &Tensor, part: &str, side: Side) -> Option<Vec<Op>> {
    let is_second = part.ends_with("rank1");
    if is_second && side == Side::Baseline {
        return None;
    }
    let masked = Tensor::wave(3, 64);
    let buffer = side.pick(masked.clone(), Tensor::wave(if is_second { 21 } else { 22 }, 64));
    let mut ops =
        vec![op("Functional.embedding.0.forward").input(Tensor::wave(1, 64)).output(buffer.clone())];
    if side == Side::Candidate {
        ops.push(op("Tensor.masked_fill.0.forward").input(buffer).output(masked.clone()));
    }
    let rows = masked.map(|x| 0.5 * x);
    ops.push(op("Functional.mul.0.forward").input(masked).output(rows.clone()));
    let weight = side.pick(Tensor::wave(4, 64), weight.clone());
    let made = weight.map(|x| 3.0 * x);
    ops.push(
        op("Functional.linear.0.forward").input(rows.clone()).input(weight.clone()).output(made.clone()),
    );
    ops.push(op("Module.fc.Linear.forward.0").input(rows).parameter("weight", weight).output(made));
    Some(ops)
}

#[test]
fn a_value_that_the_layouts_excuse_explains_nothing_behind_it() {
    let parts = ["step0/rank0", "step0/rank1"].map(|part| (part, Task::Tensor));
    let first = |weight: &Tensor| {
        let answer = compare_parts(&parts, |part, side| looked_up_then(weight, part, side));
        let lookup = answer.row("Functional.embedding.0.forward", "output.0");
        assert!(!lookup.metrics.is_empty(), "the report says how far off it is");
        assert_eq!((lookup.verdict, lookup.role), (Verdict::Close, Role::Clean), "the layouts excuse it");
        answer.summary.first_divergence.map(|found| (found.op, found.slot))
    };
    assert_eq!(first(&Tensor::wave(4, 64)), None);
    let found = first(&Tensor::wave(5, 64)).unwrap();
    assert_eq!(found, ("Functional.linear.0.forward".to_owned(), "input.1".to_owned()));
}
