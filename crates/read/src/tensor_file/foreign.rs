//! Text in the place of a tensor file: what a clone or a download left there instead.
//!
//! No tensor file begins like this: the first eight bytes of safetensors are a length, and eight letters would be one of exabytes.

use probe_files::map::Source;

use super::printable;

/// First line of the pointer that Git LFS keeps in a repository.
const LFS_POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";

/// Bytes that are looked at. A pointer has fewer.
const LOOKED_AT: usize = 512;

/// Characters of an answer that are quoted.
const QUOTED: usize = 80;

/// Says what is in the place of a tensor file, if it is such a text.
pub(crate) fn in_its_place(source: &Source) -> Option<String> {
    let head = source.section(0..source.len().min(LOOKED_AT as u64), "the first bytes").ok()?;
    told(head.bytes())
}

/// Says it of the first bytes of a file.
pub(crate) fn told(head: &[u8]) -> Option<String> {
    let head = &head[..head.len().min(LOOKED_AT)];
    if head.starts_with(LFS_POINTER) {
        return Some(pointer(&String::from_utf8_lossy(head)));
    }
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let is_text =
        |bytes: &[u8]| bytes.iter().all(|&byte| !byte.is_ascii_control() || byte.is_ascii_whitespace());
    if head.len() < 8 || !is_text(&head[..8]) {
        return None;
    }
    let begins = |word: &[u8]| head.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    let kind = match head[0] {
        b'<' if begins(b"<!doctype html") || begins(b"<html") => "a web page",
        b'<' if begins(b"<?xml") => "XML",
        b'{' | b'[' => "JSON",
        _ => return None,
    };
    let text = String::from_utf8_lossy(head);
    let quoted: String = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(QUOTED).collect();
    Some(format!(
        "is {kind} ('{}'): a server answered with it in place of the file; download the file again",
        printable(&quoted)
    ))
}

fn pointer(text: &str) -> String {
    let size = text.lines().find_map(|line| line.strip_prefix("size ")?.trim().parse::<u64>().ok());
    let of = size.map_or_else(String::new, |size| format!(" of {size} bytes"));
    format!("is a Git LFS pointer to a file{of}, not the file; run `git lfs pull` where it was cloned")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_and_answers_of_servers_are_told() {
        let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 4976698672\n";
        for (text, expected) in [
            (pointer, "is a Git LFS pointer to a file of 4976698672 bytes, not the file"),
            ("version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer to a file, not the file"),
            ("\u{feff}\n <!DOCTYPE html>\n<title>404</title>", "is a web page ('<"),
            ("<HTML><body>", "is a web page ('<"),
            ("<?xml version=\"1.0\"?><Error>", "is XML ('<?xml"),
            ("{\"error\":\"Repository not found\"}", "('{\"error\":\"Repository not found\"}')"),
        ] {
            let told = told(text.as_bytes()).unwrap();
            assert!(told.contains(expected), "{told}");
        }
    }

    #[test]
    fn tensor_files_are_none_of_these() {
        let header_of_123_bytes = b"{\0\0\0\0\0\0\0{\"a\":{}}";
        for head in [&header_of_123_bytes[..], b"PK\x03\x04", b"\x93NUMPY", b"", b"garbage!!"] {
            assert_eq!(told(head), None);
        }
    }
}
