//! Protobuf wire format: the fields of one message in sequence, independent of any message
//! definition.
//!
//! Varints, length-delimited fields, and the rule for skipping the rest by wire type; groups do not exist in proto3 and are
//! rejected. Nothing is copied, and every length is checked against the available bytes before use.

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// Wire type 0.
    Varint(u64),
    /// Wire type 2, with the offset of its first byte.
    Bytes(Message<'a>),
    /// Wire types 1 and 5, which no supported field uses.
    Fixed,
}

/// A field without its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    /// Wire type 0.
    Varint(u64),
    /// Wire types 1 and 5: that many bytes follow.
    Fixed(u64),
    /// Wire type 2: that many bytes follow.
    Bytes(u64),
}

/// Returns number and kind of the field that begins with `bytes`, and the number of bytes before its content. `start` is
/// the offset in the file.
///
/// # Errors
/// [`WireError`] when the bytes are no field.
pub(crate) fn header(bytes: &[u8], start: u64) -> Result<(u32, Field, usize), WireError> {
    let mut fields = Message { bytes, start }.fields();
    let (number, field) = fields.header()?;
    Ok((number, field, fields.at))
}

/// Bytes of a message, and their offset in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) start: u64,
}

/// An error, with the file offset at which it occurred.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("byte {at}: {what}")]
pub(crate) struct WireError {
    pub(crate) at: u64,
    pub(crate) what: String,
}

/// Iterates over the fields of a message.
#[derive(Debug, Clone)]
pub(crate) struct Fields<'a> {
    message: Message<'a>,
    at: usize,
}

impl<'a> Message<'a> {
    /// Returns the fields of the message.
    pub(crate) const fn fields(self) -> Fields<'a> {
        Fields { message: self, at: 0 }
    }

    /// Calls `each` with every number of a packed repeated field.
    pub(crate) fn packed(self, mut each: impl FnMut(u64) -> Result<(), WireError>) -> Result<(), WireError> {
        let mut fields = self.fields();
        while fields.at < self.bytes.len() {
            each(fields.varint()?)?;
        }
        Ok(())
    }

    /// Returns an error at the first byte of the message.
    pub(crate) fn error(self, what: impl Into<String>) -> WireError {
        WireError { at: self.start, what: what.into() }
    }
}

impl<'a> Fields<'a> {
    /// Returns number and value of the next field; `None` at the end of the message.
    pub(crate) fn next(&mut self) -> Result<Option<(u32, Value<'a>)>, WireError> {
        if self.at >= self.message.bytes.len() {
            return Ok(None);
        }
        let start = self.at;
        let (number, field) = self.header()?;
        let value = match field {
            Field::Varint(value) => Value::Varint(value),
            Field::Fixed(size) => self.take(size, start).map(|_| Value::Fixed)?,
            Field::Bytes(length) => Value::Bytes(self.take(length, start)?),
        };
        Ok(Some((number, value)))
    }

    /// Reads a tag, and the number or length behind it.
    fn header(&mut self) -> Result<(u32, Field), WireError> {
        let start = self.at;
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).ok().filter(|&number| number > 0 && number < 1 << 29);
        let Some(number) = number else {
            return Err(self.error(start, format!("{} is not the number of a field", tag >> 3)));
        };
        let field = match tag & 7 {
            0 => Field::Varint(self.varint()?),
            1 => Field::Fixed(8),
            5 => Field::Fixed(4),
            2 => Field::Bytes(self.varint()?),
            other => {
                return Err(self.error(start, format!("wire type {other} of field {number} is not in use")));
            }
        };
        Ok((number, field))
    }

    fn varint(&mut self) -> Result<u64, WireError> {
        let start = self.at;
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let Some(&byte) = self.message.bytes.get(self.at) else {
                return Err(self.error(start, "a number is cut off at the end of its message"));
            };
            self.at += 1;
            let bits = u64::from(byte & 0x7F);
            if shift == 63 && bits > 1 {
                return Err(self.error(start, "a number has more than 64 bits"));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.error(start, "a number has more than ten bytes"))
    }

    fn take(&mut self, length: u64, start: usize) -> Result<Message<'a>, WireError> {
        let left = self.message.bytes.len() - self.at;
        let taken = usize::try_from(length).ok().filter(|&length| length <= left);
        let Some(taken) = taken else {
            return Err(self.error(start, format!("a field of {length} bytes in a message with {left} left")));
        };
        let bytes = self.message.bytes.get(self.at..self.at + taken).unwrap_or(&[]);
        let message = Message { bytes, start: self.message.start + self.at as u64 };
        self.at += taken;
        Ok(message)
    }

    fn error(&self, at: usize, what: impl Into<String>) -> WireError {
        WireError { at: self.message.start + at as u64, what: what.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<(u32, Value<'_>)>, String> {
        let mut fields = Message { bytes, start: 8 }.fields();
        let mut found = Vec::new();
        while let Some(field) = fields.next().map_err(|error| error.to_string())? {
            found.push(field);
        }
        Ok(found)
    }

    #[test]
    fn every_wire_type_is_read_or_skipped() {
        let bytes =
            [&[0x08, 0x96, 0x01][..], &[0x11, 0, 0, 0, 0, 0, 0, 0, 0], &[0x1D, 0, 0, 0, 0], b"\x22\x02ab"];
        let text = Value::Bytes(Message { bytes: b"ab", start: 27 });
        assert_eq!(
            all(&bytes.concat()).unwrap(),
            [(1, Value::Varint(150)), (2, Value::Fixed), (3, Value::Fixed), (4, text)]
        );
        assert_eq!(all(&[]).unwrap(), []);
        let most = [&[0x08][..], &[0xFF; 9], &[0x01]].concat();
        assert_eq!(all(&most).unwrap(), [(1, Value::Varint(u64::MAX))]);
    }

    #[test]
    fn what_breaks_the_rules_says_where() {
        for (bytes, message) in [
            (&[0x08][..], "byte 9: a number is cut off at the end of its message"),
            (&[0x08, 0x80], "byte 9: a number is cut off at the end of its message"),
            (&[0x0B], "byte 8: wire type 3 of field 1 is not in use"),
            (&[0x08, 1, 0x0C], "byte 10: wire type 4 of field 1 is not in use"),
            (&[0x00, 1], "byte 8: 0 is not the number of a field"),
            (&[0x0A, 5, 1], "byte 8: a field of 5 bytes in a message with 1 left"),
            (&[0x09, 1, 2], "byte 8: a field of 8 bytes in a message with 2 left"),
            (
                &[0x08, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1],
                "byte 9: a number has more than 64 bits",
            ),
            (
                &[0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0],
                "byte 9: a number has more than ten bytes",
            ),
        ] {
            assert_eq!(all(bytes).unwrap_err(), message, "{bytes:?}");
        }
    }
}
