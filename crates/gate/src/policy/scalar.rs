//! Rules for scalars.

use std::fmt;
use std::sync::LazyLock;

use serde::Deserialize;

use super::Pattern;

/// On which side of the baseline a scalar is worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Worse {
    /// Above it: a loss.
    Higher,
    /// Below it: a score.
    Lower,
    /// On either side.
    #[default]
    Both,
}

impl Worse {
    /// The word in the policy.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
            Self::Both => "both",
        }
    }

    /// The part of a signed difference that is to the worse.
    pub fn part(self, difference: f64) -> f64 {
        match self {
            Self::Higher => difference.max(0.0),
            Self::Lower => (-difference).max(0.0),
            Self::Both => difference.abs(),
        }
    }
}

/// Bounds of the scalars of a pattern. All that are given hold, at every step.
#[derive(Debug, Clone)]
pub struct ScalarRule {
    /// Names.
    pub pattern: Pattern,
    /// Equal to the bit.
    pub exact: bool,
    /// Not judged.
    pub ignore: bool,
    /// Largest difference relative to the magnitude of the baseline's value.
    pub rtol: Option<f64>,
    /// Largest difference.
    pub atol: Option<f64>,
    /// Largest distance in units in the last place: of binary32 where all values of both sides are such numbers, else of binary64.
    pub ulp: Option<u64>,
    /// Largest mean of the signed relative differences of all steps.
    pub bias: Option<f64>,
    /// The side that the bounds are for.
    pub worse: Worse,
}

/// What holds where no policy says otherwise: equal to the bit.
pub static DEFAULT_RULE: LazyLock<ScalarRule> = LazyLock::new(|| ScalarRule {
    // A literal that no test could break.
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
    /// The bound on the mean of the signed relative differences of `steps` steps: the one that is given, else what `rtol` implies. A run that is
    /// off to one side by nearly `rtol` at every step keeps every single bound and is worse all the same.
    ///
    /// Differences without direction, spread evenly up to `rtol`, have a mean whose standard deviation is `rtol / sqrt(3 n)`; three of them are
    /// allowed, never more than `rtol`.
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

/// Words of names that tell of speed and memory: those that Megatron-LM, torchtitan and Hugging Face's trainer log beside results.
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

/// Whether a scalar tells how fast a run was, not what it computed. Such are never equal from run to run, and are gated only where a policy
/// names them.
pub fn is_of_speed(name: &str) -> bool {
    name.to_lowercase().split(|letter: char| !letter.is_alphanumeric()).any(|word| SPEED.contains(&word))
}
