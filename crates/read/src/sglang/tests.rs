use super::names::{FileName, Role};
use super::*;

#[test]
fn names_say_where_a_value_lies() {
    let role = |name: &str| {
        let file = format!(
            "step=2___rank=1___dump_index=9___name={name}___recompute_status=disabled___layer_id=0.pt"
        );
        FileName::parse(&file).map(|name| ((name.step, name.rank, name.index), name.role))
    };
    let input = |path: &str, argument: &str| Role::Input { path: path.into(), argument: argument.into() };
    let output = |path: &str, result: &str| Role::Output { path: path.into(), result: result.into() };
    for (name, expected) in [
        ("input_ids", input("", "kwarg.input_ids")),
        ("non_intrusive__model.layers.0.mlp.inputs.0", input("model.layers.0.mlp", "input.0")),
        ("non_intrusive__model.layers.0.mlp.inputs.0.1", input("model.layers.0.mlp", "input.0.1")),
        ("non_intrusive__model.norm.inputs.residual", input("model.norm", "kwarg.residual")),
        ("non_intrusive__model.norm.output", output("model.norm", "output.0")),
        ("non_intrusive__model.norm.output.1", output("model.norm", "output.1")),
        ("non_intrusive__output.next_token_logits", output("", "output.next_token_logits")),
        ("non_intrusive__model.output_layer.output", output("model.output_layer", "output.0")),
        ("non_intrusive__layer.0.output.dense.inputs.0", input("layer.0.output.dense", "input.0")),
        ("hidden", Role::Saved("hidden".into())),
    ] {
        assert_eq!(role(name), Some(((2, 1, 9), expected)), "{name}");
    }
    for name in ["step=1___rank=0___name=x.pt", "model.pt", "step=1___rank=0___dump_index=1___name=x.npy"] {
        assert_eq!(FileName::parse(name), None, "{name}");
    }
}

#[test]
fn a_call_has_its_arguments_and_results() {
    let file = |step: u64, index: u64, name: &str| {
        FileName::parse(&format!("step={step}___rank=0___dump_index={index}___name={name}.pt")).unwrap()
    };
    let entry = |name: &str| Entry { name: name.into(), value: Value::None };
    let entries = [entry("value"), entry("meta.step")];
    let mut calls = Calls::default();
    for (step, index, name) in [
        (0, 1, "input_ids"),
        (0, 2, "non_intrusive__a.inputs.0"),
        (0, 3, "non_intrusive__a.b.inputs.0"),
        (0, 4, "non_intrusive__a.b.output"),
        (0, 5, "non_intrusive__a.output.0"),
        (0, 6, "non_intrusive__a.output.1"),
        (0, 7, "non_intrusive__output.logits"),
        (1, 8, "non_intrusive__a.b.output"),
        (1, 9, "non_intrusive__a.b.output"),
    ] {
        calls.add(&file(step, index, name), &entries);
    }
    let said: Vec<(String, Vec<String>)> = calls
        .ops
        .iter()
        .map(|op| (op.name.to_string(), op.slots.iter().map(|slot| slot.path.to_string()).collect()))
        .collect();
    let expected = [
        ("Module.a.b.Module.forward.0", &["input.0", "output.0"][..]),
        ("Module.a.Module.forward.0", &["input.0", "output.0", "output.1"]),
        ("Module.Model.forward.0", &["kwarg.input_ids", "output.logits"]),
        ("Module.a.b.Module.forward.1", &["output.0"]),
        ("Module.a.b.Module.forward.2", &["output.0"]),
    ];
    let expected: Vec<(String, Vec<String>)> = expected
        .map(|(name, slots)| (name.to_owned(), slots.iter().map(ToString::to_string).collect()))
        .to_vec();
    assert_eq!(said, expected);
}
