//! The shipped table is sound, and mistakes in the user's are named on one line.

use super::*;
use crate::pack::{DeviceKind, keys};

const MIXED: DevicePair = DevicePair {
    baseline: Some(DeviceKind::Gpu),
    candidate: Some(DeviceKind::Npu),
    across_frameworks: false,
};
const SAME: DevicePair = DevicePair {
    baseline: Some(DeviceKind::Gpu),
    candidate: Some(DeviceKind::Gpu),
    across_frameworks: false,
};

fn subject<'a>(part: Part, key: &'a str, baseline: &'a str, candidate: &'a str) -> Subject<'a> {
    Subject { part, key, baseline: Some(baseline), candidate: Some(candidate) }
}

#[test]
fn every_part_has_a_default_and_every_setting_one_name_only() {
    let table = Expectations::of(None).unwrap();
    for part in Part::ALL {
        assert!(table.parts.contains_key(&part), "{part}");
    }
    let names: usize = table.settings.iter().map(|setting| setting.keys().count()).sum();
    let known: usize = table.places.values().map(HashMap::len).sum();
    assert_eq!(names, known, "a key stands in two settings");
}

#[test]
fn settings_of_record_parts_are_documented_keys() {
    let table = Expectations::of(None).unwrap();
    for setting in table.settings.iter().filter(|setting| setting.part != Part::Env) {
        for key in setting.keys() {
            let documented = keys::documented(setting.part).iter().any(|known| known.name == key);
            assert!(documented, "{} {key}", setting.part);
        }
    }
}

#[test]
fn rules_look_at_pair_sides_and_values() {
    let table = Expectations::of(None).unwrap();
    let backend = subject(Part::Distributed, "backend", "hccl", "nccl");
    assert_eq!(table.ruling(MIXED, backend).unwrap().verdict, Verdict::Expected);
    assert_eq!(table.ruling(SAME, backend), None);
    assert_eq!(table.ruling(MIXED, subject(Part::Distributed, "backend", "gloo", "nccl")), None);
}

#[test]
fn the_user_comes_first() {
    let text = r#"
        allow = ["MY_*"]
        [[rule]]
        part = "distributed"
        key = "back*"
        verdict = "diff"
        why = "we want gloo"
        [[setting]]
        part = "env"
        key = "OMP_NUM_THREADS"
        differs = "diff"
    "#;
    let table = Expectations::of(Some(text)).unwrap();
    let ruling = table.user_ruling(MIXED, subject(Part::Distributed, "backend", "hccl", "nccl")).unwrap();
    assert_eq!((ruling.verdict, &*ruling.why), (Verdict::Diff, "we want gloo"));
    assert_eq!(table.setting(Part::Env, "OMP_NUM_THREADS").unwrap().differs(SAME).verdict, Verdict::Diff);
    assert!(table.allows("MY_FLAG") && table.allows("NCCL_ALGO") && !table.allows("HF_TOKEN"));
}

#[test]
fn mistakes_are_named_on_one_line() {
    for (text, expected) in [
        ("[[rule]]\npart = \"env\"\nkey = \"*\"\nverdikt = \"diff\"\n", "line 4: unknown field `verdikt`"),
        ("[[rule]]\npart = \"env\"\nkey = \"*\"\nverdict = \"bad\"\n", "line 4: unknown verdict \"bad\""),
        ("[[rule]]\npart = \"envi\"\nkey = \"*\"\nverdict = \"diff\"\n", "line 2: unknown part \"envi\""),
        (
            "[[rule]]\npart = \"env\"\nkey = \"*\"\nverdict = \"diff\"\npairs = [\"gpu\"]\n",
            "rule 1: unknown pairs \"gpu\"",
        ),
        (
            "[[rule]]\npart = \"env\"\nkey = \"*\"\nverdict = \"diff\"\nvalues = [\"a\"]\n",
            "rule 1: values needs two",
        ),
        ("[[setting]]\npart = \"env\"\ndiffers = \"diff\"\n", "setting 1: needs either key"),
        ("[part.envi]\n", "line 1: missing field"),
    ] {
        let message = Expectations::of(Some(text)).unwrap_err();
        assert!(message.starts_with(expected), "{message}");
        assert!(!message.contains('\n'));
    }
}
