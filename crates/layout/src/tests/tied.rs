//! Weights that stages share.

use super::*;

/// Returns the calls of these modules, of which each holds the same weight, with the gradients that some report, and an optimizer's step.
fn model(number: u32, weight: &Matrix, modules: &[(&str, Option<&Matrix>)], stepped: &str) -> Rank {
    let gradients: Vec<Matrix> = modules.iter().filter_map(|(_, gradient)| *gradient).cloned().collect();
    let values: Vec<Matrix> = std::iter::once(weight.clone()).chain(gradients).collect();
    let mut made = rank(number, &values, true);
    let mut values = std::mem::take(&mut made.ops).into_iter().map(|op| op.slots[0].value.clone());
    let weight = values.next().unwrap();
    let op = |name: String, path: &str, side: SlotSide, value: &Value| {
        let mut op = Op::new(OpName::parse(&name));
        op.slots.push(Slot::new(path, side, value.clone()));
        op
    };
    for (path, gradient) in modules {
        let called = op(format!("Module.{path}.forward.0"), "parameter.weight", SlotSide::Parameter, &weight);
        made.ops.push(called);
        if gradient.is_some() {
            let name = format!("Module.{path}.parameters_grad.0");
            made.ops.push(op(name, "grad.weight", SlotSide::Output, &values.next().unwrap()));
        }
    }
    let parameter = format!("parameter.{stepped}.weight");
    made.ops.push(op("Optimizer.SGD.step.0".to_owned(), &parameter, SlotSide::Parameter, &weight));
    made
}

#[test]
fn the_terms_of_a_weight_that_two_stages_share_make_its_gradient() {
    let (weight, whole, first) = (matrix(6, 4, 71), matrix(6, 4, 72), matrix(6, 4, 73));
    let last: Matrix = (whole.0.clone(), whole.1.iter().zip(&first.1).map(|(a, b)| a - b).collect());
    let layer = ("layers.0.Linear", None);
    let modules =
        [("embed.Embedding", Some(&whole)), layer, ("layers.1.Linear", None), ("head.Linear", None)];
    let other = model(0, &weight, &modules, "embed");
    let stages = |last: Option<&Matrix>| {
        let first = model(0, &weight, &[("embed.Embedding", Some(&first)), layer], "embed");
        vec![first, model(1, &weight, &[layer, ("head.Linear", last)], "head")]
    };
    let folded = all(stages(Some(&last)), &other).rank;
    let of = |rank: &Rank, name: &str| {
        let op = rank.ops.iter().find(|op| op.name.as_str() == name).unwrap();
        op.slots.iter().map(|slot| slot.path.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(of(&folded, "Optimizer.SGD.step.0"), ["parameter.embed.weight"]);
    let gradient = |rank: &Rank| {
        let op = rank.ops.iter().find(|op| op.name.phase() == probe_dump::Phase::ParameterGradient).unwrap();
        (op.name.as_str().to_owned(), op.slots[0].value.tensor().unwrap().statistics.norm().unwrap())
    };
    let ((name, made), (due_name, due)) = (gradient(&folded), gradient(&other));
    assert_eq!(name, due_name);
    assert!((made / due - 1.0).abs() < 1e-6, "{made} {due}");
}

#[test]
fn a_spread_run_of_whole_models_gives_stages_its_name_of_a_shared_gradient() {
    let (weight, whole, last) = (matrix(6, 4, 74), matrix(6, 4, 75), matrix(6, 4, 76));
    let layers = [("layers.0.Linear", None), ("layers.1.Linear", None)];
    let modules = [("embed.Embedding", Some(&whole)), layers[0], layers[1], ("head.Linear", None)];
    let replicas = (0..2).map(|number| model(number, &weight, &modules, "embed")).collect();
    let first = [("embed.Embedding", Some(&whole)), layers[0]];
    let mut stages = vec![
        model(0, &weight, &first, "embed"),
        model(1, &weight, &[layers[1], ("head.Linear", Some(&last))], "head"),
    ];
    crate::joined(replicas, &mut stages);
    assert!(names(&stages[1]).contains(&"Module.embed.Embedding.parameters_grad.0"));
}

#[test]
fn vectors_that_are_equal_in_two_modules_are_two() {
    let (ones, whole, last) = ((vec![6], vec![1.0; 6]), matrix(1, 6, 77), matrix(1, 6, 78));
    let layer = ("layers.0.Linear", None);
    let modules = [("first.Norm", Some(&whole)), layer, ("layers.1.Linear", None), ("last.Norm", None)];
    let other = model(0, &ones, &modules, "first");
    let first = model(0, &ones, &[modules[0], layer], "first");
    let folded = all(vec![first, model(1, &ones, &[layer, ("last.Norm", Some(&last))], "last")], &other).rank;
    assert!(names(&folded).contains(&"Module.last.Norm.parameters_grad.0"));
}

#[test]
fn a_head_that_is_given_the_weight_of_the_embedding_shares_it() {
    let (weight, whole, last) = (matrix(6, 4, 81), matrix(6, 4, 82), matrix(6, 4, 83));
    let layers = [("layers.0.Linear", None), ("layers.1.Linear", None)];
    let modules = [("embed.Embedding", Some(&whole)), layers[0], layers[1], ("head.Linear", None)];
    let mut other = model(0, &weight, &modules, "embed");
    // Megatron's head has no weight of its own in a model of one stage.
    let head = other.ops.iter_mut().find(|op| op.name.as_str() == "Module.head.Linear.forward.0").unwrap();
    head.slots[0] = Slot::new("kwarg.weight", SlotSide::Input, head.slots[0].value.clone());
    let first = model(0, &weight, &[modules[0], layers[0]], "embed");
    let folded =
        all(vec![first, model(1, &weight, &[layers[0], ("head.Linear", Some(&last))], "head")], &other).rank;
    let gradients = folded.ops.iter().filter(|op| op.name.phase() == probe_dump::Phase::ParameterGradient);
    let gradients: Vec<&str> = gradients.map(|op| op.name.as_str()).collect();
    assert_eq!(gradients, ["Module.embed.Embedding.parameters_grad.0"]);
}

#[test]
fn a_shared_gradient_is_cut_as_its_weight_is_where_the_terms_of_all_ranks_add_up_too() {
    let [weight, gradient, term] = [8, 9, 10].map(|seed| matrix(8, 4, seed));
    let rest: Matrix = (term.0.clone(), gradient.1.iter().zip(&term.1).map(|(sum, own)| sum - own).collect());
    let stepping = |number: u32, gradient: &Matrix| {
        let of = (number as usize % 2) * 4;
        let half = |value: &Matrix| cut(value, &[of..of + 4], 0..4);
        let mut held = rank(number, &[half(&weight), half(gradient)], true);
        let value = |place: usize| held.ops[place].slots[0].value.clone();
        let slots = vec![
            Slot::new("parameter.embed.weight", SlotSide::Parameter, value(0)),
            Slot::new("input.grad.embed.weight", SlotSide::Input, value(1)),
        ];
        held.ops = vec![Op { slots, ..Op::new(OpName::parse("Optimizer.SGD.step.0")) }];
        held
    };
    let mut others: Vec<Rank> =
        [(0, &term), (1, &term), (2, &rest), (3, &rest)].map(|(number, of)| stepping(number, of)).into();
    let ranks = vec![stepping(0, &gradient), stepping(1, &gradient)];
    let joined = crate::both::joined(ranks, &mut others);
    let shapes = joined.rank.ops[0].slots.iter().map(|slot| slot.value.tensor().unwrap().shape.to_vec());
    assert_eq!(shapes.collect::<Vec<_>>(), [[8, 4], [8, 4]]);
    assert!(joined.terms.is_empty());
}
