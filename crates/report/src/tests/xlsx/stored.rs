//! Workbooks made from the rows that other processes wrote, or from the result of an earlier comparison.

use super::*;
use crate::parquet::ParquetReport;
use crate::xlsx::from_result;
use crate::{StoredError, StoredFile, StoredRun};
use probe_files::Draft;

/// Returns every cell of every sheet except the first, which holds the time of the comparison.
fn cells(book: &mut Book) -> Vec<(String, Vec<Vec<Data>>)> {
    let names = book.sheet_names();
    let rows = |range: Range<Data>| range.rows().map(<[Data]>::to_vec).collect();
    names.into_iter().skip(1).map(|name| (name.clone(), rows(sheet(book, &name)))).collect()
}

/// Returns the rows of parts, each stored in a separate file, in this order.
fn stored(folder: &Path, parts: &[PartReport<'_>]) -> StoredRun {
    let write = |(index, part): (usize, &PartReport<'_>)| {
        let path = folder.join(format!("{index}.parquet"));
        let mut writer = Box::new(crate::parquet::ParquetReport::create(&path).unwrap());
        writer.part(part).unwrap();
        writer.finish(&Summary::empty()).unwrap().place().unwrap()
    };
    let paths: Vec<_> = parts.iter().enumerate().map(write).collect();
    StoredRun::open(&paths).unwrap()
}

#[test]
fn rows_of_shards_make_the_workbook_of_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let part = everything();
    let summary = full_summary(&part);
    let mut live = written(&folder.path().join("live.xlsx"), 1000, &[part.report()], &summary);
    let run = stored(folder.path(), &[part.report()]);
    let mut writer = XlsxReport::create(&folder.path().join("stored.xlsx"), Extent::Selection).unwrap();
    writer.stored(&run, &summary).unwrap();
    let mut made: Book = open_workbook(Box::new(writer).finish(&summary).unwrap().place().unwrap()).unwrap();
    // An op without values has no row in the file for programs.
    let mut expected = cells(&mut live);
    let valued: Vec<_> = op_rows(&part.report()).map(|op| op.slot_count() > 0).collect();
    let mut place = 0;
    expected[0].1.retain(|_| {
        place += 1;
        place == 1 || valued[place - 2]
    });
    assert_eq!(cells(&mut made), expected);
}

#[test]
fn replays_are_beside_their_ops() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let part = everything();
    let mut writer = Box::new(ParquetReport::create(&path("result.parquet")).unwrap());
    writer.part(&part.report()).unwrap();
    writer.finish(&full_summary(&part)).unwrap().place().unwrap();
    let made = |name: &str| -> Book {
        open_workbook(made_again(&path("result.parquet"), &path(name)).unwrap().place().unwrap()).unwrap()
    };
    let mut before = made("before.xlsx");
    let row = |of: &str| {
        serde_json::json!({
            "of": of, "rmse": 2.5e-4, "largest_relative": "inf", "largest_ulp": 1.5e5, "beyond": 0.998, "l2": 4.1e-4
        })
    };
    let op = column(&sheet(&mut before, "summary"), "op")[1].to_string();
    let replay = |op: &str| {
        serde_json::json!({
            "step": 0, "rank": 0, "op": op, "guilty": "candidate", "answer": "the candidate's kernel", "equal_to": null,
            "results": [{ "output": "0", "standard": "fails L2", "rows": [row("baseline, recorded"), row("replayed")] }]
        })
    };
    let replays =
        serde_json::json!({ "schema_version": 1, "replays": [replay("Torch.gone.0.forward"), replay(&op)] });
    std::fs::write(path("replays.json"), replays.to_string()).unwrap();
    let mut after = made("after.xlsx");
    assert_eq!(after.sheet_names(), ["run info", "summary", "tensors", "unmatched", "replays", "legend"]);
    let said: Vec<_> = column(&sheet(&mut after, "summary"), "replay").iter().map(Data::to_string).collect();
    let expected = |row: usize| if row == 1 { "the candidate's kernel" } else { "" };
    assert_eq!(said, (0..said.len()).map(expected).collect::<Vec<_>>());
    let numbers = sheet(&mut after, "replays");
    let text = |label| column(&numbers, label).iter().map(Data::to_string).collect::<Vec<_>>();
    assert_eq!(text("op"), ["Torch.gone.0.forward", "Torch.gone.0.forward", &op, &op]);
    assert_eq!(text("of")[2..], ["baseline, recorded", "replayed"]);
    assert_eq!(text("max rel")[3], "inf");
    let unchanged = |book: &mut Book| {
        ["tensors", "unmatched"]
            .map(|name| sheet(book, name).rows().map(<[Data]>::to_vec).collect::<Vec<_>>())
    };
    assert_eq!(unchanged(&mut after), unchanged(&mut before));
}

#[test]
fn a_large_run_of_shards_shows_what_one_process_shows_whatever_order_they_are_in() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second, third) = (long(0, 60, &[7], &[8]), long(1, 90, &[30], &[80]), long(2, 50, &[], &[]));
    let all = summary(&[&first, &second, &third]);
    let [one, two, three] = [&first, &second, &third].map(|part| PartReport { parts: 3, ..part.report() });
    let mut live = selected(Extent::Selection, 100, &[one, two, three], &all);
    let run = stored(folder.path(), &[three, two, one]);
    let path = folder.path().join("stored.xlsx");
    let mut writer = XlsxReport::limited(&path, Extent::Selection, 1_000_000, 100).unwrap();
    writer.stored(&run, &all).unwrap();
    let mut made: Book = open_workbook(Box::new(writer).finish(&all).unwrap().place().unwrap()).unwrap();
    assert_eq!(cells(&mut made), cells(&mut live));
}

/// Makes a report of the result at `path`.
fn made_again(path: &Path, target: &Path) -> Result<Draft, StoredError> {
    from_result(StoredFile::open(path)?, target)
}
