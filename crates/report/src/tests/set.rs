//! All reports of a comparison together.

use std::path::Path;

use super::fixture::{everything, full_summary};
use crate::{Extent, Format, ReportSet};
use probe_files::ReportError;

fn built() -> Vec<Format> {
    Format::ALL.to_vec()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn reports_appear_together_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("new").join("out");
    let part = everything();
    let mut set = ReportSet::create(&out, &[built(), built()].concat(), Extent::default()).unwrap();
    assert!(names(&out).iter().all(|name| name.starts_with(".probe-")), "created before the work");
    set.part(&part.report()).unwrap();
    let written = set.finish(&full_summary(&part)).unwrap();
    assert_eq!(written, built().iter().map(|format| out.join(format.file_name())).collect::<Vec<_>>());
    let mut expected: Vec<String> = built().iter().map(|format| format.file_name().to_owned()).collect();
    expected.sort();
    assert_eq!(names(&out), expected);
    let text = std::fs::read_to_string(out.join("report.txt")).unwrap();
    assert!(text.starts_with("first divergence: ") && !text.contains('\u{1b}'));
}

#[test]
fn a_set_that_is_dropped_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut set = ReportSet::create(folder.path(), &built(), Extent::default()).unwrap();
    set.part(&everything().report()).unwrap();
    drop(set);
    assert!(names(folder.path()).is_empty());
}

#[test]
fn a_place_that_cannot_be_written_fails_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let refused = ReportSet::create(&file.join("out"), &built(), Extent::default()).unwrap_err();
    assert!(matches!(refused, ReportError::Io { .. }), "{refused}");
    // A folder in the place of a report is also detected before the work, and no other report is begun.
    let out = folder.path().join("out");
    std::fs::create_dir_all(out.join("report.json")).unwrap();
    assert!(ReportSet::create(&out, &built(), Extent::default()).is_err());
    assert_eq!(names(&out), ["report.json"]);
}

#[cfg(unix)]
#[test]
fn reports_can_be_read_by_others() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let set = ReportSet::create(folder.path(), &[Format::Json], Extent::default()).unwrap();
    let written = set.finish(&full_summary(&everything())).unwrap();
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "").unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&written[0]), mode(&plain));
}

#[test]
fn formats_go_by_name() {
    for format in Format::ALL {
        assert_eq!(format.name().parse(), Ok(format));
        assert_eq!(format.to_string(), format.name());
    }
    let unknown = "csv".parse::<Format>().unwrap_err();
    for format in Format::ALL {
        assert!(unknown.to_string().contains(format.name()));
    }
}
