//! Two runs that are both spread over ranks.

use super::*;
use crate::joined;

#[test]
fn two_spread_runs_are_joined_by_their_sizes() {
    let (whole, same) = (matrix(8, 12, 61), matrix(4, 4, 62));
    let spread = |count: usize| -> Vec<Rank> {
        let columns = 12 / count;
        let part = |number: usize| cut(&whole, &[0..8], number * columns..(number + 1) * columns);
        (0..).zip(0..count).map(|(number, place)| rank(number, &[part(place), same.clone()], true)).collect()
    };
    let mut others = spread(4);
    let joined = joined(spread(2), &mut others);
    assert!(joined.terms.is_empty(), "shards and replicas are no terms");
    let joined = joined.rank;
    let shape = |op: usize| joined.ops[op].slots[0].value.tensor().unwrap().shape.to_vec();
    assert_eq!((shape(0), shape(1)), (vec![8, 12], vec![4, 4]));
    let folded = all(others, &joined);
    assert!(matches!(folded.remarks[&(0, 0)], Remark::Sharded(_)) && folded.apart.is_empty());
    let hash = |rank: &Rank| rank.ops[0].slots[0].value.tensor().unwrap().checksum.clone();
    assert_eq!(hash(&folded.rank), hash(&joined));
}

#[test]
fn terms_that_a_joined_run_holds_are_told() {
    let whole = matrix(8, 8, 63);
    let first = matrix(8, 8, 64);
    let rest: Matrix = (whole.0.clone(), whole.1.iter().zip(&first.1).map(|(a, b)| a - b).collect());
    let mut others: Vec<Rank> =
        (0..4).map(|number| rank(number, &[whole.clone(), first.clone()], true)).collect();
    let held = |number, term: &Matrix| rank(number, &[term.clone(), first.clone()], true);
    let joined = joined(vec![held(0, &first), held(1, &rest)], &mut others);
    let told: Vec<_> = joined.terms.iter().map(|((op, slot), held)| (&**op, &**slot, held.clone())).collect();
    assert_eq!(told, [("Functional.f.0.forward", "output.0", (vec![0, 1], Among::Sum(1)))]);
}

#[test]
fn a_value_that_no_layout_of_both_fits_is_cut_as_in_other_layers() {
    let (first, second, wrong) = (matrix(8, 4, 65), matrix(8, 4, 66), matrix(4, 4, 67));
    let part = |whole: &Matrix, number: usize| cut(whole, &[number * 4..number * 4 + 4], 0..4);
    let held = |number: usize, second: Matrix| {
        let mut held = rank(u32::try_from(number).unwrap(), &[part(&first, number), second], true);
        for (layer, op) in held.ops.iter_mut().enumerate() {
            op.name = OpName::parse(&format!("Module.layers.{layer}.up.Linear.forward.0"));
        }
        held
    };
    let mut others = vec![held(0, part(&second, 0)), held(1, wrong)];
    let joined = joined(vec![held(0, part(&second, 0)), held(1, part(&second, 1))], &mut others).rank;
    let shape = |op: usize| joined.ops[op].slots[0].value.tensor().map(|record| record.shape.to_vec());
    assert_eq!((shape(0), shape(1)), (Some(vec![8, 4]), Some(vec![8, 4])));
}

#[test]
fn a_vocabulary_that_one_run_pads_is_cut_by_the_sizes_of_the_other() {
    let (whole, other) = (matrix(7, 4, 68), matrix(7, 4, 69));
    let padded = |of: &Matrix| -> Matrix { (vec![8, 4], [&of.1[..], &[0.0; 4]].concat()) };
    let held = |number: u32, rows: Range<usize>| {
        let rows = std::slice::from_ref(&rows);
        rank(number, &[cut(&padded(&whole), rows, 0..4), cut(&padded(&other), rows, 0..4)], true)
    };
    let mut others =
        vec![rank(0, &[whole.clone(), other.clone()], true), rank(1, &[whole.clone(), other.clone()], true)];
    let joined = joined(vec![held(0, 0..4), held(1, 4..8)], &mut others).rank;
    let record = |rank: &Rank, op: usize| {
        rank.ops[op].slots[0].value.tensor().map(|record| (record.shape.to_vec(), record.checksum.clone()))
    };
    assert_eq!([0, 1].map(|op| record(&joined, op)), [0, 1].map(|op| record(&others[0], op)));
}
