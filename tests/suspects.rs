//! `suspects.toml`: the list of ops to record again with their data.

use std::fs;
use std::path::Path;

use crate::support::command::probe;
use crate::support::testdata;

fn compare(baseline: &Path, candidate: &Path, folder: &Path) -> (i32, String) {
    let words = [baseline, candidate, Path::new("-o"), folder].map(|path| path.to_str().unwrap());
    let (code, said, _) = probe(&[&["compare"], &words[..]].concat());
    (code, said)
}

#[test]
fn the_ops_at_fault_and_their_neighbours_are_listed_until_nothing_is() {
    let (baseline, candidate) = (testdata("gpu_dump"), testdata("npu_dump"));
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("suspects.toml");
    assert_eq!(compare(&baseline, &candidate, folder.path()).0, 1);
    let text = fs::read_to_string(&list).unwrap();
    let listed: toml::Table = text.parse().unwrap();
    let tensors: Vec<&str> =
        listed["tensors"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    // The ops that made its input or read its result, and its own gradient.
    let expected = [
        "Functional.gelu.1.backward",
        "Functional.gelu.1.forward",
        "Functional.linear.6.forward",
        "Functional.linear.7.forward",
    ];
    assert_eq!(tensors, expected);
    assert!(text.contains("\"Functional.gelu.1.forward\",  # at fault\n"), "{text}");
    assert_eq!((listed["steps"].as_str(), listed["level"].as_str()), (Some("0"), Some("mix")));

    assert_eq!(compare(&baseline, &baseline, folder.path()).0, 0);
    assert!(!list.exists(), "nothing is at fault");
}

#[test]
fn a_comparison_of_statistics_says_how_the_data_is_recorded() {
    let case = testdata("faults/gpt_gelu_scale_L1_statistics");
    let folder = tempfile::tempdir().unwrap();
    let (code, said) = compare(&case.join("baseline"), &case.join("candidate"), folder.path());
    assert_eq!(code, 1);
    let joined = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(joined.contains("suspects.toml -o DUMP -- ... records its data, on both sides"), "{said}");
    assert!(fs::read_to_string(folder.path().join("suspects.toml")).unwrap().contains("level = \"api\""));
}
