//! Commands that a reader can copy.

use probe_judge::{Cause, Finding, Summary};
use probe_measure::Basis;

/// Returns text as typed in a shell.
pub fn typed(text: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "-_./=+:@%".contains(letter);
    if text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// Returns the command that holds both results of a call against float64, in two parts: the second names the baseline.
/// `None` if `probe replay` cannot do that: it needs the data of one call of a function, on both sides, on disk.
pub(crate) fn replay(summary: &Summary, finding: &Finding) -> Option<[String; 2]> {
    let Summary { baseline, candidate, .. } = summary;
    let is_call = !["Module.", "Optimizer.", "Cell."].iter().any(|kind| finding.op.starts_with(kind));
    let wrong = matches!(finding.cause, Cause::Numerics | Cause::NonFinite);
    let local = |path: &str| !path.contains("://") && !path.chars().any(char::is_control);
    let dumps = [baseline, candidate].iter().all(|run| run.format.ends_with(" dump") && local(&run.path));
    if !is_call || !wrong || !dumps || finding.basis != Some(Basis::Data) || baseline.ranks != candidate.ranks
    {
        return None;
    }
    let place = |option: &str, several: bool, number: u64| {
        if several { format!(" --{option} {number}") } else { String::new() }
    };
    let step = place("step", candidate.steps.len() > 1, finding.step);
    let rank = place("rank", candidate.ranks.len() > 1, finding.rank.into());
    Some([
        format!("probe replay {} --op {}{step}{rank}", typed(&candidate.path), typed(&finding.op)),
        format!("--against {}", typed(&baseline.path)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_a_shell_are_quoted_where_they_must_be() {
        assert_eq!(typed("dumps/step0"), "dumps/step0");
        assert_eq!(typed("it's here"), "'it'\\''s here'");
    }
}
