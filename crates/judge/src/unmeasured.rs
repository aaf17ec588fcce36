//! Values that a capture could not measure: each is unknown.

use probe_dump::TensorRecord;

/// Returns the reason why nothing is known of a value that both sides hold; `None` if something is.
pub(super) fn reason((b, c): (&TensorRecord, &TensorRecord)) -> Option<String> {
    match (b.unmeasured(), c.unmeasured()) {
        (Some(b), Some(c)) if b == c => Some(format!("not measured by either side: {b}")),
        (Some(b), Some(c)) => Some(format!("not measured by the baseline: {b}; nor by the candidate: {c}")),
        (Some(b), None) => Some(format!("not measured by the baseline: {b}")),
        (None, Some(c)) => Some(format!("not measured by the candidate: {c}")),
        (None, None) => None,
    }
}
