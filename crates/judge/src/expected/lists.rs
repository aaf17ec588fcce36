//! Which inputs of an op lead to which of its results. Nearly always all of them do. An op over lists of tensors computes each
//! place of its lists by itself, and an optimizer step each parameter: with all inputs for each result, the time would grow with
//! the square of the number of parameters, and an error of one would explain another's.

use std::collections::HashMap;

use super::super::flow::Flow;
use super::super::ops::Kind;
use super::super::transfer::InputError;
use super::Place;

/// Results of an op that have the same inputs.
#[derive(Default)]
pub(super) struct Together {
    pub(super) given: Vec<(Place, InputError)>,
    /// Slots.
    pub(super) results: Vec<usize>,
}

/// Splits an op: returns its groups, and the slot of each result in order with the number of its group.
pub(super) fn split(
    flow: &Flow<'_>,
    position: usize,
    given: Vec<(Place, InputError)>,
) -> (Vec<Together>, Vec<(usize, usize)>) {
    let node = &flow.nodes[position];
    let key = |slot: usize| key(flow, (position, slot));
    let is_listed = || given.iter().any(|&((op, slot), _)| op == position && key(slot).is_some());
    if !has_lists(flow, position) || !is_listed() {
        let results: Vec<usize> = node.results().collect();
        let order = results.iter().map(|&slot| (slot, 0)).collect();
        return (vec![Together { given, results }], order);
    }
    let mut groups: Vec<Together> = Vec::new();
    let mut by_key: HashMap<Option<&str>, usize> = HashMap::new();
    let mut group = |groups: &mut Vec<Together>, key| {
        *by_key.entry(key).or_insert_with(|| {
            groups.push(Together::default());
            groups.len() - 1
        })
    };
    let order: Vec<(usize, usize)> =
        node.results().map(|slot| (slot, group(&mut groups, key(slot)))).collect();
    for &(slot, of) in &order {
        groups[of].results.push(slot);
    }
    for input in given {
        match key(input.0.1) {
            // A number or a tensor for all.
            None => groups.iter_mut().for_each(|group| group.given.push(input)),
            key => {
                let of = group(&mut groups, key);
                groups[of].given.push(input);
            }
        }
    }
    (groups, order)
}

/// Returns true for optimizer steps and functions over lists.
fn has_lists(flow: &Flow<'_>, position: usize) -> bool {
    let node = &flow.nodes[position];
    node.traits.kind == Kind::Optimizer
        || ["foreach_", "fused_"].iter().any(|start| node.base.starts_with(start))
}

/// Returns the name of the parameter that a value of an optimizer step belongs to, or its place in a list; `None` for what
/// belongs to all.
fn key<'f>(flow: &'f Flow<'_>, place: Place) -> Option<&'f str> {
    let path = &flow.slot(place)?.path;
    let (side, rest) = path.split_once('.')?;
    if flow.nodes[place.0].traits.kind == Kind::Optimizer && side == "parameter" {
        return Some(rest);
    }
    match rest.split_once('.') {
        Some((_, name)) => Some(name),
        // A list that is returned, and not one of several.
        None => flow.side(place).is_result().then_some(rest),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::drawn::{Drawn, Part};
    use super::*;

    /// Returns the paths of the inputs of each result of the one op of a part.
    fn inputs(part: &Part) -> Vec<(String, Vec<String>)> {
        part.flow(|flow| {
            let path = |slot: usize| flow.slot((0, slot)).map_or(String::new(), |slot| slot.path.to_string());
            let given = flow.nodes[0].given().map(|slot| ((0, slot), InputError::default())).collect();
            let (groups, order) = split(flow, 0, given);
            let of = |group: usize| groups[group].given.iter().map(|&((_, slot), _)| path(slot)).collect();
            order.into_iter().map(|(slot, group)| (path(slot), of(group))).collect()
        })
    }

    fn part(op: &str, paths: &[&str]) -> Part {
        let value = Drawn::normal(1, &[8]);
        let mut part = Part::of_binary32();
        part.op(op);
        for path in paths {
            part.tensor(path, &value, &value);
        }
        part
    }

    #[test]
    fn a_parameter_is_made_of_its_own_gradient_and_state() {
        let step = part(
            "Optimizer.SGD.step.0",
            &[
                "parameter.w",
                "input.grad.w",
                "input.momentum_buffer.w",
                "parameter.0.w",
                "input.grad.0.w",
                "output.parameter.w",
                "output.momentum_buffer.w",
                "output.parameter.0.w",
            ],
        );
        let of_w = ["parameter.w", "input.grad.w", "input.momentum_buffer.w"].map(String::from).to_vec();
        let of_other = ["parameter.0.w", "input.grad.0.w"].map(String::from).to_vec();
        assert_eq!(
            inputs(&step),
            [
                ("output.parameter.w".into(), of_w.clone()),
                ("output.momentum_buffer.w".into(), of_w),
                ("output.parameter.0.w".into(), of_other),
            ]
        );
    }

    #[test]
    fn an_element_of_a_list_is_made_of_those_in_its_place_and_of_what_is_no_list() {
        let lists = ["input.0.0", "input.0.1", "input.1.0", "input.1.1", "input.2"];
        let made = |place: &str| [0, 1].map(|list| format!("input.{list}.{place}")).to_vec();
        let with_number = |place: &str| [made(place), vec!["input.2".into()]].concat();
        let one = part("Aten._foreach_add.0.forward", &[&lists[..], &["output.0", "output.1"]].concat());
        let expected = [("output.0".into(), with_number("0")), ("output.1".into(), with_number("1"))];
        assert_eq!(inputs(&one), expected);
        let several = part(
            "Aten._fused_adamw_.0.forward",
            &[&lists[..], &["output.0.0", "output.0.1", "output.1.0"]].concat(),
        );
        let expected = [("output.0.0", "0"), ("output.0.1", "1"), ("output.1.0", "0")]
            .map(|(path, at)| (path.into(), with_number(at)));
        assert_eq!(inputs(&several), expected);
    }

    #[test]
    fn of_other_ops_every_result_is_made_of_all() {
        let paths = ["input.0", "input.1.0", "input.1.1", "output.0", "output.1"];
        for op in ["Functional.lstm.0.forward", "Aten._fused_rms_norm.0.forward"] {
            let paths = if op.contains("fused") {
                &["input.0", "input.1", "output.0", "output.1"][..]
            } else {
                &paths[..]
            };
            let given = paths.iter().filter(|path| path.starts_with("input")).count();
            assert!(inputs(&part(op, paths)).iter().all(|(_, of)| of.len() == given), "{op}");
        }
    }

    #[test]
    fn an_error_of_one_place_of_a_list_does_not_explain_that_of_another() {
        let [x, y] = [1, 2].map(|seed| Drawn::normal(seed, &[512]));
        let double = |value: &Drawn| value.map(|value| 2.0 * value);
        let mut part = Part::of_binary32();
        part.op("Aten.t.0.forward").tensor("input.0", &x, &x.off(3, 1e-2)).tensor(
            "output.0",
            &x,
            &x.off(3, 1e-2),
        );
        part.op("Aten._foreach_add.0.forward")
            .tensor("input.0.0", &x, &x.off(3, 1e-2))
            .tensor("input.0.1", &y, &y)
            .tensor("input.1.0", &x, &x.off(3, 1e-2))
            .tensor("input.1.1", &y, &y)
            .tensor("output.0", &double(&x), &double(&x.off(3, 1e-2)))
            .tensor("output.1", &double(&y), &double(&y).off(4, 1e-3));
        let judged = part.judged("");
        assert!(judged.findings.iter().any(|found| found.op.as_str() == "Aten._foreach_add.0.forward"));
    }
}
