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
