//! Suggests the known name closest to a misspelt one.

/// Least similarity of a suggestion: 1 is equal, 0 has nothing in common.
const ALIKE: f64 = 0.6;

/// Returns the entry of `known` most similar to `name`, ignoring case; the first one on a tie. `None` if none is similar.
pub(super) fn nearest(name: &str, known: impl IntoIterator<Item = String>) -> Option<String> {
    let wanted = name.to_lowercase();
    let mut best: Option<(f64, String)> = None;
    for candidate in known {
        let alike = strsim::normalized_damerau_levenshtein(&wanted, &candidate.to_lowercase());
        if alike >= best.as_ref().map_or(ALIKE, |(alike, _)| alike + f64::EPSILON) {
            best = Some((alike, candidate));
        }
    }
    best.map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_understood_and_other_words_are_not() {
        let known = || ["Functional.gelu", "gelu", "linear", "layer_norm"].map(String::from);
        assert_eq!(nearest("gelx", known()).as_deref(), Some("gelu"));
        assert_eq!(nearest("layernorm", known()).as_deref(), Some("layer_norm"));
        assert_eq!(nearest("FUNCTIONAL.GELU", known()).as_deref(), Some("Functional.gelu"));
        assert_eq!(nearest("scatter", known()), None);
    }
}
