//! `result.xlsx`, its cells read back with another library.

use std::io::Read as _;
use std::path::Path;

use calamine::{Data, Range, Reader, Xlsx, open_workbook};

use super::fixture::{Part, SHARDS, both, data, everything, full_summary, hostile_names, summary, tensor};
use crate::columns::{OpColumn, SlotColumn, UnmatchedColumn};
use crate::rows::{Cell, op_rows};
use crate::xlsx::XlsxReport;
use crate::{Extent, ReportWriter};
use probe_compare::PartReport;
use probe_dump::Task;
use probe_judge::{Cause, Role, Summary, Verdict};
use probe_measure::ALL_METRICS;

mod stored;

type Book = Xlsx<std::io::BufReader<std::fs::File>>;

fn written(path: &Path, rows: u32, parts: &[PartReport<'_>], summary: &Summary) -> Book {
    finished(XlsxReport::limited(path, Extent::Selection, rows, 20_000).unwrap(), parts, summary)
}

fn finished(mut writer: XlsxReport, parts: &[PartReport<'_>], summary: &Summary) -> Book {
    for part in parts {
        writer.part(part).unwrap();
    }
    open_workbook(Box::new(writer).finish(summary).unwrap().place().unwrap()).unwrap()
}

fn sheet(book: &mut Book, name: &str) -> Range<Data> {
    book.worksheet_range(name).unwrap()
}

fn header(range: &Range<Data>) -> Vec<String> {
    range.rows().next().unwrap().iter().map(ToString::to_string).collect()
}

fn column(range: &Range<Data>, label: &str) -> Vec<Data> {
    let index = header(range).iter().position(|name| name == label).unwrap_or_else(|| panic!("no {label}"));
    range.rows().skip(1).map(|row| row[index].clone()).collect()
}

/// Returns the text of a member of the package.
fn member(path: &Path, name: &str) -> String {
    let mut zip = zip::ZipArchive::new(std::fs::File::open(path).unwrap()).unwrap();
    let mut text = String::new();
    zip.by_name(name).unwrap().read_to_string(&mut text).unwrap();
    text
}

/// Returns the cell as calamine should see it.
fn expected(cell: &Cell<'_>) -> Data {
    match cell {
        Cell::Empty => Data::Empty,
        Cell::Count(value) => Data::Float(*value as f64),
        Cell::Real(value) if value.is_nan() => Data::String("NaN".into()),
        Cell::Real(value) if value.is_infinite() => {
            Data::String(if *value > 0.0 { "Infinity" } else { "-Infinity" }.into())
        }
        Cell::Real(value) => Data::Float(*value),
        Cell::Flag(value) => Data::String(if *value { "yes" } else { "no" }.into()),
        Cell::Text(text) => Data::String(text.to_string()),
    }
}

#[test]
fn every_cell_reads_back() {
    let folder = tempfile::tempdir().unwrap();
    let part = everything();
    let report = part.report();
    let mut book = written(&folder.path().join("result.xlsx"), 1000, &[report], &full_summary(&part));
    assert_eq!(book.sheet_names(), ["run info", "summary", "tensors", "unmatched", "legend"]);

    let tensors = sheet(&mut book, "tensors");
    assert_eq!(header(&tensors), SlotColumn::all().iter().map(|c| c.label()).collect::<Vec<_>>());
    let rows: Vec<_> = op_rows(&report).flat_map(|op| op.slots()).collect();
    let is_piece = |cells: &[Data]| cells.iter().filter(|cell| **cell != Data::Empty).count() == 6;
    assert_eq!(tensors.rows().count(), rows.len() + 3);
    let of_values = tensors.rows().skip(1).filter(|cells| !is_piece(cells));
    for (row, cells) in rows.iter().zip(of_values) {
        for (column, cell) in SlotColumn::all().into_iter().zip(cells) {
            if column != SlotColumn::Op {
                assert_eq!(cell, &expected(&row.cell(column)), "{column:?} of {}", row.path());
            }
        }
    }

    let ops = sheet(&mut book, "summary");
    let op_columns: Vec<_> =
        OpColumn::all().into_iter().filter(|column| *column != OpColumn::Replay).collect();
    assert_eq!(header(&ops), op_columns.iter().map(|c| c.label()).collect::<Vec<_>>());
    assert_eq!(ops.rows().count(), part.pair.ops.len() + 1);
    for (op, cells) in op_rows(&report).zip(ops.rows().skip(1)) {
        for (&column, cell) in op_columns.iter().zip(cells) {
            if column != OpColumn::Op {
                assert_eq!(
                    cell,
                    &expected(&op.cell(column, op.representative())),
                    "{column:?} of {}",
                    op.name()
                );
            }
        }
    }
    assert_eq!(column(&ops, "CosineSimilarity")[1], Data::Float(0.999_95));
    assert_eq!(column(&ops, "MaxAbsError")[1], Data::Float(0.03));
    assert_eq!(column(&ops, "source")[1], Data::String("/home/user/train.py:112".into()));
    assert_eq!(column(&ops, "module")[1], Data::String("layers.0.mlp".into()));
    assert_eq!(column(&tensors, "max abs position")[4], Data::String("[0, 4, 1]".into()));
}

#[test]
fn pieces_of_a_value_are_folded_below_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("result.xlsx");
    let part = everything();
    let mut book = written(&path, 1000, &[part.report()], &full_summary(&part));
    let tensors = sheet(&mut book, "tensors");
    let held: Vec<String> = column(&tensors, "pieces").iter().map(ToString::to_string).collect();
    let at = held.iter().position(|text| text == SHARDS).unwrap();
    let (first, second) = SHARDS.split_once("; ").unwrap();
    assert_eq!(held[at + 1..at + 4], [first, second, ""]);
    let slots = column(&tensors, "slot");
    assert!(slots[at] == slots[at + 1] && slots[at + 1] == slots[at + 2]);
    let xml = member(&path, "xl/worksheets/sheet3.xml");
    // The head is row 1, and `at` counts from 0 below it.
    for (row, fold) in [(at + 2, "collapsed=\"1\""), (at + 3, "outlineLevel=\"1\" hidden=\"1\"")] {
        assert!(xml.contains(&format!("<row r=\"{row}\" {fold}>")), "{row}");
    }
    assert_eq!(xml.matches("hidden=\"1\"").count(), 2);
    assert!(xml.contains("<outlinePr summaryBelow=\"0\"/>") && xml.contains("outlineLevelRow=\"1\""));
    // Rows of values behind the folded ones are still where links lead.
    let unmatched = member(&path, "xl/worksheets/sheet4.xml");
    let lone =
        (0..held.len()).find(|&row| column(&tensors, "verdict")[row] == Data::String("missing".into()));
    assert!(unmatched.contains(&format!("location=\"'tensors'!A{}\"", lone.unwrap() + 2)), "{unmatched}");
}

#[test]
fn what_one_side_lacks_is_on_a_sheet_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let part = everything();
    let mut book = written(&folder.path().join("r.xlsx"), 1000, &[part.report()], &full_summary(&part));
    let unmatched = sheet(&mut book, "unmatched");
    assert_eq!(header(&unmatched), UnmatchedColumn::ALL.map(UnmatchedColumn::label));
    let text = |label| column(&unmatched, label).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(text("slot"), ["output.1", "output.2", "", ""]);
    assert_eq!(text("recorded by"), ["baseline", "candidate", "baseline", "candidate"]);
    assert_eq!(text("op")[2..], ["Functional.only_gpu.0.forward", "Functional.only_npu.0.forward"]);
}

#[test]
fn hostile_names_are_text_and_harmless() {
    let folder = tempfile::tempdir().unwrap();
    let part = everything();
    let mut book = written(&folder.path().join("r.xlsx"), 1000, &[part.report()], &full_summary(&part));
    let names: Vec<String> =
        column(&sheet(&mut book, "summary"), "op").iter().map(ToString::to_string).collect();
    let names = &names[names.len() - hostile_names().len()..];
    assert_eq!(names[0], "=cmd|'/C calc'!A0");
    assert_eq!(names[1], "\\x1b]0;owned\\x07\\x1b[2J.0.forward");
    assert_eq!(names[2], "<script>alert(\"&\")</script>");
    assert_eq!(names[4], "@SUM(1+1)*cmd\\n\\r\\tx");
    assert!(names[5].ends_with("... [cut, 40021 characters in all]") && names[5].len() == 32_767);
    assert!(book.worksheet_formula("summary").unwrap().is_empty(), "no text became a formula");
    assert!(book.worksheet_formula("tensors").unwrap().is_empty());
}

#[test]
fn the_answer_stands_first() {
    let folder = tempfile::tempdir().unwrap();
    let part = everything();
    let mut book = written(&folder.path().join("r.xlsx"), 1000, &[part.report()], &full_summary(&part));
    let front = sheet(&mut book, "run info");
    let cells: Vec<String> = front.rows().map(|row| row[0].to_string()).collect();
    assert!(cells[0].starts_with("first divergence: step 0, rank 0, Functional.gelu.1.forward output.0"));
    for word in ["path", "task", "steps", "clean", "non-finite", "not compared (7)", "tool"] {
        assert!(cells.iter().any(|cell| cell == word), "{word}");
    }
    let legend = sheet(&mut book, "legend");
    let words: Vec<String> = legend.rows().map(|row| row[0].to_string()).collect();
    for label in
        SlotColumn::all().iter().map(|column| column.label()).chain(ALL_METRICS.map(|m| m.label().into()))
    {
        assert!(words.contains(&label), "{label}");
    }
}

#[test]
fn a_full_sheet_goes_on_in_another_and_links_follow() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.xlsx");
    let mut part = Part::new(3, Task::Tensor);
    for index in 0..10 {
        part.push(
            &format!("Functional.relu.{index}.forward"),
            Role::Clean,
            None,
            vec![
                both("input.0", tensor(), data(0.0), Verdict::BitEqual),
                both("output.0", tensor(), data(0.0), Verdict::BitEqual),
            ],
        );
    }
    let mut book = written(&path, 8, &[part.report()], &summary(&[&part]));
    let names = book.sheet_names();
    assert_eq!(
        names,
        ["run info", "summary", "summary 2", "tensors", "tensors 2", "tensors 3", "unmatched", "legend"]
    );
    let rows: usize = ["tensors", "tensors 2", "tensors 3"]
        .map(|name| sheet(&mut book, name).rows().count() - 1)
        .iter()
        .sum();
    assert_eq!(rows, 20);
    let first = header(&sheet(&mut book, "tensors"));
    assert_eq!(first, header(&sheet(&mut book, "tensors 3")));

    let mut zip = zip::ZipArchive::new(std::fs::File::open(&path).unwrap()).unwrap();
    let mut xml = String::new();
    zip.by_name("xl/worksheets/sheet3.xml").unwrap().read_to_string(&mut xml).unwrap();
    // Op 9 is the third of `summary 2`; its slots are rows 18 and 19 of 20, the fifth and sixth of `tensors 3`.
    assert!(xml.contains("<hyperlink ref=\"D4\" location=\"'tensors 3'!A6\" "), "{xml}");
}

#[test]
fn a_part_with_more_columns_begins_a_new_sheet() {
    let folder = tempfile::tempdir().unwrap();
    let mut small = Part::new(0, Task::Structure);
    small.push(
        "Functional.relu.0.forward",
        Role::Clean,
        None,
        vec![both("output.0", probe_dump::Value::None, probe_measure::Evidence::Nothing, Verdict::Unknown)],
    );
    let full = everything();
    let parts = [small.report(), full.report(), small.report()];
    let mut book = written(&folder.path().join("r.xlsx"), 1000, &parts, &summary(&[&small, &full]));
    let narrow = header(&sheet(&mut book, "tensors"));
    let wide = header(&sheet(&mut book, "tensors 2"));
    assert!(narrow.len() < wide.len());
    assert!(narrow.contains(&"CosineSimilarity".to_owned()) && !narrow.contains(&"RMSE".to_owned()));
    assert_eq!(wide.len(), SlotColumn::all().len());
    assert!(book.worksheet_range("tensors 3").is_err(), "fewer columns need no new sheet");
}

#[test]
fn an_empty_comparison_is_a_whole_workbook() {
    let folder = tempfile::tempdir().unwrap();
    let mut book = written(&folder.path().join("r.xlsx"), 1000, &[], &summary(&[]));
    assert_eq!(book.sheet_names(), ["run info", "summary", "tensors", "unmatched", "legend"]);
    for (name, why) in [
        ("summary", "empty: no op was compared"),
        ("tensors", "empty: the ops hold no values"),
        ("unmatched", "empty: every op and every value that was compared has a counterpart"),
    ] {
        let sheet = sheet(&mut book, name);
        let first: Vec<String> = sheet.rows().map(|row| row[0].to_string()).collect();
        assert_eq!(first, ["step", why]);
    }
}

/// Returns a part of `count` ops with two values each, all sound except those at fault and those that differ for another
/// reason.
fn long(step: u64, count: usize, at_fault: &[usize], differ: &[usize]) -> Part {
    let mut part = Part::new(step, Task::Tensor);
    for index in 0..count {
        let bad = at_fault.contains(&index) || differ.contains(&index);
        let (error, verdict) = if bad { (0.1, Verdict::Differs) } else { (0.0, Verdict::BitEqual) };
        let role = match (at_fault.contains(&index), bad) {
            (true, _) => Role::Introduces,
            (false, true) => Role::Propagates,
            (false, false) => Role::Clean,
        };
        part.push(
            &format!("Functional.relu.{index}.forward"),
            role,
            at_fault.contains(&index).then_some(Cause::Numerics),
            vec![
                both("input.0", tensor(), data(0.0), Verdict::BitEqual),
                both("output.0", tensor(), data(error), verdict),
            ],
        );
    }
    part
}

/// Writes `parts` with tables that hold everything up to `most` rows.
fn selected(extent: Extent, most: u64, parts: &[PartReport<'_>], summary: &Summary) -> Book {
    let folder = tempfile::tempdir().unwrap();
    let writer = XlsxReport::limited(&folder.path().join("r.xlsx"), extent, 1_000_000, most).unwrap();
    finished(writer, parts, summary)
}

/// Returns the orders of the ops on a sheet, and its notice if it has one.
fn orders(book: &mut Book, name: &str) -> (Option<String>, Vec<u32>) {
    let range = sheet(book, name);
    let mut rows = range.rows();
    let first = rows.next().unwrap();
    let notice = (first[1] == Data::Empty).then(|| first[0].to_string());
    let head = if notice.is_some() { rows.next().unwrap() } else { first };
    let place = head.iter().position(|cell| *cell == "order").unwrap();
    let number = |row: &[Data]| row[place].to_string().parse().ok();
    (notice, rows.filter_map(number).collect())
}

#[test]
fn a_large_comparison_shows_what_is_at_fault_with_its_neighbourhood_and_what_differs() {
    let part = long(0, 200, &[30], &[150]);
    let mut book = selected(Extent::Selection, 100, &[part.report()], &summary(&[&part]));
    let near: Vec<u32> = (20..=40).chain([150]).collect();
    let (notice, ops) = orders(&mut book, "summary");
    assert_eq!(ops, near);
    assert!(notice.unwrap().contains("the 10 ops before and after"), "says that it is a selection");
    let (notice, values) = orders(&mut book, "tensors");
    assert_eq!(values, near.iter().flat_map(|&order| [order, order]).collect::<Vec<_>>());
    assert!(
        notice.unwrap().contains("Everything is in result.parquet, or here with `probe compare --full`.")
    );
    let front = sheet(&mut book, "run info");
    let told = |key: &str| front.rows().find(|row| row[0] == *key).unwrap()[1].to_string();
    assert!(told("sheet summary").starts_with("22 of 200 ops: "));
    assert!(told("sheet tensors").starts_with("44 of 400 values: "));
    assert!(!told("sheet tensors").contains("did not fit"));

    let mut book = selected(Extent::Full, 100, &[part.report()], &summary(&[&part]));
    assert_eq!(orders(&mut book, "tensors"), (None, (0..200).flat_map(|order| [order, order]).collect()));
}

#[test]
fn ops_at_fault_find_room_where_everything_differs() {
    let all: Vec<usize> = (0..500).collect();
    let part = long(0, 500, &[400, 450], &all);
    let mut book = selected(Extent::Selection, 100, &[part.report()], &summary(&[&part]));
    let (_, values) = orders(&mut book, "tensors");
    assert!(values.len() <= 100 && values.contains(&400) && values.contains(&450) && values.contains(&0));
    let front = sheet(&mut book, "run info");
    assert!(front.rows().any(|row| row[1].to_string().contains("did not fit")));
}

#[test]
fn a_selection_begins_with_the_first_part_where_there_are_many_and_later_where_parts_grow() {
    let (first, second) = (long(0, 30, &[], &[7]), long(1, 30, &[], &[8]));
    let both = summary(&[&first, &second]);
    let with_many = [first.report(), second.report()].map(|report| PartReport { parts: 2, ..report });
    let mut book = selected(Extent::Selection, 100, &with_many, &both);
    assert_eq!(orders(&mut book, "tensors").1, [7, 7, 8, 8]);
    assert_eq!(orders(&mut book, "summary").1.len(), 60, "60 ops are not too many");

    let unforeseen = [PartReport { parts: 1, ..first.report() }, PartReport { parts: 1, ..second.report() }];
    let mut book = selected(Extent::Selection, 100, &unforeseen, &both);
    assert_eq!(orders(&mut book, "tensors").1.len(), 60);
    let (notice, values) = orders(&mut book, "tensors 2");
    assert!(notice.is_some());
    assert_eq!(values, [8, 8]);
}

#[test]
fn nothing_to_show_of_a_large_comparison_is_said() {
    let part = long(0, 200, &[], &[]);
    let mut book = selected(Extent::Selection, 100, &[part.report()], &summary(&[&part]));
    let tensors = sheet(&mut book, "tensors");
    assert_eq!(
        tensors.rows().nth(2).unwrap()[0].to_string(),
        "empty: no op is at fault, and no value differs"
    );
}

#[test]
fn the_same_comparison_gives_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let part = everything();
    let bytes = ["a.xlsx", "b.xlsx"].map(|name| {
        let path = folder.path().join(name);
        drop(written(&path, 1000, &[part.report()], &full_summary(&part)));
        std::fs::read(path).unwrap()
    });
    assert_eq!(bytes[0], bytes[1]);
}

/// Checks that every part of the package is well-formed XML; `PROBE_KEEP_XLSX` names a file to keep for inspection.
#[test]
fn parts_are_well_formed() {
    let folder = tempfile::tempdir().unwrap();
    let part = everything();
    let path = folder.path().join("r.xlsx");
    drop(written(&path, 1000, &[part.report()], &full_summary(&part)));
    if let Some(keep) = std::env::var_os("PROBE_KEEP_XLSX") {
        std::fs::copy(&path, keep).unwrap();
    }
    let mut zip = zip::ZipArchive::new(std::fs::File::open(&path).unwrap()).unwrap();
    for index in 0..zip.len() {
        let mut entry = zip.by_index(index).unwrap();
        let mut xml = String::new();
        entry.read_to_string(&mut xml).unwrap();
        let mut open: Vec<&str> = Vec::new();
        for tag in xml.split('<').skip(1) {
            let (tag, text) = tag.split_once('>').unwrap();
            assert!(!text.contains('>'), "{:?}: {tag}", entry.name());
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name), "{:?}", entry.name()),
                None if tag.starts_with('?') || tag.ends_with('/') => {}
                None => open.push(tag.split(' ').next().unwrap()),
            }
        }
        assert!(open.is_empty(), "{:?}: {open:?}", entry.name());
        assert!(xml.chars().all(|c| !c.is_control() || c == '\n'), "{:?}", entry.name());
    }
}
