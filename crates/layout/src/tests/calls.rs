//! Calls of ranks under the names of the other run.

use probe_dump::KeptStatistics;

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

/// Returns a rank that calls functions, each of which takes the first matrix and makes the others.
fn cutting(number: u32, calls: &[(&str, &[Matrix])]) -> Rank {
    let values: Vec<Matrix> = calls.iter().flat_map(|(_, values)| values.to_vec()).collect();
    let mut held = rank(number, &values, true);
    let mut values = std::mem::take(&mut held.ops).into_iter().map(|mut op| op.slots.remove(0).value);
    for (name, of) in calls {
        let mut op = Op::new(OpName::parse(name));
        op.parent = Some("Module.moe.Moe.forward.0".into());
        for place in 0..of.len() {
            let value = values.next().unwrap();
            op.slots.push(match place {
                0 => Slot::new("input.0", SlotSide::Input, value),
                part => Slot::new(format!("output.{}", part - 1), SlotSide::Output, value),
            });
        }
        held.ops.push(op);
    }
    held
}

#[test]
fn tokens_that_each_rank_sends_to_an_expert_are_cut_by_the_layout() {
    let (all, rows) = (matrix(8, 2, 1), |from: usize, to: usize| matrix(to - from, 2, from as u64));
    let whole = cutting(0, &[("Torch.split.0.forward", &[all.clone(), rows(0, 3), rows(3, 8)])]);
    let of_ranks = [all.clone(), rows(0, 4), rows(4, 8)];
    let of_experts = [all, rows(0, 1), rows(1, 4), rows(4, 6), rows(6, 8)];
    let calls: [(&str, &[Matrix]); 2] =
        [("Torch.split.0.forward", &of_ranks[..2]), ("Torch.split.1.forward", &of_experts)];
    let mut ranks = vec![cutting(0, &calls), cutting(1, &calls)];
    under_others_names(&mut ranks, &whole, false);
    assert_eq!(names(&ranks[0]), ["Torch.split.1.forward", "Torch.split.0.forward"]);
    let folded = super::all(ranks, &whole);
    let cut = folded.rank.ops.iter().find(|op| op.name.as_str() == "Torch.split.0.forward").unwrap();
    // Neither the value in the order of the ranks nor its parts are compared.
    assert!(cut.slots.iter().all(|slot| slot.value == Value::Unsupported), "{:?}", cut.slots);
}

#[test]
fn tensors_without_hashes_are_told_apart_by_their_data() {
    let (whole, first) = (matrix(4, 4, 3), matrix(4, 4, 4));
    let mut rest = whole.clone();
    rest.1.iter_mut().zip(&first.1).for_each(|(rest, first)| *rest -= first);
    let bare = |number, value: &Matrix| {
        let mut held = rank(number, std::slice::from_ref(value), true);
        let Value::Tensor(record) = &held.ops[0].slots[0].value else { unreachable!() };
        let mut record = TensorRecord::clone(record);
        (record.statistics, record.checksum, record.counts) = (KeptStatistics::default(), None, None);
        held.ops[0].slots[0].value = Value::Tensor(record.into());
        crate::observed(&mut held);
        held
    };
    let Folded { remarks, .. } = super::all(vec![bare(0, &first), bare(1, &rest)], &bare(0, &whole));
    assert_eq!(remarks.get(&(0, 0)), Some(&Remark::Partial(vec![0, 1], Among::Sum(1))));
}
