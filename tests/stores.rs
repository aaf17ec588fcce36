//! URLs on the command line of a build that reads no object stores: `file://` is a path, everything else is one line that says what to do.

use std::fs;

use crate::support::command::probe;
use crate::support::testdata;
use serde_json::Value;

#[test]
fn a_file_url_is_a_path_for_every_input_and_output() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let url = |name: &str| format!("file://{}", path(name).replace(' ', "%20"));
    let case = testdata("faults/gpt_rank1_linear_L1_statistics");
    let side = |name: &str| case.join(name).to_str().unwrap().to_owned();
    let file = |name: &str| format!("file://{}", side(name));
    let report = |folder: &str| {
        let text = fs::read_to_string(format!("{folder}/report.json")).unwrap();
        let mut report: Value = serde_json::from_str(&text).unwrap();
        report.as_object_mut().unwrap().remove("seconds");
        report
    };
    let (b, c) = (file("baseline"), file("candidate"));
    assert_eq!(probe(&["compare", &side("baseline"), &side("candidate"), "-q", "-o", &path("single")]).0, 1);
    let (code, said, _) = probe(&["compare", &b, &c, "-q", "-o", &url("by url"), "--format", "json"]);
    assert_eq!((code, said.contains("first divergence")), (1, true), "{said}");
    assert_eq!(report(&path("by url")), report(&path("single")));
    let plan = url("run/plan.json");
    assert_eq!(probe(&["plan", "-q", &b, &c, "-o", &url("run")]).0, 0);
    for shard in ["1/3", "2/3", "3/3"] {
        assert_eq!(probe(&["compare", "-q", "--plan", &plan, "--shard", shard]).0, 0);
    }
    assert_eq!(probe(&["merge", "-q", &url("run"), "--format", "json"]).0, 1);
    assert_eq!(report(&path("run")), report(&path("single")));
    let (code, by_url, _) = probe(&["inspect", &b, "--rank", "1", "--format", "json"]);
    let (_, by_path, _) = probe(&["inspect", &side("baseline"), "--rank", "1", "--format", "json"]);
    assert_eq!((code, &by_url), (0, &by_path));
}

#[test]
fn a_build_without_stores_says_so_and_makes_nothing() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out").to_str().unwrap().to_owned();
    let case = testdata("faults/gpt_rank1_linear_L1_statistics");
    let b = case.join("baseline").to_str().unwrap().to_owned();
    let s3 = "s3://bucket/dump";
    for args in [
        &["compare", s3, &b, "-o", &out][..],
        &["compare", &b, s3, "-o", &out],
        &["compare", &b, &b, "-o", s3],
        &["compare", &b, &b, "-o", &out, "--reference", s3],
        &["compare", "--plan", s3, "--shard", "1/2"],
        &["plan", s3, &b, "-o", &out],
        &["plan", &b, &b, "-o", s3],
        &["merge", s3],
        &["inspect", s3],
        &["config-check", s3, &b, "-o", &out],
    ] {
        let (code, said, error) = probe(args);
        assert_eq!((code, said.as_str()), (2, ""), "{args:?}: {error}");
        assert!(
            error.starts_with("error: s3://bucket/dump")
                && error.contains("this build of probe cannot read object stores; "),
            "{args:?}: {error}"
        );
        assert_eq!(error.lines().count(), 1);
        assert!(!place.path().join("out").exists(), "{args:?}");
    }
    let (code, _, error) = probe(&["compare", "hdfs://name/dump", &b, "-o", &out]);
    assert!(code == 2 && error.contains("hdfs:// is not supported: probe reads s3://"), "{error}");
}
