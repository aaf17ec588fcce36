//! Formulas against calculus, on drawn numbers.

use super::*;
use crate::drawn::{Drawn, Part};
use crate::scale;

const SEEDS: [u64; 3] = [3, 14, 159];

/// The error of a result in units of the scale, and what the inputs explain of it.
fn errors(name: &str, given: &[(Drawn, Drawn)], result: &(Drawn, Drawn)) -> (f64, f64) {
    let mut part = Part::default();
    part.op(name);
    for (at, (b, c)) in given.iter().enumerate() {
        part.tensor(&format!("input.{at}"), b, c);
    }
    part.tensor("output.0", &result.0, &result.1);
    part.flow(|flow| {
        let place = (0, given.len());
        let inputs: Vec<Place> = flow.given(0);
        let scale = scale::of(flow, place, &inputs, &[]).norm;
        let error = |place: Place| {
            let fact = flow.fact(place);
            InputError { relative: fact.relative(), absolute: fact.distance }
        };
        let inputs: Vec<_> = inputs.into_iter().map(|place| (place, error(place))).collect();
        (flow.fact(place).distance / scale, explained(flow, place, scale, &inputs, &[]))
    })
}

/// Holds a function of one or two tensors against its model: what the inputs explain may be up to `times` the
/// error, and no less than half of it.
fn hold(name: &str, operands: &[Drawn], function: impl Fn(&[Drawn]) -> Drawn, times: f64) {
    for seed in SEEDS {
        let off: Vec<Drawn> =
            operands.iter().enumerate().map(|(at, drawn)| drawn.off(seed + 1000 * at as u64, 1e-4)).collect();
        let given: Vec<(Drawn, Drawn)> = operands.iter().cloned().zip(off.iter().cloned()).collect();
        let (error, explained) = errors(name, &given, &(function(operands), function(&off)));
        assert!(
            explained >= 0.5 * error && explained <= times * error,
            "{name}: {explained:.2e} for {error:.2e}"
        );
    }
}

fn positive(seed: u64) -> Drawn {
    Drawn::normal(seed, &[40, 30]).map(|value| 0.3 + value.abs())
}

#[test]
fn errors_pass_as_calculus_says() {
    let (x, y, w) = (Drawn::normal(1, &[40, 30]), Drawn::normal(2, &[40, 30]), Drawn::normal(3, &[20, 30]));
    let two = [x.clone(), y];
    hold("Functional.linear.0.forward", &[x.clone(), w], |t| t[0].linear(&t[1]), 2.0);
    hold("Torch.add.0.forward", &two, |t| t[0].with(&t[1], |a, b| a + b), 2.0);
    hold("Torch.mul.0.forward", &two, |t| t[0].with(&t[1], |a, b| a * b), 2.0);
    hold("Torch.div.0.forward", &[x.clone(), positive(4)], |t| t[0].with(&t[1], |a, b| a / b), 20.0);
    hold("Torch.tanh.0.forward", std::slice::from_ref(&x), |t| t[0].map(f64::tanh), 4.0);
    hold("Torch.square.0.forward", std::slice::from_ref(&x), |t| t[0].map(|a| a * a), 8.0);
    hold("Torch.log.0.forward", &[positive(5)], |t| t[0].map(f64::ln), 6.0);
    hold("Torch.exp.0.forward", std::slice::from_ref(&x), |t| t[0].map(f64::exp), 4.0);
    hold("Torch.lgamma.0.forward", &[positive(6).map(|a| a + 1.0)], |t| t[0].map(log_gamma), 8.0);
    hold("Torch.asin.0.forward", &[x.map(|a| (a / 8.0).clamp(-0.9, 0.9))], |t| t[0].map(f64::asin), 3.0);
}

#[test]
fn an_element_near_a_threshold_rounds_to_another_whole_number() {
    let wide = Drawn::normal(7, &[200, 200]).map(|value| 20.0 * value);
    hold("Torch.round.0.forward", std::slice::from_ref(&wide), |t| t[0].map(f64::round), 2.0);
    hold("Torch.floor.0.forward", &[wide], |t| t[0].map(f64::floor), 2.0);
}

/// Reads an image of 12 x 12 between its pixels, at places from -1 to 1.
fn sampled(image: &Drawn, places: &Drawn) -> Drawn {
    let near = |x: f64, pixel: usize| (1.0 - (x - pixel as f64).abs()).max(0.0);
    let between = |place: &[f64]| {
        let [x, y] = [place[0], place[1]].map(|place| ((place + 1.0) * 12.0 - 1.0) / 2.0);
        let pixels = image.values.iter().enumerate();
        pixels.map(|(at, value)| value * near(x, at % 12) * near(y, at / 12)).sum()
    };
    Drawn { shape: vec![1, 1, 20, 20], values: places.values.chunks(2).map(between).collect() }
}

#[test]
fn a_place_that_is_off_reads_part_of_the_next_element() {
    let places = Drawn::normal(8, &[1, 20, 20, 2]).map(|value| 0.5 * value);
    let image = Drawn::normal(9, &[1, 1, 12, 12]);
    hold("Functional.grid_sample.0.forward", &[image, places], |t| sampled(&t[0], &t[1]), 4.0);
}

#[test]
fn the_gradient_of_a_root_is_most_off_where_the_root_is_small() {
    let root = Drawn::normal(5, &[40, 30]).map(|value| 1e-3 + value * value);
    let off = root.off(6, 1e-7);
    let one = root.map(|_| 1.0);
    let gradient = |root: &Drawn| root.map(|root| 0.5 / root);
    let mut part = Part::default();
    part.op("Torch.sqrt.0.forward").tensor("input.0", &root.map(|r| r * r), &off.map(|r| r * r));
    part.tensor("output.0", &root, &off);
    part.op("Torch.sqrt.0.backward").tensor("input.0", &one, &one);
    part.tensor("output.0", &gradient(&root), &gradient(&off));
    part.flow(|flow| {
        let with_errors = |places: Vec<Place>| -> Vec<(Place, InputError)> {
            let error = |place: Place| InputError {
                relative: flow.fact(place).relative(),
                absolute: flow.fact(place).distance,
            };
            places.into_iter().map(|place| (place, error(place))).collect()
        };
        let (given, saved) = (with_errors(flow.given(1)), with_errors(flow.saved(1)));
        let fact = flow.fact((1, 1));
        let explained = explained(flow, (1, 1), fact.norm, &given, &saved);
        assert!(fact.relative() > 10.0 * 1e-7, "{:.1e}", fact.relative());
        assert!(
            (0.5..200.0).contains(&(explained / fact.relative())),
            "{explained:.1e} for {:.1e}",
            fact.relative()
        );
    });
}

/// Stirling's series behind a shift of ten, to 1e-12.
fn log_gamma(x: f64) -> f64 {
    let shift: f64 = (0..10).map(|step| (x + f64::from(step)).ln()).sum();
    let z = x + 10.0;
    let series = 1.0 / (12.0 * z) - 1.0 / (360.0 * z.powi(3)) + 1.0 / (1260.0 * z.powi(5));
    (z - 0.5) * z.ln() - z + 0.5 * std::f64::consts::TAU.ln() + series - shift
}

#[test]
fn the_gradient_of_a_distance_keeps_the_errors_of_what_it_subtracts() {
    let x = Drawn::normal(7, &[40, 30]);
    let near = x.off(8, 0.01);
    let (x_off, near_off) = (x.off(9, 1e-5), near.off(10, 1e-5));
    let gradient = |a: &Drawn, b: &Drawn| a.with(b, |a, b| 2.0 * (a - b) / 1200.0);
    let one = Drawn { shape: vec![1], values: vec![1.0] };
    let given = [(one.clone(), one), (x.clone(), x_off.clone()), (near.clone(), near_off.clone())];
    let result = (gradient(&x, &near), gradient(&x_off, &near_off));
    let relative = result.0.with(&result.1, |a, b| a - b).norm() / result.0.norm();
    assert!(relative > 1e-3, "a hundred times the errors of both: {relative:.1e}");
    let (error, explained) = errors("Aten.mse_loss_backward.0.backward", &given, &result);
    assert!(explained >= 0.5 * error && explained <= 3.0 * error, "{explained:.2e} for {error:.2e}");
    assert!(error < 3e-5, "next to what was subtracted: {error:.1e}");
}

/// Normalises each row; also returns the reciprocals of the rows' deviations.
fn normalised(x: &Drawn) -> (Drawn, Drawn) {
    let width = 30;
    let (mut values, mut reciprocals) = (Vec::new(), Vec::new());
    for row in x.values.chunks(width) {
        let mean = row.iter().sum::<f64>() / width as f64;
        let square = row.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / width as f64;
        reciprocals.push(1.0 / square.sqrt());
        values.extend(row.iter().map(|value| (value - mean) / square.sqrt()));
    }
    let rows = vec![x.shape[0], 1];
    (Drawn { shape: x.shape.clone(), values }, Drawn { shape: rows, values: reciprocals })
}

/// Returns the gradient of [`normalised`] for the gradient `g` of its result.
fn gradient_of_normalised(x: &Drawn, g: &Drawn) -> Drawn {
    let width = 30;
    let (y, reciprocals) = normalised(x);
    let rows = g.values.chunks(width).zip(y.values.chunks(width)).zip(&reciprocals.values);
    let values = rows.flat_map(|((g, y), reciprocal)| {
        let mean = g.iter().sum::<f64>() / width as f64;
        let along = g.iter().zip(y).map(|(g, y)| g * y).sum::<f64>() / width as f64;
        g.iter().zip(y).map(move |(g, y)| reciprocal * (g - mean - y * along)).collect::<Vec<f64>>()
    });
    Drawn { shape: x.shape.clone(), values: values.collect() }
}

/// Rows that vary by factors of up to 100.
fn uneven(seed: u64) -> Drawn {
    let mut x = Drawn::normal(seed, &[40, 30]);
    for (at, row) in x.values.chunks_mut(30).enumerate() {
        for value in row {
            *value *= 10_f64.powf(-2.0 * at as f64 / 39.0);
        }
    }
    x
}

#[test]
fn a_row_that_varies_little_magnifies_the_error_of_its_gradient() {
    for seed in SEEDS {
        let (x, g) = (uneven(seed), Drawn::normal(seed + 1, &[40, 30]));
        let off = x.off(seed + 2, 1e-4);
        let mut part = Part::default();
        part.op("Functional.group_norm.0.forward").tensor("input.0", &x, &off).tensor(
            "output.0",
            &normalised(&x).0,
            &normalised(&off).0,
        );
        let gradients = [gradient_of_normalised(&x, &g), gradient_of_normalised(&off, &g)];
        part.op("Functional.group_norm.0.backward").tensor("input.0", &g, &g).tensor(
            "output.0",
            &gradients[0],
            &gradients[1],
        );
        let (error, explained) = part.flow(|flow| {
            let place = (1, 1);
            let scale = flow.fact(place).norm;
            let error = |place: Place| {
                let fact = flow.fact(place);
                (place, InputError { relative: fact.relative(), absolute: fact.distance })
            };
            let given: Vec<_> = flow.given(1).into_iter().map(error).collect();
            let input: Vec<_> = flow.saved(1).into_iter().take(1).map(error).collect();
            (flow.fact(place).distance / scale, explained(flow, place, scale, &given, &input))
        });
        assert!(error > 3e-4, "several times what the input is off by: {error:.2e}");
        assert!(explained >= 0.3 * error && explained <= 3.0 * error, "{explained:.2e} for {error:.2e}");
    }
}

#[test]
fn a_weight_is_told_by_the_rows_that_have_a_gradient() {
    for seed in SEEDS {
        let x = uneven(seed);
        let off = x.off(seed + 2, 1e-4);
        // The rows that vary least are those that a loss reads.
        let least =
            |at: usize| (0..30).map(|column| x.values[at * 30 + column].abs()).fold(0.0, f64::max) < 0.1;
        let mut g = Drawn::normal(seed + 1, &[40, 30]);
        g.values.iter_mut().enumerate().filter(|(at, _)| !least(at / 30)).for_each(|(_, value)| *value = 0.0);
        let sums = |x: &Drawn| {
            let each = normalised(x).0.with(&g, |x, g| x * g);
            let column = |column: usize| (0..40).map(|row| each.values[row * 30 + column]).sum();
            Drawn { shape: vec![30], values: (0..30).map(column).collect() }
        };
        let mut part = Part::default();
        part.op("Aten.native_layer_norm_backward.0.backward").tensor("input.0", &g, &g);
        part.tensor("input.1", &x, &off);
        part.tensor("output.0", &gradient_of_normalised(&x, &g), &gradient_of_normalised(&off, &g));
        part.tensor("output.1", &sums(&x), &sums(&off));
        let (error, explained) = part.flow(|flow| {
            let place = (0, 3);
            let scale = flow.fact(place).norm;
            let error = |place: Place| {
                let fact = flow.fact(place);
                (place, InputError { relative: fact.relative(), absolute: fact.distance })
            };
            let given: Vec<_> = flow.given(0).into_iter().map(error).collect();
            (flow.fact(place).distance / scale, explained(flow, place, scale, &given, &[]))
        });
        assert!(error > 1e-3, "several times what the input is off by: {error:.2e}");
        assert!(explained >= 0.3 * error && explained <= 5.0 * error, "{explained:.2e} for {error:.2e}");
    }
}

#[test]
fn a_row_that_varies_little_magnifies_the_error_of_its_reciprocal_deviation() {
    for seed in SEEDS {
        let x = uneven(seed);
        let off = x.off(seed + 2, 1e-4);
        let given = [(x.clone(), off.clone())];
        let (error, explained) =
            errors("Aten.native_group_norm.0.forward", &given, &(normalised(&x).1, normalised(&off).1));
        assert!(explained >= 0.5 * error && explained <= 5.0 * error, "{explained:.2e} for {error:.2e}");
    }
}

#[test]
fn vectors_of_a_matrix_have_either_sign_and_its_numbers_have_none() {
    let matrix = Drawn::normal(50, &[30, 30]);
    let (vectors, numbers) = (Drawn::normal(51, &[30, 30]), Drawn::normal(52, &[30]));
    let given = [(matrix.clone(), matrix.off(53, 1e-7))];
    let (error, explained) =
        errors("Torch.linalg.eigh.0.forward", &given, &(vectors.clone(), vectors.map(|value| -value)));
    assert!(explained >= error && error > 1.9, "{explained:.1e} for {error:.1e}");
    let (_, explained) =
        errors("Torch.linalg.eigh.0.forward", &given, &(numbers.clone(), numbers.off(54, 1e-7)));
    assert!(explained < 1e-6, "{explained:.1e}");
}

#[test]
fn the_gradient_of_a_sum_of_exponentials_has_the_absolute_errors_of_logits() {
    // Logits of some 20, of which few elements are large.
    let logits = Drawn::normal(60, &[40, 30]).map(|value| 20.0 + 2.0 * value);
    let off = logits.off(61, 1e-5);
    let one = Drawn { shape: vec![40], values: vec![-1.0; 40] };
    let made = |logits: &Drawn| {
        let rows = logits.values.chunks(30).flat_map(|row| {
            let sum: f64 = row.iter().map(|value| value.exp()).sum();
            row.iter().map(move |value| -value.exp() / sum).collect::<Vec<f64>>()
        });
        Drawn { shape: vec![40, 30], values: rows.collect() }
    };
    let mut part = Part::default();
    let sums = |logits: &Drawn| Drawn {
        shape: vec![40],
        values: logits.values.chunks(30).map(|row| row.iter().map(|v| v.exp()).sum::<f64>().ln()).collect(),
    };
    part.op("Tensor.logsumexp.0.forward").tensor("input.0", &logits, &off);
    part.tensor("output.0", &sums(&logits), &sums(&off));
    part.op("Tensor.logsumexp.0.backward").tensor("input.0", &one, &one);
    part.tensor("output.0", &made(&logits), &made(&off));
    part.flow(|flow| {
        let error = |place: Place| InputError {
            relative: flow.fact(place).relative(),
            absolute: flow.fact(place).distance,
        };
        let of =
            |places: Vec<Place>| places.into_iter().map(|place| (place, error(place))).collect::<Vec<_>>();
        let fact = flow.fact((1, 1));
        let explained = explained(flow, (1, 1), fact.norm, &of(flow.given(1)), &of(flow.saved(1)));
        let ratio = explained / fact.relative();
        assert!(
            fact.relative() > 1e-4 && (1.0..20.0).contains(&ratio),
            "{explained:.1e} for {:.1e}",
            fact.relative()
        );
    });
}

#[test]
fn a_root_has_its_error_where_a_quotient_by_it_is_largest() {
    // Numbers of any size down to 1e-4, off by the same amount.
    let x = Drawn::normal(81, &[40, 30]).map(|value| value.powi(6).abs() + 1e-4);
    let noise = Drawn::normal(82, &[40, 30]);
    let off = x.with(&noise, |value, noise| value + 3e-5 * noise.clamp(-1.0, 1.0));
    let roots = (x.map(f64::sqrt), off.map(f64::sqrt));
    let g = Drawn::normal(83, &[40, 30]);
    let quotient = |root: &Drawn| g.with(root, |g, root| g / root);
    let (error, explained) = errors(
        "Aten.div.0.forward",
        &[(g.clone(), g.clone()), roots.clone()],
        &(quotient(&roots.0), quotient(&roots.1)),
    );
    let relative = roots.0.with(&roots.1, |b, c| b - c).norm() / roots.0.norm();
    let by_size = relative * roots.0.norm() / 1200_f64.sqrt() / 1e-2;
    assert!(error > 2.0 * by_size, "{error:.1e} against {by_size:.1e}");
    assert!((1.0..20.0).contains(&(explained / error)), "{explained:.1e} for {error:.1e}");
}

#[test]
fn a_row_that_is_read_often_is_as_often_off() {
    // One element of a table of 32 rows is off, in a row that half of all places read.
    let table = Drawn::normal(91, &[32, 4]);
    let mut off = table.clone();
    off.values[0] += 0.01;
    let read = |of: &Drawn| {
        let rows = (0..144).map(|at| if at % 2 == 0 { 0 } else { at % 32 });
        Drawn {
            shape: vec![144, 4],
            values: rows.flat_map(|row| of.values[4 * row..][..4].to_vec()).collect(),
        }
    };
    let (error, explained) = errors(
        "Functional.embedding.0.forward",
        &[(table.clone(), off.clone())],
        &(read(&table), read(&off)),
    );
    assert!(error > 3.0 * table.with(&off, |b, c| b - c).norm() / table.norm());
    assert!((1.0..2.0).contains(&(explained / error)), "{explained:.1e} for {error:.1e}");
}

#[test]
fn an_error_in_the_row_that_varies_least_is_divided_by_its_deviation() {
    // Row 7 varies by a hundredth of the others.
    let x = Drawn::normal(92, &[40, 30]);
    let scaled = |at: usize, value: f64| if at / 30 == 7 { 0.01 * value } else { value };
    let x =
        Drawn { values: x.values.iter().enumerate().map(|(at, value)| scaled(at, *value)).collect(), ..x };
    let noise = Drawn::normal(93, &[40, 30]);
    let mut off = x.clone();
    off.values[210..240].iter_mut().zip(&noise.values).for_each(|(value, noise)| *value += 1e-4 * noise);
    let rows = |x: &Drawn| -> Vec<(f64, f64)> {
        let of = |row: &[f64]| {
            let mean = row.iter().sum::<f64>() / 30.0;
            (mean, (row.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 30.0).sqrt().recip())
        };
        x.values.chunks(30).map(of).collect()
    };
    let normed = |x: &Drawn| {
        let rows = rows(x);
        let values =
            x.values.iter().enumerate().map(|(at, value)| (value - rows[at / 30].0) * rows[at / 30].1);
        Drawn { values: values.collect(), ..x.clone() }
    };
    let reciprocal =
        |x: &Drawn| Drawn { shape: vec![40, 1], values: rows(x).iter().map(|row| row.1).collect() };
    let mut part = Part::default();
    part.op("Aten.native_layer_norm.0.forward").tensor("input.0", &x, &off);
    part.tensor("output.0", &normed(&x), &normed(&off));
    part.tensor("output.2", &reciprocal(&x), &reciprocal(&off));
    let ratio = part.flow(|flow| {
        let (given, fact) = (flow.fact((0, 0)), flow.fact((0, 1)));
        let error = InputError { relative: given.relative(), absolute: given.distance };
        explained(flow, (0, 1), fact.norm, &[((0, 0), error)], &[]) / fact.relative()
    });
    assert!((0.8..3.0).contains(&ratio), "{ratio}");
}

#[test]
fn a_weight_that_moved_along_its_few_rows_is_off_by_all_of_that() {
    // Four rows that point one way, and what their gradients added to one feature.
    let x = Drawn::normal(94, &[4, 500]).map(|value| 1.0 + 0.3 * value);
    let weight = Drawn::normal(95, &[40, 500]);
    let mut moved = weight.clone();
    moved.values[..500].iter_mut().zip(&x.values).for_each(|(value, x)| *value += 0.1 * x);
    let ratio = |later: bool| {
        let mut part = if later { Part::of_later_step() } else { Part::default() };
        part.op("Functional.linear.0.forward").tensor("input.0", &x, &x).tensor("input.1", &weight, &moved);
        part.requires_grad().tensor("output.0", &x.linear(&weight), &x.linear(&moved));
        part.flow(|flow| {
            let (given, made) = (flow.fact((0, 1)), flow.fact((0, 2)));
            let error = InputError { relative: given.relative(), absolute: given.distance };
            let inputs = [((0, 0), InputError::default()), ((0, 1), error)];
            explained(flow, (0, 2), made.norm, &inputs, &[]) / made.relative()
        })
    };
    assert!(ratio(false) < 0.1, "{}", ratio(false));
    assert!((0.3..2.0).contains(&ratio(true)), "{}", ratio(true));
}
