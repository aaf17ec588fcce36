//! Parser for the Python literals that `NumPy` writes: one dict, texts, numbers and tuples of sizes.

use super::Descr;

/// A position in the header text.
pub(super) struct Literal<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Literal<'a> {
    pub(super) const fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the next offset to read.
    pub(super) const fn position(&self) -> usize {
        self.at
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    pub(super) fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\t' | b'\r')) {
            self.at += 1;
        }
    }

    pub(super) fn take(&mut self, byte: u8) -> bool {
        self.skip_blanks();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    pub(super) fn expect(&mut self, byte: u8) -> Result<(), String> {
        if self.take(byte) { Ok(()) } else { Err(self.expected(&format!("'{}'", char::from(byte)))) }
    }

    fn expected(&self, what: &str) -> String {
        format!("npy header should have {what} at byte {}", self.at)
    }

    pub(super) fn string(&mut self) -> Result<&'a str, String> {
        self.skip_blanks();
        let Some(quote @ (b'\'' | b'"')) = self.peek() else {
            return Err(self.expected("a quoted name"));
        };
        let rest = self.text.get(self.at + 1..).unwrap_or(&[]);
        let length =
            rest.iter().position(|&byte| byte == quote).ok_or_else(|| self.expected("a closing quote"))?;
        let content = rest.get(..length).unwrap_or(&[]);
        if content.contains(&b'\\') {
            return Err(self.expected("a name without escapes"));
        }
        let content = std::str::from_utf8(content).map_err(|_| self.expected("text in UTF-8"))?;
        self.at += length + 2;
        Ok(content)
    }

    pub(super) fn truth(&mut self) -> Result<bool, String> {
        self.skip_blanks();
        let rest = self.text.get(self.at..).unwrap_or(&[]);
        for (word, value) in [("True", true), ("False", false)] {
            if rest.starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.expected("True or False"))
    }

    pub(super) fn shape(&mut self) -> Result<Box<[usize]>, String> {
        let mut shape = Vec::new();
        self.expect(b'(')?;
        while !self.take(b')') {
            shape.push(self.size()?);
            if !self.take(b',') {
                self.expect(b')')?;
                break;
            }
        }
        Ok(shape.into())
    }

    fn size(&mut self) -> Result<usize, String> {
        self.skip_blanks();
        let start = self.at;
        let mut value = 0_usize;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            value = value
                .checked_mul(10)
                .and_then(|v| v.checked_add(usize::from(digit - b'0')))
                .ok_or_else(|| self.expected("a size this machine can address"))?;
            self.at += 1;
        }
        if self.at == start {
            return Err(self.expected("a size"));
        }
        // Python 2 wrote long integers with a suffix.
        if self.peek() == Some(b'L') {
            self.at += 1;
        }
        Ok(value)
    }

    pub(super) fn descr(&mut self) -> Result<Descr, String> {
        self.skip_blanks();
        if self.peek() != Some(b'[') {
            return self.string().map(Descr::parse);
        }
        // A record type: a list of tuples. Only its end matters.
        let start = self.at;
        let mut open = 0_usize;
        loop {
            match self.peek() {
                Some(b'[' | b'(') => open += 1,
                Some(b']' | b')') => open = open.saturating_sub(1),
                Some(b'\'' | b'"') => {
                    self.string()?;
                    continue;
                }
                Some(_) => {}
                None => return Err(self.expected("the end of 'descr'")),
            }
            self.at += 1;
            if open == 0 {
                break;
            }
        }
        let text = self.text.get(start..self.at).unwrap_or(&[]);
        Ok(Descr::Other(String::from_utf8_lossy(text).into()))
    }
}
