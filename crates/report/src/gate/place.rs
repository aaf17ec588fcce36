//! Source location of a culprit, and the fingerprint that identifies it across runs.

use std::fmt::Write as _;
use std::path::Path;

use sha2::{Digest, Sha256};

use probe_dump::OpName;
use probe_gate::Culprit;

/// Returns file and line; the file is relative to `root` if it lies below it, with `/` as separator.
pub(super) fn source(culprit: &Culprit, root: Option<&Path>) -> Option<(String, u64)> {
    let (file, line) = culprit.source.as_deref()?.rsplit_once(':')?;
    let line = line.parse().ok().filter(|line| *line > 0)?;
    let path = Path::new(file);
    let below = root.and_then(|root| path.strip_prefix(root).ok()).unwrap_or(path);
    Some((below.to_string_lossy().replace('\\', "/"), line))
}

/// Returns a path encoded as part of a URI.
pub(super) fn uri(path: &str) -> String {
    let mut out = String::new();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                out.push(char::from(byte));
            }
            byte => _ = write!(out, "%{byte:02X}"),
        }
    }
    if out.starts_with('/') { format!("file://{out}") } else { out }
}

/// Returns 32 hex digits that stay the same for the same fault of the same op, regardless of its source line and its
/// magnitude.
pub(super) fn fingerprint(culprit: &Culprit) -> String {
    let name = OpName::parse(&culprit.name);
    let module = culprit.module.as_deref().unwrap_or_default();
    let mut hash = Sha256::new();
    for part in [
        culprit.kind.name(),
        module,
        name.stem(),
        &format!("{:?}", name.phase()),
        &culprit.slot,
        culprit.cause,
    ] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    probe_gate::hexadecimal(&hash.finalize(), 16)
}
