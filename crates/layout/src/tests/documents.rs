//! Packed sequences, of which ranks hold chunks of every document.

use super::*;

/// Columns that each of two ranks holds of documents of 8 and 4 tokens.
const HELD: [&[Range<usize>]; 2] = [&[0..2, 6..8, 8..9, 11..12], &[2..6, 9..11]];

/// Returns these columns of a matrix.
fn columns((shape, values): &Matrix, held: &[Range<usize>]) -> Matrix {
    let kept: Vec<f32> = values
        .chunks(shape[1])
        .flat_map(|row| held.iter().cloned().flatten().map(|column| row[column]).collect::<Vec<_>>())
        .collect();
    (vec![shape[0], kept.len() / shape[0]], kept)
}

#[test]
fn chunks_of_every_document_make_the_whole() {
    let whole = matrix(5, 12, 71);
    let pieces = HELD.map(|held| columns(&whole, held));
    let (made, remark) = folded(&whole, pieces.into());
    assert_eq!(made, whole.1);
    assert!(matches!(remark, Some(Remark::Sharded(_))), "{remark:?}");
}

#[test]
fn what_shows_no_order_has_that_of_the_others() {
    // The first value shows the order; the columns of the second are all alike, and it is cut in its rows too.
    let whole = [matrix(4, 12, 72), (vec![4, 12], (0..48).map(|at| (at / 12) as f32 + 1.0).collect())];
    let rows = |place: usize| [0..2, 2..4][place].clone();
    let part = |rank: usize| {
        let second = columns(&whole[1], HELD[rank % 2]);
        vec![columns(&whole[0], HELD[rank % 2]), cut(&second, &[rows(rank / 2)], 0..6)]
    };
    let ranks: Vec<Rank> = (0..4).map(|number| rank(number, &part(number as usize), true)).collect();
    let folded = all(ranks, &rank(0, &whole, true));
    assert!(folded.apart.is_empty());
    let made = folded.rank.ops[1].slots[0].value.tensor().unwrap();
    assert_eq!(made.checksum, rank(0, &whole, true).ops[1].slots[0].value.tensor().unwrap().checksum);
}

#[test]
fn other_values_in_that_order_are_not_the_whole() {
    let whole = matrix(5, 12, 73);
    let wrong = matrix(5, 6, 74);
    let (made, _) = folded(&whole, vec![columns(&whole, HELD[0]), wrong]);
    assert_ne!(made, whole.1);
}

/// Folds the pieces of two values in the order of [`HELD`], the second scaled by `factor`.
fn in_that_order(whole: &[Matrix; 2], factor: f32) -> Folded {
    let held = |number: u32| {
        let own = HELD[number as usize];
        let [first, (shape, values)] = whole.each_ref().map(|value| columns(value, own));
        let scaled = (shape, values.iter().map(|value| factor * value).collect());
        rank(number, &[first, scaled], true)
    };
    all(vec![held(0), held(1)], &rank(0, whole, true))
}

#[test]
fn values_with_equal_columns_do_not_say_which_order_is_right() {
    // Positions begin anew in the second document.
    let positions: Vec<f32> = (0..8).chain(0..4).map(|at| at as f32 + 1.0).collect();
    let positions = (vec![3, 12], positions.repeat(3));
    for whole in [[matrix(4, 12, 75), positions.clone()], [positions, matrix(4, 12, 75)]] {
        assert!(in_that_order(&whole, 1.0).apart.is_empty());
    }
}

#[test]
fn a_multiple_lies_in_that_order_and_stays_one() {
    let whole = [matrix(4, 12, 76), matrix(4, 12, 77)];
    let folded = in_that_order(&whole, 2.0);
    let Some(Remark::Sharded(shards)) = folded.remarks.get(&(1, 0)) else { panic!("{:?}", folded.remarks) };
    assert!(shards[0].1.dimensions()[1].iter().cloned().flatten().eq(HELD[0].iter().cloned().flatten()));
    let made = folded.rank.ops[1].slots[0].value.tensor().unwrap();
    let norm = rank(0, &whole, true).ops[1].slots[0].value.tensor().unwrap().statistics.norm().unwrap();
    assert!((made.statistics.norm().unwrap() / norm - 2.0).abs() < 1e-6);
}

#[test]
fn equal_shards_of_masks_lie_in_that_order_too() {
    // Each rank holds as much of either document.
    let held: [&[Range<usize>]; 2] = [&[0..4, 8..10], &[4..8, 10..12]];
    let mask = (vec![1, 12], [[1.0; 8].as_slice(), &[2.0; 4]].concat());
    let whole = [matrix(4, 12, 78), mask];
    let ranks = (0..)
        .zip(held)
        .map(|(number, held)| rank(number, &[columns(&whole[0], held), columns(&whole[1], held)], true));
    let folded = all(ranks.collect(), &rank(0, &whole, true));
    let made = folded.rank.ops[1].slots[0].value.tensor().unwrap();
    assert_eq!(made.checksum, rank(0, &whole, true).ops[1].slots[0].value.tensor().unwrap().checksum);
}
