//! Slopes of functions of one number over the range of their recorded inputs.
//!
//! By the mean value theorem, an error of the input becomes at most as much larger as the slope is steep. The
//! bounds below are those of calculus for positive arguments of the gamma functions (`|digamma(x)| <= |ln x| +
//! 1/x`, `trigamma(x) <= 1/x + 1/x^2`), and exact for the others.

use super::flow::{Flow, Place};

/// Returns the steepest slope of a function between two arguments; `None` for a function or a range that it is
/// not known for.
fn steepest(base: &str, least: f64, greatest: f64) -> Option<f64> {
    let ends = |slope: fn(f64) -> f64| Some(slope(least).max(slope(greatest)));
    let inside = least > -1.0 && greatest < 1.0;
    match base.trim_start_matches("special_") {
        // Between them the slope is smaller than at one of both ends.
        "lgamma" | "gammaln" | "mvlgamma" if least > 0.0 => ends(|x| x.ln().abs() + 1.0 / x),
        "digamma" | "psi" | "polygamma" if least > 0.0 => ends(|x| 1.0 / x + 1.0 / (x * x)),
        "erfc" => Some(2.0 / std::f64::consts::PI.sqrt()),
        "asinh" | "arcsinh" => Some(1.0),
        "asin" | "acos" | "arcsin" | "arccos" if inside => ends(|x| 1.0 / (1.0 - x * x).sqrt()),
        "atanh" | "arctanh" if inside => ends(|x| 1.0 / (1.0 - x * x)),
        "acosh" | "arccosh" if least > 1.0 => ends(|x| 1.0 / (x * x - 1.0).sqrt()),
        "logit" if least > 0.0 && greatest < 1.0 => ends(|x| 1.0 / (x * (1.0 - x))),
        "tan" if least > -1.5 && greatest < 1.5 => ends(|x| 1.0 / x.cos().powi(2)),
        _ => None,
    }
}

/// Returns the function that is the slope of another one, where its own slope is known.
fn derivative(base: &str) -> Option<&'static str> {
    matches!(base.trim_start_matches("special_"), "lgamma" | "gammaln" | "mvlgamma").then_some("digamma")
}

/// Returns the steepest slope of the function that reads a value; `None` if it is not known.
pub(super) fn of(flow: &Flow<'_>, place: Place) -> Option<f64> {
    over_range(flow, place, flow.nodes[place.0].base)
}

/// Returns the steepest change of the slope of the function that reads a value; `None` if it is not known.
pub(super) fn curvature(flow: &Flow<'_>, place: Place) -> Option<f64> {
    over_range(flow, place, derivative(flow.nodes[place.0].base)?)
}

fn over_range(flow: &Flow<'_>, place: Place, base: &str) -> Option<f64> {
    let (least, greatest) = flow.extremes(place)?;
    steepest(base, least, greatest).filter(|slope| slope.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Largest slopes between neighbours of 200,000 points, by torch in float64.
    #[test]
    fn the_slope_is_that_of_the_function_or_steeper() {
        let known = [
            ("lgamma", 0.2, 9.0, 5.288_462),
            ("digamma", 0.2, 9.0, 26.261_84),
            ("asin", -0.9, 0.7, 2.294_113),
            ("atanh", -0.9, 0.7, 5.262_958),
            ("logit", 0.05, 0.6, 21.052_08),
            ("tan", -1.2, 0.5, 7.615_79),
            ("acosh", 1.1, 4.0, 2.182_09),
        ];
        for (base, least, greatest, slope) in known {
            let found = steepest(base, least, greatest).unwrap();
            assert!(found >= slope && found < 1.3 * slope, "{base}: {found} for {slope}");
        }
        assert_eq!(steepest("lgamma", -0.5, 2.0), None, "poles lie between them");
        assert_eq!(steepest("nobody", 0.0, 1.0), None);
    }
}
