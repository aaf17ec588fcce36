//! Time that the process has used: on a machine that others use as well, a wall clock tells of them.

use std::fs;

/// CPU seconds of the process, all threads; 0 where the system does not say.
pub(crate) fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    // User and system time are the 14th and 15th field of the line; ticks are hundredths of a second on Linux.
    (ticks(11) + ticks(12)) / 100.0
}
