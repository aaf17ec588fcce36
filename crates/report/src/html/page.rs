//! The file around the data: markup, style and program, and the content security policy that lets nothing else run.

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::head::Head;
use super::pack::Piece;

/// The page's program, built from `web/src` by `web/build.mjs`.
const PROGRAM: &str = include_str!("../../../../web/dist/page.js");

/// The page's style sheet.
const STYLE: &str = include_str!("../../../../web/dist/page.css");

/// Compression level of pieces: above it, time grows faster than files shrink.
const LEVEL: u32 = 4;

/// A page being written.
#[derive(Debug)]
pub(super) struct Page<W: Write> {
    out: W,
}

impl<W: Write> Page<W> {
    /// Writes everything that precedes the data.
    pub(super) fn begin(mut out: W) -> io::Result<Self> {
        let policy = format!(
            "default-src 'none'; script-src '{}'; style-src '{}'; img-src data:; base-uri 'none'; form-action 'none'",
            digest(PROGRAM),
            digest(STYLE)
        );
        write!(
            out,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
             <title>probe</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
             <div id=\"app\"><p class=\"waiting\">Reading the result…</p></div>\n\
             <noscript>This page needs JavaScript. The other reports hold the same answer.</noscript>\n"
        )?;
        Ok(Self { out })
    }

    /// Adds a piece of the columns; writes nothing if there is none.
    pub(super) fn add(&mut self, piece: Option<Piece>) -> io::Result<()> {
        let Some(Piece { ops, values }) = piece else { return Ok(()) };
        let (ops, values) = rayon::join(|| packed(&ops), || packed(&values));
        self.data("ops", &ops)?;
        self.data("values", &values)
    }

    /// Writes the last piece of data and the program.
    pub(super) fn finish(mut self, head: &Head<'_, impl Serialize>) -> io::Result<W> {
        self.data("head", &packed(&serde_json::to_vec(head)?))?;
        write!(self.out, "<script>{PROGRAM}</script>\n</body>\n</html>\n")?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Writes data that no browser executes: base64 in an element whose type is not a script type.
    fn data(&mut self, name: &str, text: &str) -> io::Result<()> {
        writeln!(self.out, "<script type=\"application/x-probe\" data-name=\"{name}\">{text}</script>")
    }
}

/// Returns the bytes compressed and base64-encoded.
fn packed(bytes: &[u8]) -> String {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(LEVEL));
    // Writing to memory cannot fail.
    let compressed = encoder.write_all(bytes).and_then(|()| encoder.finish()).unwrap_or_default();
    STANDARD.encode(compressed)
}

/// Returns the hash by which a content security policy allows this text.
fn digest(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text.as_bytes())))
}
