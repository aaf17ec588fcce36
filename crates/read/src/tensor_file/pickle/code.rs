//! Sequential reader of a pickle program's bytes.

/// A position in a program.
pub(super) struct Code<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// Bytes of a length or an index; all are little endian.
#[derive(Clone, Copy)]
pub(super) enum Width {
    One,
    Four,
    Eight,
}

impl<'a> Code<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the offset of the next byte.
    pub(super) const fn position(&self) -> usize {
        self.at
    }

    /// Returns the number of bytes left.
    pub(super) const fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    /// Returns where a text of this program lies in it.
    pub(super) fn place_of(&self, text: &str) -> Option<usize> {
        let at = text.as_ptr().addr().checked_sub(self.bytes.as_ptr().addr())?;
        (at + text.len() <= self.bytes.len()).then_some(at)
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let end = self.at.checked_add(count);
        let taken = end.and_then(|end| self.bytes.get(self.at..end)).ok_or_else(|| {
            let left = self.left();
            format!("the program asks for {count} bytes, {left} are left; it is cut short or damaged")
        })?;
        self.at += count;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let bytes = self.take(N)?;
        bytes.try_into().map_err(|_| "the program is cut short".to_string())
    }

    pub(super) fn byte(&mut self) -> Result<u8, String> {
        self.array().map(|[byte]| byte)
    }

    /// Reads a length or an index of this width.
    pub(super) fn length(&mut self, width: Width) -> Result<usize, String> {
        let length = match width {
            Width::One => u64::from(self.byte()?),
            Width::Four => u64::from(u32::from_le_bytes(self.array()?)),
            Width::Eight => u64::from_le_bytes(self.array()?),
        };
        usize::try_from(length).map_err(|e| e.to_string())
    }

    pub(super) fn line(&mut self) -> Result<&'a str, String> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let length = memchr::memchr(b'\n', rest).ok_or("a class name has no end")?;
        let line = self.take(length)?;
        self.at += 1;
        std::str::from_utf8(line).map_err(|_| "a class name is not UTF-8".into())
    }
}
