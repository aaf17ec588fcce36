//! `result.html` as text: required and forbidden content, and that an earlier result makes the same page. The behaviour in a browser is
//! tested in `web/test`.

use std::io::Read as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use sha2::{Digest as _, Sha256};

use super::fixture::{everything, full_summary, hostile_names, summary};
use crate::html::{HtmlReport, document, from_result};
use crate::parquet::ParquetReport;
use crate::{Extent, Format, ReportSet, ReportWriter, StoredError, StoredFile, StoredRun};
use probe_compare::PartReport;
use probe_files::Draft;

fn written(folder: &Path, parts: &[PartReport<'_>]) -> String {
    let part = everything();
    let mut writer = Box::new(HtmlReport::create(&folder.join("result.html")).unwrap());
    for part in parts {
        writer.part(part).unwrap();
    }
    let path = writer.finish(&full_summary(&part)).unwrap().place().unwrap();
    std::fs::read_to_string(path).unwrap()
}

/// Returns the unpacked pieces called `name`.
fn pieces(page: &str, name: &str) -> Vec<Vec<u8>> {
    let open = format!("<script type=\"application/x-probe\" data-name=\"{name}\">");
    let texts = page.split(&*open).skip(1).map(|rest| rest.split_once("</script>").unwrap().0);
    texts
        .map(|text| {
            let mut bytes = Vec::new();
            ZlibDecoder::new(&*STANDARD.decode(text).unwrap()).read_to_end(&mut bytes).unwrap();
            bytes
        })
        .collect()
}

#[test]
fn nothing_of_a_dump_is_markup_and_the_policy_lets_the_one_program_run() {
    let folder = tempfile::tempdir().unwrap();
    let part = everything();
    let page = written(folder.path(), &[part.report()]);
    for name in hostile_names() {
        assert!(!page.contains(&name), "{name:.40} stands in the page as it is");
    }
    let (_, rest) = page.rsplit_once("<script>").unwrap();
    let (program, _) = rest.split_once("</script>").unwrap();
    let (_, rest) = page.split_once("<style>").unwrap();
    let (style, _) = rest.split_once("</style>").unwrap();
    for source in [program, style] {
        let hash = format!("'sha256-{}'", STANDARD.encode(Sha256::digest(source.as_bytes())));
        assert!(page.contains(&hash), "the policy names what the page holds");
    }
    // One program, and data: the only script a browser would run must be the one that the policy names.
    assert_eq!(page.matches("<script>").count(), 1);
    assert_eq!(page.matches("<script").count(), 1 + page.matches("application/x-probe").count());
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn every_name_is_in_the_data_as_it_was_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let part = everything();
    let page = written(folder.path(), &[part.report()]);
    let [ops] = &*pieces(&page, "ops") else { panic!("one piece") };
    let holds = |text: &str| ops.windows(text.len()).any(|bytes| bytes == text.as_bytes());
    for name in hostile_names().iter().filter(|name| name.len() < 1000) {
        assert!(holds(name), "{name}");
    }
    let head: serde_json::Value = serde_json::from_slice(&pieces(&page, "head")[0]).unwrap();
    assert_eq!(head["kind"], "compare");
    assert_eq!(head["data"]["report"]["first_divergence"]["op"], "Functional.gelu.1.forward");
    let length = u32::from_le_bytes(ops[..4].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&ops[4..4 + length]).unwrap();
    assert_eq!(header["ops"], part.pair.ops.len());
}

#[test]
fn numbers_that_were_seen_before_stand_once() {
    let folder = tempfile::tempdir().unwrap();
    let part = everything();
    let once = pieces(&written(folder.path(), &[part.report()]), "values").concat().len();
    let thrice = pieces(&written(folder.path(), &[part.report(); 3]), "values").concat().len();
    assert!(thrice < 2 * once, "{thrice} bytes for three times what takes {once}");
}

#[test]
fn an_earlier_result_makes_the_same_page() {
    let folder = tempfile::tempdir().unwrap();
    let part = everything();
    let live = written(folder.path(), &[part.report()]);
    let stored = folder.path().join("result.parquet");
    let mut writer = Box::new(ParquetReport::create(&stored).unwrap());
    writer.part(&part.report()).unwrap();
    writer.finish(&full_summary(&part)).unwrap().place().unwrap();
    let made = made_again(&stored, &folder.path().join("again.html")).unwrap().place().unwrap();
    let made = std::fs::read_to_string(made).unwrap();
    for name in ["ops", "values"] {
        assert!(pieces(&made, name) == pieces(&live, name), "{name}");
    }
    let head = |page: &str| serde_json::from_slice::<serde_json::Value>(&pieces(page, "head")[0]).unwrap();
    assert_eq!(head(&made), head(&live));
}

#[test]
fn replays_beside_an_earlier_result_are_on_its_page() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let part = everything();
    let mut writer = Box::new(ParquetReport::create(&path("result.parquet")).unwrap());
    writer.part(&part.report()).unwrap();
    writer.finish(&full_summary(&part)).unwrap().place().unwrap();
    let row = serde_json::json!({
        "of": "candidate, recorded", "rmse": 2.5e-4, "largest_relative": "inf", "largest_ulp": 1.5e5, "beyond": 0.998, "l2": 4.1e-4
    });
    let results = serde_json::json!([{ "output": "0", "standard": "fails benchmark L2", "rows": [row] }]);
    let replay = serde_json::json!({
        "step": 0, "rank": 0, "op": "Functional.gelu.1.forward", "guilty": "candidate", "answer": "</script>the candidate's kernel",
        "equal_to": null, "results": results
    });
    let replays = serde_json::json!({ "schema_version": 1, "replays": [replay] });
    std::fs::write(path("replays.json"), replays.to_string()).unwrap();
    let made = made_again(&path("result.parquet"), &path("x.html")).unwrap().place().unwrap();
    let page = std::fs::read_to_string(made).unwrap();
    let head: serde_json::Value = serde_json::from_slice(&pieces(&page, "head")[0]).unwrap();
    assert_eq!(head["data"]["replays"], replays["replays"]);
    let old = replays.to_string().replace("\"schema_version\":1", "\"schema_version\":2");
    for damaged in ["{", "[]", &*old] {
        std::fs::write(path("replays.json"), damaged).unwrap();
        let error = made_again(&path("result.parquet"), &path("x.html")).unwrap_err().to_string();
        assert!(error.contains("replays.json: ") && error.ends_with("remove it"), "{error}");
    }
    let set = ReportSet::create(folder.path(), &[Format::Json], Extent::Full).unwrap();
    set.finish(&full_summary(&part)).unwrap();
    assert!(!path("replays.json").exists(), "they are of an earlier comparison");
}

#[test]
fn rows_of_shards_make_the_page_of_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let part = everything();
    let live = written(folder.path(), &[part.report()]);
    let shard = folder.path().join("shard.parquet");
    let mut writer = Box::new(ParquetReport::create(&shard).unwrap());
    writer.part(&part.report()).unwrap();
    writer.finish(&probe_judge::Summary::empty()).unwrap().place().unwrap();
    let run = StoredRun::open(std::slice::from_ref(&shard)).unwrap();
    let mut writer = Box::new(HtmlReport::create(&folder.path().join("merged.html")).unwrap());
    writer.stored(&run, &full_summary(&part)).unwrap();
    let made = writer.finish(&full_summary(&part)).unwrap().place().unwrap();
    let made = std::fs::read_to_string(made).unwrap();
    for name in ["ops", "values"] {
        assert!(pieces(&made, name) == pieces(&live, name), "{name}");
    }
    let head = |page: &str| serde_json::from_slice::<serde_json::Value>(&pieces(page, "head")[0]).unwrap();
    assert_eq!(head(&made), head(&live));
    // The error names a damaged shard.
    std::fs::write(&shard, "PAR1").unwrap();
    assert!(StoredRun::open(&[shard]).unwrap_err().to_string().contains("shard.parquet"));
}

#[test]
fn what_is_no_result_is_refused_with_its_name_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("result.parquet");
    let part = everything();
    let mut writer = Box::new(ParquetReport::create(&path).unwrap());
    writer.part(&part.report()).unwrap();
    writer.finish(&summary(&[&part])).unwrap().place().unwrap();
    let sound = std::fs::read(&path).unwrap();
    let target = folder.path().join("x.html");
    let footer_end = sound.len() - 8;
    let mut damaged = sound.clone();
    damaged[footer_end] ^= 0xff;
    for bytes in [&b"PAR1"[..], b"", &sound[..sound.len() / 2], &sound[..sound.len() - 1], &damaged] {
        std::fs::write(&path, bytes).unwrap();
        let Err(error) = made_again(&path, &target) else { panic!("{} bytes pass", bytes.len()) };
        assert!(matches!(error, StoredError::Unreadable { .. }), "{error}");
        assert!(error.to_string().contains("result.parquet"), "{error}");
    }
    // Row bytes may be anything: the outcome is an error or different numbers, never a panic.
    for at in (0..footer_end).step_by(97) {
        let mut damaged = sound.clone();
        damaged[at] ^= 0x5a;
        std::fs::write(&path, damaged).unwrap();
        drop(made_again(&path, &target));
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "the result alone is there");
}

#[test]
fn other_views_are_documents_of_json_alone() {
    let page =
        String::from_utf8(document("config", &serde_json::json!({ "answer": "</script><b>" })).unwrap())
            .unwrap();
    assert!(!page.contains("</script><b>"));
    let head: serde_json::Value = serde_json::from_slice(&pieces(&page, "head")[0]).unwrap();
    assert_eq!((&head["kind"], &head["data"]["answer"]), (&"config".into(), &"</script><b>".into()));
}

/// Makes a report of the result at `path`.
fn made_again(path: &Path, target: &Path) -> Result<Draft, StoredError> {
    from_result(&StoredFile::open(path)?, target)
}
