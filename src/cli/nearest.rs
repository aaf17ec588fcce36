//! The known name that a misspelt one was probably meant to be.

/// Names less alike than this are no suggestion: 1 is equal, 0 has nothing in common.
const ALIKE: f64 = 0.6;

/// The one of `known` that is most like `name`, whatever the case of its letters; the first of several that are equally so. `None`
/// where nothing is like it.
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
