//! What errors of the inputs become in a result.

use super::super::ops::{Kind, parameter};
use super::super::slope;
use super::{
    BOTH_SIDES, FEW, InputError, ONE_FLIP, PEAKED, Passage, Place, ROOT, SLOPE, centring, is_logarithm,
    largest, largest_error, multiplied, of_divisor, root, rows_summed,
};
use probe_dump::{Scalar, Value};

/// Square of a normalised value from which on the number that is added to the variance does not tell what that is.
const MOST_OF_VARIANCE: f64 = 0.9;

/// Relative error of a vector of the other sign. Among equal numbers any rotation of their vectors is as good.
const OPPOSITE: f64 = 2.0;

impl Passage<'_, '_> {
    /// Returns the error of the result of a function, relative to its scale.
    pub(super) fn to_result(&self) -> f64 {
        let Self { flow, node, fact, scale, relative, joint, absolute, .. } = *self;
        match node.traits.kind {
            Kind::Add => {
                // A broadcast input is read often.
                let spread = self.given.iter().map(|(place, _)| (fact.len / self.len(*place)).sqrt());
                absolute * largest(spread).max(1.0) / scale
            }
            Kind::Sampled => self.to_sampled(),
            Kind::Copy => relative.max(absolute / scale),
            Kind::Embedding => relative.max(absolute.max(self.of_rows_read_often()) / scale),
            Kind::Lipschitz => relative.max(SLOPE * absolute / scale),
            Kind::Sloped => root(self.given.iter().map(|&(place, error)| match slope::of(flow, place) {
                Some(slope) => slope * error.absolute / scale,
                None => error.relative,
            })),
            Kind::Basis if self.is_basis() => OPPOSITE,
            Kind::Shaped => 0.0,
            Kind::Stepped => joint.max(self.carried_over().sqrt() / scale),
            Kind::Sum => joint.max(absolute / scale),
            Kind::Mean | Kind::Distance => {
                let terms = self.given.first().map_or(1.0, |(place, _)| self.len(*place) / fact.len.max(1.0));
                joint.max(absolute / terms.max(1.0) / scale)
            }
            // Behind a mask, use the error of the masked values: relative if the mask is not a number that
            // norms can hold, absolute if a smaller mask (the least float16, or -1e4) is in the norm.
            Kind::Exponential => self.mean_error().max(relative),
            Kind::LogSoftmax => {
                let means = self.mean_error() * fact.len.sqrt() / scale;
                if self.given.iter().all(|(place, _)| self.len(*place) <= fact.len) {
                    (absolute / scale).max(means)
                } else {
                    // A loss picks one element per row: each has the average error, or more at some positions.
                    BOTH_SIDES * means * rows_summed(flow, node, self.place.0)
                }
            }
            Kind::Power => match self.exponent() {
                Some(exponent) if exponent >= 1.0 => PEAKED * exponent * joint,
                _ => joint.max(ROOT * relative.sqrt()),
            },
            Kind::Logarithm => {
                joint.max(self.mean_error() * fact.len.sqrt() / scale).max(self.to_logarithm())
            }
            Kind::Product => root(self.given.iter().map(|(place, error)| {
                // A bias is added.
                if flow.shape(*place).len() == 1 {
                    error.absolute * (fact.len / self.len(*place)).sqrt() / scale
                } else {
                    error.relative.max(self.along_rows(*place, *error))
                }
            })),
            Kind::Multiply => joint.max(multiplied(flow, &self.given, fact.len) * self.factors() / scale),
            Kind::Divide | Kind::Root | Kind::Update => self.to_quotient(),
            Kind::Attention => self.to_attention(),
            Kind::Normalisation => self.to_normalised(),
            _ => self.relative_errors(),
        }
    }

    /// A weight moves along the rows that it multiplied, whose gradients its change is made of: few rows meet their own part of
    /// what it is off by, and not that of random numbers.
    fn along_rows(&self, weight: Place, error: InputError) -> f64 {
        let flow = self.flow;
        if flow.pair.step == 0 || !flow.is_weight(weight) {
            return 0.0;
        }
        let others = self
            .given
            .iter()
            .map(|(place, _)| *place)
            .filter(|&place| place != weight && flow.is_matrix(place));
        let Some(read) = others.max_by(|x, y| self.len(*x).total_cmp(&self.len(*y))) else { return 0.0 };
        // Of (rows, in), (rows, out) and (in, out).
        let rows = (self.len(read) * self.len(self.place) / self.len(weight)).sqrt().max(1.0);
        error.absolute * flow.fact(read).norm / rows.sqrt() / self.scale
    }

    /// Returns true for the vectors that a matrix is split into, which fill a matrix; its numbers do not.
    fn is_basis(&self) -> bool {
        let dimensions = self.flow.shape(self.place).len();
        self.given.first().is_some_and(|&(matrix, _)| self.flow.shape(matrix).len() == dimensions)
    }

    /// Returns the number of elements that errors may carry over the threshold between two whole numbers: of elements
    /// that lie anywhere between two, as large a part as they are off by.
    fn carried_over(&self) -> f64 {
        let expected =
            largest(self.given.iter().map(|(place, error)| error.absolute * self.len(*place).sqrt()));
        if expected > ONE_FLIP { expected + FEW } else { 0.0 }
    }

    /// Where a table is read more often than it has rows, the row that is off most may be most of what is read: that of a
    /// distance, of a type.
    fn of_rows_read_often(&self) -> f64 {
        let errors = self.given.iter().filter_map(|&(table, _)| {
            let width = *self.flow.shape(table).last()? as f64;
            let often = self.fact.len > self.len(table);
            let alone = largest_error(self.flow, table).filter(|_| often)?;
            Some(alone * (self.fact.len / width.max(1.0)).sqrt())
        });
        largest(errors)
    }

    /// A place that is off by part of the distance between two elements takes as much of the difference between them, in
    /// each of its dimensions; neighbours that have nothing to do with one another differ by the root of 2 times their
    /// size.
    fn to_sampled(&self) -> f64 {
        let Some(&(image, of_image)) = self.given.first() else { return 0.0 };
        let size = self.flow.fact(image).norm / self.len(image).sqrt();
        let off = self.off_by(&self.given);
        of_image.relative.hypot(2_f64.sqrt() * off * size * self.fact.len.sqrt() / self.scale)
    }

    fn to_quotient(&self) -> f64 {
        let divides = self.node.traits.kind != Kind::Root;
        root(self.given.iter().enumerate().map(|(index, &(place, error))| {
            let is_divisor = divides && index + 1 == self.given.len();
            if is_divisor { of_divisor(self.flow, place, error) } else { error.relative }
        }))
        .max(if divides { self.over_least_divisor() } else { 0.0 })
    }

    /// The least element of a divisor makes the most of what its dividend is off by, as a step of Adam does at an element
    /// whose gradient is nearly zero, and no more than to turn the largest quotient round.
    fn over_least_divisor(&self) -> f64 {
        let [(x, error), (divisor, _)] = *self.given else { return 0.0 };
        let least = self.flow.extremes(divisor).map_or(0.0, |(min, max)| min.max(-max));
        let alone = error.absolute / self.len(x).sqrt() / least;
        if least > 0.0 { alone.min(OPPOSITE * self.fact.largest) / self.scale } else { 0.0 }
    }

    /// The least elements have the largest relative error, which a logarithm makes absolute: that of a few of them.
    fn to_logarithm(&self) -> f64 {
        if !is_logarithm(self.node.base) {
            return 0.0;
        }
        let each = self.given.iter().map(|&(place, error)| of_divisor(self.flow, place, error));
        largest(each) * FEW.sqrt() / self.scale
    }

    /// Errors of the products under the softmax are absolute: larger products, larger errors.
    fn to_attention(&self) -> f64 {
        let rms = |index: usize| {
            let given = self.given.get(index);
            given.map_or(0.0, |&(place, _)| self.flow.fact(place).norm / self.len(place).sqrt())
        };
        let last = |&(place, _): &(Place, _)| self.flow.shape(place).last();
        let width = self.given.first().and_then(last).map_or(1.0, |&size| size as f64);
        let sharpness = (rms(0) * rms(1) * width.sqrt()).clamp(1.0, 100.0);
        let errors = self.given.iter().enumerate();
        root(errors.map(|(index, (_, error))| error.relative * if index < 2 { sharpness } else { 1.0 }))
    }

    /// The reciprocal of a deviation `s` of `n` elements is off by the part of their error along them, `1 / sqrt(n)` of it
    /// where it has no direction, relative to `s`: most for the group that varies least.
    fn to_reciprocal_deviation(&self) -> f64 {
        let Some(&(x, error)) = self.given.first() else { return 0.0 };
        let each = self.len(x) / self.len(self.place);
        let is_one = each > 1.0
            && self.node.base.contains("norm")
            && self.flow.extremes(self.place).is_some_and(|(min, _)| min > 0.0);
        if !is_one {
            return 0.0;
        }
        error.absolute / self.len(x).sqrt() * self.fact.largest / each.sqrt()
    }

    fn to_normalised(&self) -> f64 {
        let mut given = self.given.iter();
        let first = given.next().map_or(0.0, |&(place, error)| {
            error.relative * centring(self.flow, self.node, place).max(self.beside_deviation(place))
        });
        // Normalised values have size 1, whatever scales and shifts them.
        let parameters = given.map(|&(place, error)| {
            let rows = (self.fact.len / self.len(place)).max(1.0);
            error.relative.min(error.absolute * rows.sqrt() / self.scale)
        });
        root(parameters.chain([first])).max(self.to_reciprocal_deviation()).max(self.by_least_deviation())
    }

    /// Where the reciprocal deviations are recorded, the largest: an error of the input may all lie in the group that varies
    /// least, and is divided by that deviation.
    fn by_least_deviation(&self) -> f64 {
        let Some(&(x, error)) = self.given.first() else { return 0.0 };
        // It is the last of the results.
        let results = self.node.results().map(|slot| (self.place.0, slot));
        let smaller = results.filter(|&place| {
            let fact = self.flow.fact(place);
            fact.is_float && fact.len >= 1.0 && fact.len < self.fact.len
        });
        let largest =
            smaller.last().and_then(|place| self.flow.extremes(place)).filter(|(min, _)| *min > 0.0);
        let is_whole = self.len(x).to_bits() == self.len(self.place).to_bits();
        largest.filter(|_| is_whole).map_or(0.0, |(_, max)| error.absolute * max / self.scale)
    }

    /// Returns how much larger the elements of `x` are than the deviations by which a function divides their groups, as far
    /// as the result tells: without scale and shift its square is `v / (v + eps)` for a variance `v`, which is much below 1
    /// where `eps` counts. Each group has a mean of its own, which no figure of all elements shows.
    fn beside_deviation(&self, x: Place) -> f64 {
        let square = |place: Place| {
            let fact = self.flow.fact(place);
            fact.norm * fact.norm / fact.len.max(1.0)
        };
        let name = |slot: usize| parameter(self.node.base, &self.flow.slot((self.place.0, slot))?.path);
        let tensor = |wanted: &str| {
            let slots = self.node.given().filter(|&slot| name(slot) == Some(wanted));
            slots.map(|slot| (self.place.0, slot)).find(|&place| self.flow.fact(place).is_float)
        };
        let number = |wanted: &str| {
            let slot = self.node.given().find(|&slot| name(slot) == Some(wanted))?;
            match &self.flow.slot((self.place.0, slot))?.value {
                Value::Scalar(Scalar::Number(number)) => Some(number.as_f64()),
                _ => None,
            }
        };
        // With running statistics it divides by those.
        let divides = number("training").is_none_or(|training| training > 0.0);
        let (Some(weight), Some(eps)) = (tensor("weight"), number("eps").filter(|_| divides)) else {
            return 1.0;
        };
        let shift = tensor("bias").map_or(0.0, square);
        let share = (square(self.place) - shift) / square(weight).max(f64::MIN_POSITIVE);
        if !(0.0..MOST_OF_VARIANCE).contains(&share) || share <= 0.0 {
            return 1.0;
        }
        (square(x) * (1.0 - share) / (eps * share)).sqrt().max(1.0)
    }
}
