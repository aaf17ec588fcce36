//! Names and versions of Python packages.

/// Returns the name normalised as in PEP 503: lower case, runs of `-`, `_` and `.` replaced by one `-`.
/// <https://peps.python.org/pep-0503/#normalized-names>
pub(crate) fn normalised(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for letter in name.trim().chars() {
        match letter {
            '-' | '_' | '.' => {
                if !out.ends_with('-') {
                    out.push('-');
                }
            }
            other => out.extend(other.to_lowercase()),
        }
    }
    out
}

/// Returns a version without its local part: `2.7.1` for `2.7.1+cu126`.
/// <https://peps.python.org/pep-0440/#local-version-identifiers>
pub(crate) fn public(version: &str) -> &str {
    version.split('+').next().unwrap_or(version).trim()
}

/// Returns the major and minor number: `2.7` for `2.7.1.post4`.
pub(crate) fn minor(version: &str) -> String {
    public(version).split('.').take(2).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_versions_are_taken_apart() {
        assert_eq!(normalised("Flash__Attn.-x"), "flash-attn-x");
        assert_eq!(public("2.7.1+cu126"), "2.7.1");
        assert_eq!((minor("2.7.1.post4"), minor("2")), ("2.7".into(), "2".into()));
    }
}
