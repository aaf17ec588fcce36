//! Turns recorded names into file names: plain, valid on every system, and unique.

use std::collections::HashSet;

use probe_measure::hash_bytes;

/// Longest stem, in bytes: with extension and number it fits every file system.
const LONGEST: usize = 180;

/// Names that some systems reserve for devices, whatever follows the first dot.
const RESERVED: [&str; 22] = [
    "con", "prn", "aux", "nul", "com1", "com2", "com3", "com4", "com5", "com6", "com7", "com8", "com9",
    "lpt1", "lpt2", "lpt3", "lpt4", "lpt5", "lpt6", "lpt7", "lpt8", "lpt9",
];

/// Assigns names.
#[derive(Debug, Default)]
pub(super) struct FileNames {
    /// In lower case, for case-insensitive systems.
    taken: HashSet<String>,
}

impl FileNames {
    /// Returns a name without extension for the text `text`.
    pub(super) fn stem(&mut self, text: &str) -> String {
        let mut stem: String = text.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
        let first = stem.split('.').next().unwrap_or("").to_ascii_lowercase();
        if stem.is_empty() || stem.starts_with(['.', '-']) || RESERVED.contains(&&*first) {
            stem.insert(0, '_');
        }
        if stem.ends_with('.') {
            stem.push('_');
        }
        if stem.len() > LONGEST {
            // Plain characters take one byte each. The end of a name distinguishes calls and slots.
            let hash = format!("{:032x}", hash_bytes(text.as_bytes()));
            let (kept, tail) = (LONGEST - 60, 40);
            stem = format!("{}~{}~{}", &stem[..kept], &hash[..16], &stem[stem.len() - tail..]);
        }
        let mut unique = stem.clone();
        let mut again = 1;
        while !self.taken.insert(unique.to_ascii_lowercase()) {
            again += 1;
            unique = format!("{stem}#{again}");
        }
        unique
    }
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric()
        || matches!(c, '.' | '_' | '-' | '+' | '=' | '@' | '#' | ',' | '(' | ')' | '[' | ']' | '~')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leaves_the_folder_or_meets_another() {
        let mut names = FileNames::default();
        for (text, stem) in [
            ("Functional.gelu.1.forward.output.0", "Functional.gelu.1.forward.output.0"),
            ("functional.GELU.1.forward.output.0", "functional.GELU.1.forward.output.0#2"),
            ("../../etc/passwd", "_.._.._etc_passwd"),
            ("a/b\\c:d\0e\n", "a_b_c_d_e_"),
            ("", "_"),
            ("..", "_.._"),
            ("CON.weight", "_CON.weight"),
            ("层", "_"),
        ] {
            let found = names.stem(text);
            let expected = if text == "层" { "_#2" } else { stem };
            assert_eq!(found, expected, "{text:?}");
        }
        let long = "x".repeat(500);
        let (one, other) = (names.stem(&format!("{long}.1")), names.stem(&format!("{long}.2")));
        assert!(one.len() <= LONGEST && one != other, "{one}");
    }
}
