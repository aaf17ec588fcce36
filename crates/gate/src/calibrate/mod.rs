//! Bounds derived from runs: twice the difference between several runs of one commit.

mod scalars;
mod values;

pub use scalars::{Spread, perturbed, scalar_rules, spreads};
pub use values::{Run, ValueSpread, ValueSpreads, moved, value_rules, value_spreads};

/// Minimum number of runs for a meaningful spread.
pub const LEAST: usize = 3;

/// Ratio of a bound to the largest spread.
const FACTOR: f64 = 2.0;

/// Returns the smallest number with three digits that is not below `value`, so that bounds are readable. 0 stays 0.
fn rounded_up(value: f64) -> f64 {
    let text = format!("{value:.2e}");
    let near = |text: &str| text.parse::<f64>().unwrap_or(value);
    if near(&text) >= value {
        return near(&text);
    }
    // Adds one in the last digit, via text so that arithmetic adds no further digits.
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let next = near(digits).mul_add(100.0, 1.0).round() / 100.0;
    near(&format!("{next:.2}e{exponent}"))
}

/// Returns a pattern that matches only this name.
fn literal(name: &str) -> String {
    name.chars().fold(String::new(), |mut out, letter| {
        if matches!(letter, '*' | '?' | '[' | ']' | '{' | '}' | '\\') {
            out.push('\\');
        }
        out.push(letter);
        out
    })
}

#[cfg(test)]
mod tests {
    use super::rounded_up;

    #[test]
    fn bounds_have_three_digits_and_are_never_too_small() {
        for (value, expected) in [
            (0.0, "0e0"),
            (4.0, "4e0"),
            (0.040_404_04, "4.05e-2"),
            (2.0 / 3.0 * 1e-7, "6.67e-8"),
            (9.991e-4, "1e-3"),
            (9.999_9, "1e1"),
            (1.000_001e-300, "1.01e-300"),
        ] {
            let bound = rounded_up(value);
            assert!(bound >= value && bound <= 1.0101 * value, "{value:e} became {bound:e}");
            assert_eq!(format!("{bound:e}"), expected);
        }
    }
}
