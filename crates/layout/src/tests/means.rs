//! Gradients of each rank's own term of a mean.

use super::*;

/// Returns a rank that computes a loss and the gradient of a parameter, which an optimizer reads or does not.
fn training(number: u32, loss: f32, gradient: &Matrix, is_read: bool) -> Rank {
    let mut held = rank(number, &[(vec![], vec![loss]), gradient.clone()], true);
    let value = held.ops[1].slots[0].value.clone();
    let mut of = |place: usize, name: &str, slot: Slot| {
        held.ops.truncate(place);
        held.ops.push(Op::new(OpName::parse(name)));
        held.ops[place].slots.push(slot);
    };
    let made = Slot::new("grad.weight", SlotSide::Output, value.clone());
    of(1, "Module.m.Linear.parameters_grad.0", made);
    if is_read {
        of(2, "Optimizer.SGD.step.0", Slot::new("input.grad.m.weight", SlotSide::Input, value));
    }
    held
}

#[test]
fn a_gradient_that_an_optimizer_reads_is_no_term_of_a_mean() {
    let whole = matrix(8, 4, 65);
    let twice: Matrix = (whole.0.clone(), whole.1.iter().map(|value| 2.0 * value).collect());
    let norm = |is_read: bool| {
        let other = training(0, 1.5, &whole, is_read);
        let part = |number: u32, loss: f32, rows: Range<usize>| {
            training(number, loss, &cut(&twice, &[rows], 0..4), is_read)
        };
        let folded = all(vec![part(0, 1.0, 0..4), part(1, 2.0, 4..8)], &other);
        let of = |rank: &Rank| rank.ops[1].slots[0].value.tensor().unwrap().statistics.norm().unwrap();
        (of(&folded.rank) / of(&other)).round()
    };
    assert_eq!((norm(false), norm(true)), (1.0, 2.0));
}

#[test]
fn experts_tokens_of_unequal_numbers_are_no_terms_of_one_shape() {
    let (whole, ranks) = (matrix(8, 4, 66), [(0, matrix(5, 4, 67)), (1, matrix(2, 4, 68))]);
    let ranks = ranks.map(|(number, held)| rank(number, &[held], true));
    let other = rank(0, std::slice::from_ref(&whole), true);
    let record = |rank: &Rank| crate::fold::tensor(&rank.ops[0], "output.0").unwrap();
    let pieces = ranks.iter().map(record).enumerate().collect();
    let job = crate::job::Job { pieces, baseline: Some(record(&other)), damage: None };
    let stores = ranks.map(|rank| rank.store);
    let held: Vec<_> = job.pieces.iter().map(|(rank, record)| (&**record, &*stores[*rank])).collect();
    let mut found = crate::infer::infer(&held, Some((&record(&other), &*other.store)));
    crate::means::share_of_mean(&job, &mut found, (2, 2), &stores, &other);
    assert_eq!(found.picks, [0]);
}

#[test]
fn a_bias_on_every_rank_is_told_where_it_was_not_recorded() {
    let (whole, first) = (matrix(8, 4, 3), matrix(8, 4, 4));
    let bias = [0.5, -1.0, 0.25, 2.0];
    // Each has the bias of the whole, which the whole has once.
    let with_bias = |(shape, values): &Matrix| {
        let values = values.iter().zip(bias.iter().cycle()).map(|(value, bias)| value + bias).collect();
        (shape.clone(), values)
    };
    let mut rest = whole.clone();
    rest.1.iter_mut().zip(&first.1).for_each(|(rest, first)| *rest -= first);
    let as_module = |number, value: &Matrix| {
        let mut held = rank(number, std::slice::from_ref(value), true);
        held.ops[0].name = OpName::parse("Module.down.Linear.forward.0");
        held
    };
    let told = |pieces: [&Matrix; 2]| {
        let ranks = vec![as_module(0, pieces[0]), as_module(1, pieces[1])];
        all(ranks, &as_module(0, &with_bias(&whole))).remarks.remove(&(0, 0))
    };
    assert_eq!(
        told([&with_bias(&first), &with_bias(&rest)]),
        Some(Remark::Partial(vec![0, 1], Among::Sum(1)))
    );
    assert_ne!(
        told([&with_bias(&first), &with_bias(&matrix(8, 4, 9))]),
        Some(Remark::Partial(vec![0, 1], Among::Sum(1)))
    );
}
