//! Rules for scalars.

use std::fmt;
use std::sync::LazyLock;

use serde::Deserialize;

use super::Pattern;

/// Direction in which a scalar gets worse than the baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Worse {
    /// Higher is worse, as for a loss.
    Higher,
    /// Lower is worse, as for a score.
    Lower,
    /// Both directions are worse.
    #[default]
    Both,
}

impl Worse {
    /// Returns the word used in the policy.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
            Self::Both => "both",
        }
    }

    /// Returns the part of a signed difference that is for the worse.
    pub fn part(self, difference: f64) -> f64 {
        match self {
            Self::Higher => difference.max(0.0),
            Self::Lower => (-difference).max(0.0),
            Self::Both => difference.abs(),
        }
    }
}

/// Bounds of the scalars of a pattern. All of the given bounds must hold at every step.
#[derive(Debug, Clone)]
pub struct ScalarRule {
    /// Names that the rule covers.
    pub pattern: Pattern,
    /// True if values must be bit-equal.
    pub exact: bool,
    /// True if the scalars are not judged.
    pub ignore: bool,
    /// Largest difference relative to the magnitude of the baseline's value.
    pub rtol: Option<f64>,
    /// Largest absolute difference.
    pub atol: Option<f64>,
    /// Largest distance in ULP, of binary32 if all values of both sides are binary32 values, else of binary64.
    pub ulp: Option<u64>,
    /// Largest mean of the signed relative differences of all steps.
    pub bias: Option<f64>,
    /// Direction in which the bounds apply.
    pub worse: Worse,
}

/// The default if no policy says otherwise: bit-equal.
pub static DEFAULT_RULE: LazyLock<ScalarRule> = LazyLock::new(|| ScalarRule {
    // A literal that cannot be an invalid pattern.
    pattern: Pattern::new("*").unwrap_or_else(|_| unreachable!("an asterisk is a pattern")),
    exact: true,
    ignore: false,
    rtol: None,
    atol: None,
    ulp: None,
    bias: None,
    worse: Worse::Both,
});

impl ScalarRule {
    /// Returns the bound on the mean of the signed relative differences of `steps` steps: the explicit one, else the one implied by `rtol`. A
    /// run that is off in one direction by nearly `rtol` at every step stays within every single bound and is still worse.
    ///
    /// The mean of differences without direction, uniformly distributed up to `rtol`, has a standard deviation of `rtol / sqrt(3 n)`; three of
    /// these are allowed, but never more than `rtol`.
    pub fn bias_bound(&self, steps: usize) -> Option<f64> {
        self.bias.or_else(|| Some(self.rtol? * (3.0 / (steps.max(1) as f64)).sqrt().min(1.0)))
    }
}

impl fmt::Display for ScalarRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ignore {
            return f.write_str("not judged");
        }
        let mut words = Vec::new();
        if self.exact {
            words.push("exact".to_owned());
        }
        for (name, bound) in [("rtol", self.rtol), ("atol", self.atol), ("bias", self.bias)] {
            words.extend(bound.map(|bound| format!("{name} {bound:e}")));
        }
        words.extend(self.ulp.map(|bound| format!("ulp {bound}")));
        if self.worse != Worse::Both {
            words.push(format!("worse {}", self.worse.name()));
        }
        f.write_str(&words.join(", "))
    }
}

/// Words in names of speed and memory metrics, as Megatron-LM, torchtitan and Hugging Face's trainer log them beside results.
const SPEED: [&str; 20] = [
    "time",
    "times",
    "runtime",
    "second",
    "seconds",
    "sec",
    "ms",
    "latency",
    "throughput",
    "tps",
    "tgs",
    "mfu",
    "flops",
    "tflops",
    "flos",
    "memory",
    "mem",
    "bytes",
    "fps",
    "gib",
];

/// Returns true if a scalar measures the speed of a run rather than its results. Such scalars are never equal from run to run, and are
/// gated only if a policy names them.
pub fn is_of_speed(name: &str) -> bool {
    name.to_lowercase().split(|letter: char| !letter.is_alphanumeric()).any(|word| SPEED.contains(&word))
}
