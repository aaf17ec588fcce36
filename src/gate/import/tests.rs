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
        (r#"{"a": {"values": {"one": 1}}}"#, "\"one\" is no step"),
        (r#"{"a": {"values": [1]}}"#, "no whole number \"start_step\""),
        (r#"{"a": {"start_step": 0, "step_interval": 0, "values": [1]}}"#, "above 0"),
        (r#"{"a": {"values": {"1": "ten"}}}"#, "is no number"),
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
    assert!(refused("a.txt", b"1 8.0\n2 7.0 6.0\n").contains("line 2: expected a step and a loss"));
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
    assert!(refused("a.csv", b"time,loss\n0,1.0\n").contains("no column of steps"));
    assert!(refused("a.csv", b"step,loss\nx,1.0\n").contains("line 2: \"x\" is no step"));

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

/// A record of an event file.
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
    // The form that torch's and TensorFlow's newer writers use: a tensor without dimensions.
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
    assert!(found.notes[0].starts_with("1 values that are no scalars"), "{:?}", found.notes);
    // A record that was being written.
    let cut = import_bytes(path, &bytes[..bytes.len() - 3], None).unwrap();
    assert!(cut.notes[0].contains("breaks off"), "{:?}", cut.notes);
    // Any other damage is one, wherever it is.
    for place in 0..bytes.len() - 60 {
        let mut damaged = bytes.clone();
        damaged[place] ^= 0x10;
        let message = refused("events.out.tfevents.1", &damaged);
        assert!(message.contains("checksum"), "byte {place}: {message}");
    }
}

#[test]
fn what_is_no_file_of_scalars_is_refused_in_one_line() {
    for (bytes, expected) in [
        (&b""[..], "the file is empty"),
        (b"hello world\n", "not a file of scalars"),
        (b"\xff\xfe\x00", "not a file of scalars"),
        (b"{}", "no scalar in it"),
        (b"[1, 2]", "no scalar in it"),
        (b"{\"step\": 1}", "no scalar in it"),
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
