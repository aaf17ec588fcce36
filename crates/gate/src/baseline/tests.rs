use super::*;

fn baseline() -> Baseline {
    let value = |name: &str, hash: &str, norm: f64| BoundaryValue {
        name: name.into(),
        dtype: "float32".into(),
        shape: vec![2, 8],
        hash: Some(hash.into()),
        max: Some(f64::from(0.1_f32)),
        min: Some(-1.5),
        mean: Some(0.25),
        norm: Some(norm),
        nonfinite: NonFinite::Counted([0; 3]),
        inputs: if norm > 4.0 {
            Vec::new()
        } else {
            vec!["00ff00ff00ff00ff".into(), "input.1=0123456789abcdef".into()]
        },
    };
    Baseline {
        environment: Environment::from([("torch".into(), "2.7.1".into())]),
        provenance: vec![Provenance {
            action: "save".into(),
            by: "me".into(),
            reason: "a \"first\" one".into(),
            commit: Some("0".repeat(40)),
            from: vec!["dump".into()],
            nonfinite: None,
            changes: Vec::new(),
        }],
        scalars: Scalars::from([
            ("loss".into(), Series::from([(0, 2.5), (10, f64::NAN), (2, 0.1)])),
            ("acc".into(), Series::from([(0, f64::from(0.1_f32))])),
        ]),
        parts: vec![ValuePart {
            exact: true,
            step: 0,
            rank: 1,
            values: vec![
                value("Module.a.A.forward.0 output.0", "0123456789abcdef", 1e39),
                value("Module.b.B.forward.0 output.0", "fedcba9876543210", 3.25),
            ],
        }],
        sketches: Some("a.sketches".into()),
    }
}

#[test]
fn a_baseline_is_the_same_bytes_and_reads_back() {
    let text = baseline().to_text();
    assert_eq!(text, baseline().to_text());
    let back = Baseline::parse(text.as_bytes()).unwrap();
    assert_eq!(back.to_text(), text);
    assert_eq!(back.parts, baseline().parts);
    assert_eq!(back.nonfinite(), ["loss step 10: NaN"]);
    assert_eq!(back.len(), 6);
    // One value per line, steps in numerical order.
    let places: Vec<usize> =
        ["\"0\": 2.5", "\"2\": 0.1", "\"10\": \"NaN\""].iter().map(|line| text.find(line).unwrap()).collect();
    assert!(places.is_sorted(), "{text}");
    assert!(
        text.lines().any(|line| line.starts_with("[\"Module.a.A.forward.0 output.0\",\"float32\",[2,8],")),
        "{text}"
    );
    serde_json::from_str::<serde_json::Value>(&text).unwrap();
}

#[test]
fn what_is_wrong_with_a_file_is_named() {
    let text = baseline().to_text();
    for (from, to, expected) in [
        ("\"format_version\": 1", "\"format_version\": 2", "format version 2"),
        ("probe baseline", "something", "its format is"),
        ("\"10\": \"NaN\"", "\"ten\": 1", "\"ten\" is not a step"),
        ("\"10\": \"NaN\"", "\"010\": 1", "\"010\" is not a step"),
        ("\"sketches\": \"a.sketches\"", "\"sketches\": \"../a\"", "is not a file name"),
        ("\"environment\"", "\"surroundings\"", "unknown field `surroundings`"),
        ("Module.a.A.forward.0 output.0", "Module", "expected an op and a slot"),
        ("[2,8],", "", "line"),
        ("\"rank\": 1", "<<<<<<< HEAD\n\"rank\": 1", "unfinished merge"),
    ] {
        assert!(text.contains(from), "{from}");
        let message = Baseline::parse(text.replacen(from, to, 1).as_bytes()).unwrap_err();
        assert!(message.contains(expected) && !message.contains('\n'), "{message}");
    }
}

#[test]
fn a_comparison_names_what_moved_most_first() {
    let old = baseline();
    let mut new = baseline();
    new.scalars.get_mut("acc").unwrap().insert(0, 0.2);
    new.parts[0].values[1].hash = Some("0".repeat(16));
    new.parts[0].values[1].norm = Some(3.250_000_2);
    new.environment.insert("torch".into(), "2.8.0".into());
    let found = Comparison::of(&old, &new);
    let names: Vec<&str> = found.moved.iter().map(|(_, moved)| &*moved.name).collect();
    assert_eq!(names, ["acc", "Module.b.B.forward.0 output.0"]);
    assert_eq!((found.different, found.equal), (2, 4));
    assert_eq!(found.environment, [("torch".into(), Some("2.7.1".into()), Some("2.8.0".into()))]);
    assert!(Comparison::of(&old, &old).moved.is_empty());
}
