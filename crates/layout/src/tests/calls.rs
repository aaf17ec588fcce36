//! Calls of ranks under the names of the other run.

use super::*;
use crate::calls::under_others_names;

#[test]
fn calls_of_a_written_backward_pass_pair_by_their_place() {
    let value = matrix(4, 4, 10);
    let calls = |names: &[(&str, Option<&str>)]| {
        let mut held = rank(0, &vec![value.clone(); names.len()], true);
        for (op, (name, parent)) in held.ops.iter_mut().zip(names) {
            op.name = OpName::parse(&format!("Functional.f.{name}"));
            op.parent = parent.map(Into::into);
        }
        held
    };
    let whole = calls(&[("0.forward", None), ("1.backward", None)]);
    let masks = ("0.forward", Some("Module.embed.Table.forward.0"));
    let mut ranks = vec![calls(&[masks, ("1.forward", None), ("2.backward", None)])];
    under_others_names(&mut ranks, &whole, true);
    assert_eq!(names(&ranks[0]), ["Functional.f.0.forward", "Functional.f.1.backward"]);
    // One that the other run lacks takes no partner from those behind it.
    let mut ranks = vec![calls(&[("0.forward", None), ("4.backward", None), ("5.backward", None)])];
    under_others_names(&mut ranks, &whole, false);
    assert_eq!(
        names(&ranks[0]),
        ["Functional.f.0.forward", "Functional.f.2.backward", "Functional.f.1.backward"]
    );
}

#[test]
fn a_call_pairs_with_one_of_which_the_ranks_have_all_parts() {
    let calls = |sizes: &[(usize, usize)]| {
        let values: Vec<Matrix> =
            (0..).zip(sizes).map(|(seed, &(rows, columns))| matrix(rows, columns, seed)).collect();
        let mut held = rank(0, &values, true);
        for (call, op) in held.ops.iter_mut().enumerate() {
            op.name = OpName::parse(&format!("Functional.f.{call}.forward"));
        }
        held
    };
    let whole = calls(&[(8, 4), (8, 2)]);
    let partners = |sizes: &[(usize, usize)]| {
        let mut ranks = vec![calls(sizes), calls(sizes)];
        under_others_names(&mut ranks, &whole, false);
        names(&ranks[0])
            .iter()
            .map(|name| name.split('.').nth(2).unwrap().parse().unwrap())
            .collect::<Vec<u32>>()
    };
    // Sums along rows, which a rank adds up for itself, are smaller than any part.
    assert_eq!(partners(&[(4, 1), (4, 4), (4, 2)]), [2, 0, 1]);
    // Of calls that fit as well, the first is the one that both runs make.
    assert_eq!(partners(&[(4, 4), (4, 2), (4, 2)]), [0, 1, 2]);
}
