use std::fmt::Write as _;
use std::path::Path;

use super::tensorboard::masked_crc;
use super::*;

fn read(name: &str, text: &str) -> Imported {
    import_bytes(Path::new(name), text.as_bytes(), None).unwrap()
}

fn refused(name: &str, bytes: &[u8]) -> String {
    import_bytes(Path::new(name), bytes, None).unwrap_err().to_string()
}

fn points(imported: &Imported, name: &str) -> Vec<(u64, f64)> {
    imported.scalars[name].iter().map(|(step, value)| (*step, *value)).collect()
}

#[test]
fn golden_values_of_both_layouts_are_read() {
    let newer = read(
        "golden_values_dev.json",
        r#"{"lm loss": {"start_step": 1, "end_step": 15, "step_interval": 5, "values": {"1": 10.83373, "5": 10.85679, "10": "nan", "15": 10.5}},
            "num-zeros": {"start_step": 1, "end_step": 15, "step_interval": 5, "values": {"1": 1488.0, "5": "inf"}}}"#,
    );
    assert_eq!(newer.format, ScalarFormat::Megatron);
    assert_eq!(points(&newer, "lm loss")[..2], [(1, 10.83373), (5, 10.85679)]);
    assert!(newer.scalars["lm loss"][&10].is_nan());
    assert_eq!(points(&newer, "num-zeros"), [(1, 1488.0), (5, f64::INFINITY)]);
    let older = read(
        "golden_values.json",
        r#"{"lm loss": {"start_step": 0, "end_step": 20, "step_interval": 5, "values": [10.8, 10.7, "nan", 10.5]}}"#,
    );
    let of_list: Vec<u64> = older.scalars["lm loss"].keys().copied().collect();
    assert_eq!(of_list, [0, 5, 10, 15]);
    for (text, expected) in [
        (r#"{"a": {"values": {"one": 1}}}"#, "\"one\" is not a step"),
        (r#"{"a": {"values": [1]}}"#, "no whole number \"start_step\""),
        (r#"{"a": {"start_step": 0, "step_interval": 0, "values": [1]}}"#, "above 0"),
        (r#"{"a": {"values": {"1": "ten"}}}"#, "is not a number"),
        (r#"{"a": {"start_step": 18446744073709551615, "step_interval": 2, "values": [1, 2]}}"#, "pass 2^64"),
    ] {
        let message = refused("g.json", text.as_bytes());
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn loss_texts_keep_every_digit() {
    let read = read(
        "llama3_cuda.txt",
        "1 8.048324584960938\n2 7.751155376434326\n\n# a remark\n10 7.676315726712346e-05\n",
    );
    assert_eq!(read.format, ScalarFormat::LossText);
    assert_eq!(
        points(&read, "loss"),
        [(1, 8.048_324_584_960_938), (2, 7.751_155_376_434_326), (10, 7.676_315_726_712_346e-5)]
    );
    let message = refused("a.txt", b"1 8.0\n2 7.0 6.0\n");
    assert!(
        message.contains("line 2: expected a step and loss, found \"2 7.0 6.0\"; a comment above names"),
        "{message}"
    );
}

#[test]
fn columns_of_loss_texts_are_named_by_a_remark() {
    let text = "# config: llama3\n# ngpu: 8\n# step loss grad_norm\n1 8.02 1.5995\n# step of another kind\n2 7.69 nan\n";
    let several = read("llama3.txt", text);
    assert_eq!(several.format, ScalarFormat::LossText);
    assert_eq!(points(&several, "loss"), [(1, 8.02), (2, 7.69)]);
    assert_eq!(points(&several, "grad_norm")[0], (1, 1.5995));
    assert!(several.scalars["grad_norm"][&2].is_nan());
    for (text, expected) in [
        (
            "# step loss grad_norm\n1 8.0 2.0\n2 7.0\n",
            "line 3: expected a step and loss, grad_norm, found \"2 7.0\"",
        ),
        // Nothing names the columns.
        ("1 8.0 2.0\n", "line 1: expected a step and loss, found"),
        ("# step loss loss\n1 8.0 2.0\n", "line 2: expected a step and loss, found"),
    ] {
        let message = refused("a.txt", text.as_bytes());
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn tables_and_json_lines_are_read() {
    for (name, text) in [
        ("a.csv", "step,train/loss,note,lr\n0,2.5,x,\n1,NaN,y,1e-4\n2,-inf,,1e-4\n"),
        ("a.tsv", "step\ttrain/loss\tnote\tlr\n0\t2.5\tx\t\n1\tnan\ty\t0.0001\n2\t-Infinity\t\t0.0001\n"),
        ("a.csv", "\u{feff}\"step\";\"train/loss\";note;lr\n0;2.5;x;\n1;nan;y;1e-4\n2;-inf;;1e-4\n"),
    ] {
        let read = read(name, text);
        assert_eq!(read.format, ScalarFormat::Csv, "{text}");
        let loss = points(&read, "train/loss");
        assert_eq!(loss[0], (0, 2.5));
        assert!(loss[1].1.is_nan() && loss[2] == (2, f64::NEG_INFINITY));
        assert_eq!(points(&read, "lr"), [(1, 1e-4), (2, 1e-4)]);
        assert_eq!(read.notes, ["column \"note\" holds no numbers and was left out"]);
    }
    assert!(
        refused("a.csv", b"step,loss\n0,1.0\n1,oops\n").contains("line 3: column \"loss\" holds \"oops\"")
    );
    assert!(refused("a.csv", b"time,loss\n0,1.0\n").contains("no step column"));
    assert!(refused("a.csv", b"step,loss\nx,1.0\n").contains("line 2: \"x\" is not a step"));

    let lines = read(
        "log.jsonl",
        "{\"step\": 1, \"loss\": 2.5, \"train\": {\"acc\": 0.5}}\n\n{\"step\": 2.0, \"loss\": NaN, \"tag\": \"x\"}\n{\"loss\": 1}\n",
    );
    assert_eq!(lines.format, ScalarFormat::JsonLines);
    assert_eq!(points(&lines, "train/acc"), [(1, 0.5)]);
    assert!(lines.scalars["loss"][&2].is_nan());
    assert!(lines.notes[0].starts_with("1 entries have no step"));
    assert!(refused("log.jsonl", b"{\"step\": 1, \"loss\": 2.5}\n{\"step\": 2,").contains("line 2"));
    let list = read("log.json", r#"[{"step": 1, "loss": 2.5}, {"step": 1, "loss": 2.0}]"#);
    assert_eq!(points(&list, "loss"), [(1, 2.0)]);
    assert!(list.notes[0].contains("the last one counts"), "{:?}", list.notes);
}

#[test]
fn a_trainer_state_is_read_without_its_summary() {
    let state = read(
        "trainer_state.json",
        r#"{"epoch": 1.0, "global_step": 20, "log_history": [
            {"epoch": 0.5, "grad_norm": 1.25, "learning_rate": 5e-05, "loss": 2.5, "step": 10},
            {"epoch": 1.0, "grad_norm": NaN, "learning_rate": 4e-05, "loss": 2.25, "step": 20},
            {"epoch": 1.0, "step": 20, "train_loss": 2.4, "train_runtime": 10.0}]}"#,
    );
    assert_eq!(state.format, ScalarFormat::TrainerState);
    assert_eq!(points(&state, "loss"), [(10, 2.5), (20, 2.25)]);
    assert!(state.scalars["grad_norm"][&20].is_nan());
    let names: Vec<&str> = state.scalars.keys().map(String::as_str).collect();
    assert_eq!(names, ["grad_norm", "learning_rate", "loss"]);
}

/// Returns a record of an event file.
fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    [&length[..], &masked_crc(&length).to_le_bytes(), data, &masked_crc(data).to_le_bytes()].concat()
}

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

fn event(step: u8, value: &[u8]) -> Vec<u8> {
    [&[2 << 3, step][..], &field(5, &field(1, value))].concat()
}

fn event_file() -> Vec<u8> {
    let tag = |name: &str| field(1, name.as_bytes());
    let simple = [tag("loss"), [&[2 << 3 | 5][..], &2.5_f32.to_le_bytes()].concat()].concat();
    // The form used by the newer writers of torch and TensorFlow: a tensor without dimensions.
    let of_floats = field(8, &[&[1 << 3, 1][..], &field(5, &0.1_f32.to_le_bytes())].concat());
    let of_content =
        field(8, &[&[1 << 3, 2][..], &field(2, &[]), &field(4, &0.3_f64.to_le_bytes())].concat());
    let of_many =
        field(8, &[&[1 << 3, 1][..], &field(2, &field(2, &[1 << 3, 2])), &field(4, &[0; 8])].concat());
    [
        record(&field(3, b"brain.Event:2")),
        record(&event(1, &simple)),
        record(&event(1, &[tag("acc"), of_floats].concat())),
        record(&event(2, &[tag("acc"), of_content].concat())),
        record(&event(2, &[tag("histogram"), of_many].concat())),
    ]
    .concat()
}

#[test]
fn event_files_are_read_in_both_forms_and_their_checksums_hold() {
    let path = Path::new("events.out.tfevents.1");
    let bytes = event_file();
    let found = import_bytes(Path::new("renamed"), &bytes, None).unwrap();
    assert_eq!(found.format, ScalarFormat::TensorBoard);
    assert_eq!(points(&found, "loss"), [(1, 2.5)]);
    assert_eq!(points(&found, "acc"), [(1, f64::from(0.1_f32)), (2, 0.3)]);
    assert!(found.notes[0].starts_with("1 values that are not scalars"), "{:?}", found.notes);
    // A record that was still being written.
    let cut = import_bytes(path, &bytes[..bytes.len() - 3], None).unwrap();
    assert!(cut.notes[0].contains("breaks off"), "{:?}", cut.notes);
    // Any other damage is an error, wherever it is.
    for place in 0..bytes.len() - 60 {
        let mut damaged = bytes.clone();
        damaged[place] ^= 0x10;
        let message = refused("events.out.tfevents.1", &damaged);
        assert!(message.contains("checksum"), "byte {place}: {message}");
    }
}

/// Returns the path of a file of `testdata/scalars`, written by the program that it is named after.
fn real(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/scalars").join(name)
}

#[test]
fn files_of_real_writers_are_read() {
    let torch = import(&real("events.out.tfevents.1.torch"), None).unwrap();
    let third = 1.0 / 3.0;
    assert_eq!(points(&torch, "train/loss"), [(0, 3.0), (1, 1.5), (2, 1.0)]);
    // In the newer form and in double precision.
    assert_eq!(points(&torch, "lr"), [(0, third), (1, 2.0 * third), (2, 1.0)]);
    assert_eq!(torch.notes.len(), 1, "the text: {:?}", torch.notes);
    let x = import(&real("events.out.tfevents.2.tensorboardX"), None).unwrap();
    assert_eq!(points(&x, "train/loss"), points(&torch, "train/loss"));

    let state = import(&real("trainer_state.json"), None).unwrap();
    assert_eq!(state.format, ScalarFormat::TrainerState);
    assert_eq!(points(&state, "loss").iter().map(|(step, _)| *step).collect::<Vec<_>>(), [2, 4, 6, 8, 10]);
    assert_eq!(points(&state, "eval_loss").len(), 2);
}

#[test]
fn runs_in_folders_are_not_mixed() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    for run in ["one", "two"] {
        fs::create_dir_all(place(run)).unwrap();
        fs::copy(real("events.out.tfevents.1.torch"), place(run).join("events.out.tfevents.1")).unwrap();
    }
    fs::create_dir_all(place("checkpoints")).unwrap();
    let message = import(folder.path(), None).unwrap_err().to_string();
    assert!(
        message.ends_with(
            "no event file (*tfevents*) in this folder; folders in it have some: give one of one, two"
        ),
        "{message}"
    );
    fs::copy(real("events.out.tfevents.2.tensorboardX"), place("events.out.tfevents.2")).unwrap();
    let above = import(folder.path(), None).unwrap();
    assert_eq!(above.scalars.keys().collect::<Vec<_>>(), ["train/loss"]);
    assert_eq!(above.notes, ["events in folders below it were not read: one, two"]);
}

#[test]
fn what_is_no_file_of_scalars_is_refused_in_one_line() {
    for (bytes, expected) in [
        (&b""[..], "the file is empty"),
        (b"hello world\n", "not a file of scalars"),
        (b"\xff\xfe\x00", "not a file of scalars"),
        (b"{}", "contains no scalar"),
        (b"[1, 2]", "contains no scalar"),
        (b"{\"step\": 1}", "contains no scalar"),
    ] {
        let message = refused("x", bytes);
        assert!(message.contains(expected) && !message.contains('\n'), "{message}");
    }
    let mut deep = String::new();
    for _ in 0..100_000 {
        deep.push_str("{\"a\":");
    }
    _ = write!(deep, "1");
    assert!(refused("x", deep.as_bytes()).contains("recursion"));
}
