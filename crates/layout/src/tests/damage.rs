//! Values whose data cannot be read on a rank.

use super::*;

/// Makes the data of a rank's value unreadable.
fn damaged(mut held: Rank) -> Rank {
    let Value::Tensor(record) = &mut held.ops[0].slots[0].value else { panic!("a tensor") };
    Arc::make_mut(record).data = Some("gone".into());
    held
}

#[test]
fn a_value_that_cannot_be_read_on_a_rank_has_no_layout() {
    let whole = matrix(8, 4, 71);
    let terms = {
        let first = matrix(8, 4, 72);
        let rest = whole.1.iter().zip(&first.1).map(|(whole, first)| whole - first).collect();
        vec![first, (whole.0.clone(), rest)]
    };
    let shards = vec![cut(&whole, &[0..4], 0..4), cut(&whole, &[4..8], 0..4)];
    for pieces in [terms, shards] {
        // Of the two ranks and the other run, one is damaged; the last round damages none.
        for wrong in 0..4 {
            let held = |number: u32, values: &Matrix| {
                let held = rank(number % 2, std::slice::from_ref(values), true);
                if number == wrong { damaged(held) } else { held }
            };
            let folded = all(
                (0..).zip(&pieces).map(|(number, piece)| held(number, piece)).collect(),
                &held(2, &whole),
            );
            let record = folded.rank.ops[0].slots[0].value.tensor().unwrap();
            assert_eq!(record.damage.is_some(), wrong < 3, "{wrong}");
            assert_eq!(record.data.is_none(), wrong < 3, "{wrong}");
            if let Some(said) = &record.damage {
                assert!(said.contains("cut short"), "{said}");
                assert!(folded.remarks.is_empty(), "{:?}", folded.remarks);
            }
        }
    }
}

#[test]
fn of_replicas_the_readable_ones_are_compared() {
    let whole = matrix(8, 4, 73);
    let held = |number| rank(number, std::slice::from_ref(&whole), true);
    let folded = all(vec![held(0), damaged(held(1))], &held(0));
    let record = folded.rank.ops[0].slots[0].value.tensor().unwrap();
    assert!(record.damage.is_none() && record.data.is_some());
}
