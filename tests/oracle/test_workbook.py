"""result.xlsx read back cell by cell, beside result.parquet and report.json of the same run."""

import json

import openpyxl
import pyarrow.parquet as parquet
import pytest

from conftest import ROOT

FAULTS = ROOT / "testdata" / "faults"
RUNS = {
    "tensor": (ROOT / "testdata" / "gpu_dump", ROOT / "testdata" / "npu_dump"),
    "statistics": (
        FAULTS / "gpt_gelu_backward_L1_statistics" / "baseline",
        FAULTS / "gpt_extra_relu_L1_statistics" / "candidate",
    ),
}
WORDS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


@pytest.fixture(scope="module", params=RUNS)
def run(request, probe, tmp_path_factory):
    """Standard output, report, rows of the parquet file, workbook."""
    out = tmp_path_factory.mktemp(request.param)
    baseline, candidate = RUNS[request.param]
    code, text, errors = probe("compare", "-b", baseline, "-c", candidate, "-o", out)
    assert (code, errors) == (1, "")
    report = json.loads((out / "report.json").read_text())
    rows = parquet.read_table(out / "result.parquet").to_pylist()
    return text, report, rows, openpyxl.load_workbook(out / "result.xlsx")


def table(sheet):
    """Rows of a sheet by column header."""
    header, *rows = sheet.iter_rows(values_only=True)
    assert len(set(header)) == len(header)
    return [dict(zip(header, row)) for row in rows]


def test_sheets_can_be_scrolled_and_filtered(run):
    *_, book = run
    assert set(book.sheetnames) == {"run info", "summary", "tensors", "unmatched", "legend"}
    for name in ("summary", "tensors", "unmatched"):
        sheet = book[name]
        assert int("".join(filter(str.isdigit, sheet.freeze_panes))) == 2, "the header stays in sight"
        last = 1 if str(sheet["A2"].value).startswith("empty: ") else sheet.max_row
        assert sheet.auto_filter.ref == f"A1:{sheet.cell(1, sheet.max_column).column_letter}{last}"


def test_verdict_error_and_cosine_are_on_the_first_screen(run):
    *_, book = run
    for name in ("summary", "tensors"):
        sheet = book[name]
        head = [cell.value for cell in sheet[1]]
        wanted = {"verdict", "RelativeL2", "CosineSimilarity", "MaxAbsError"}
        last = max(head.index(label) for label in wanted)
        # The numbers of the rows and the scroll bar take 60 pixels.
        widths = [sheet.column_dimensions[sheet.cell(1, place + 1).column_letter].width for place in range(last + 1)]
        assert sum(width * 7 + 5 for width in widths) <= 1600 - 60
        assert all(cell.alignment.wrap_text for cell in sheet[1])


def test_the_summary_has_a_row_for_every_op(run):
    _, report, _, book = run
    rows = table(book["summary"])
    counts = report["counts"]
    assert len(rows) == counts["ops_paired"] + counts["ops_baseline_only"] + counts["ops_candidate_only"]
    assert {"CosineSimilarity", "MaxAbsError"} <= set(rows[0])
    first = report["first_divergence"]
    (named,) = [row for row in rows if (row["order"], row["step"], row["rank"]) == (first["order"], first["step"], first["rank"])]
    assert (named["op"], named["cause"], named["role"]) == (first["op"], first["cause"], first["role"])
    for word, count in counts["roles"].items():
        assert sum(row["role"] == word for row in rows) == count


def test_the_tensors_are_those_of_the_parquet_file(run):
    _, report, exact, book = run
    rows = table(book["tensors"])
    assert len(rows) == len(exact) == report["counts"]["slots"]
    labels = {"cosine": "CosineSimilarity", "max_abs_err": "MaxAbsError", "rel_l2": "RelativeL2", "mean_abs_err": "MeanAbsError"}
    compared = 0
    for shown, row in zip(rows, exact):
        for name, value in row.items():
            label = labels.get(name, name.replace("_", " "))
            if label not in shown:
                continue
            cell = shown[label]
            if isinstance(value, float):
                cell = WORDS.get(cell, cell)
                assert cell == pytest.approx(value, rel=1e-14, nan_ok=True), (row["op"], row["slot"], name)
            elif isinstance(value, bool):
                assert str(cell).lower() in (str(value).lower(), "yes" if value else "no")
            else:
                assert (cell if cell != "" else None) == (value if value != "" else None), (row["op"], row["slot"], name)
            compared += 1
    assert compared > 10 * len(rows)


def test_what_has_no_partner_is_listed(run):
    _, report, exact, book = run
    rows = [row for row in table(book["unmatched"]) if row["op"]]
    if not rows:
        assert book["unmatched"]["A2"].value.startswith("empty: ")
    ops = [row for row in rows if not row["slot"]]
    assert len(ops) == report["counts"]["ops_baseline_only"] + report["counts"]["ops_candidate_only"]
    alone = {row["op"] for row in exact if row["role"] == "unpaired"}
    assert {row["op"] for row in ops} == alone


def test_the_answer_stands_first_and_everything_is_explained(run):
    text, report, _, book = run
    answer = text.splitlines()[0]
    assert answer.startswith("first divergence: ") and report["first_divergence"]["op"] in answer
    assert book["run info"]["A1"].value.startswith(answer)
    head, *_ = [row for row in book["run info"].iter_rows(values_only=True) if row[0] == "order"]
    assert {"RelativeL2", "CosineSimilarity", "source", "module", "followers"} <= set(head)
    legend = {str(row[0]) for row in book["legend"].iter_rows(values_only=True) if row[0]}
    for name in ("summary", "tensors"):
        missing = [cell.value for cell in book[name][1] if cell.value not in legend]
        assert missing == []
