//! Overflow reports of the device: the payload of an op-debug file, in the current or the old format.

use std::fmt::Write as _;

/// Most bytes of a payload that are read.
pub(super) const MAX_BYTES: u64 = 2048;

/// Magic number of the current format.
const MAGIC: u32 = 0x5A5A_5A5A;

/// Size of the old format, which has no magic number.
const OLD_BYTES: usize = 2048;

/// One unit of the device that detected an overflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Overflow {
    /// The unit, such as `AI Core`.
    pub(super) unit: &'static str,
    /// Named numbers, in file order.
    pub(super) fields: Vec<(&'static str, u64)>,
}

impl Overflow {
    /// Returns the number called `name`.
    pub(super) fn field(&self, name: &str) -> Option<u64> {
        self.fields.iter().find(|field| field.0 == name).map(|field| field.1)
    }
}

impl std::fmt::Display for Overflow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::new();
        for &(name, value) in &self.fields {
            let address = matches!(name, "pc_start" | "para_base" | "src_addr" | "dst_addr");
            let hexadecimal = address || name.starts_with("status");
            let gap = if text.is_empty() { "" } else { ", " };
            if hexadecimal {
                write!(text, "{gap}{name} {value:#x}")?;
            } else {
                write!(text, "{gap}{name} {value}")?;
            }
        }
        write!(f, "{}: {text}", self.unit)
    }
}

/// Fields of the AI Core and the vector core; any further status words are those of version 1.
const CORE: [&str; 14] = [
    "model_id",
    "stream_id",
    "task_id",
    "task_type",
    "context_id",
    "thread_id",
    "pc_start",
    "para_base",
    "core_id",
    "block_id",
    "status",
    "status_1",
    "status_2",
    "status_3",
];
const AICPU: [&str; 8] =
    ["model_id", "stream_id", "task_id", "task_type", "context_id", "cpu_id", "thread_id", "status"];
const SDMA: [&str; 10] = [
    "model_id",
    "stream_id",
    "task_id",
    "task_type",
    "context_id",
    "thread_id",
    "src_addr",
    "dst_addr",
    "channel_id",
    "status",
];

/// Reads a payload. In the old format each unit with a nonzero status is one overflow; there may be
/// none.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<Overflow>, String> {
    if word(bytes, 0) == Some(MAGIC) {
        return new_form(bytes).map(|overflow| overflow.into_iter().collect());
    }
    if bytes.len() == OLD_BYTES {
        return Ok(old_form(bytes));
    }
    Err(format!(
        "an overflow record has {OLD_BYTES} bytes or begins with {MAGIC:#x}; these are {} other bytes",
        bytes.len()
    ))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

fn wide(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

/// Returns `None` if nothing is marked as valid.
fn new_form(bytes: &[u8]) -> Result<Option<Overflow>, String> {
    let at = |index: usize| word(bytes, 4 * index).ok_or_else(|| format!("ends after {} bytes", bytes.len()));
    let (version, valid, kind, length) = (at(1)?, at(2)?, at(3)?, at(5)?);
    if valid != 1 {
        return Ok(None);
    }
    let cores = if version >= 1 { &CORE[..] } else { &CORE[..11] };
    let (unit, names) = match kind {
        0 => ("AI Core", cores),
        1 => ("vector core", cores),
        2 => ("AI CPU", &AICPU[..]),
        3 => ("SDMA", &SDMA[..]),
        other => return Err(format!("a unit of unknown kind {other}")),
    };
    if length as usize != 8 * names.len() {
        return Err(format!("{unit} of version {version} needs {} bytes, not {length}", 8 * names.len()));
    }
    let field = |(index, &name): (usize, &&'static str)| {
        let value = wide(bytes, 24 + 8 * index);
        value.map(|value| (name, value)).ok_or_else(|| format!("ends before {name}"))
    };
    let fields = names.iter().enumerate().map(field).collect::<Result<_, _>>()?;
    Ok(Some(Overflow { unit, fields }))
}

/// Reads two atomic-add units and the AI Core, at fixed offsets.
fn old_form(bytes: &[u8]) -> Vec<Overflow> {
    const PLACE: [&str; 6] = ["model_id", "stream_id", "task_id", "task_type", "pc_start", "para_base"];
    let at = |offset: usize| wide(bytes, offset).unwrap_or(0);
    let units = [
        ("DHA atomic add", 0, &["status"][..], 512),
        ("L2 atomic add", 128, &["status"][..], 768),
        ("AI Core", 256, &["kernel_code", "block_idx", "status"][..], 1024),
    ];
    let overflow = |(unit, place, names, status): (&'static str, usize, &'static [&'static str], usize)| {
        let place = PLACE.iter().enumerate().map(|(index, &name)| (name, at(place + 8 * index)));
        let status = names.iter().enumerate().map(|(index, &name)| (name, at(status + 8 * index)));
        Overflow { unit, fields: place.chain(status).collect() }
    };
    units.into_iter().map(overflow).filter(|overflow| overflow.field("status") != Some(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(kind: u32, version: u32, fields: u64) -> Vec<u8> {
        let words = [MAGIC, version, 1, kind, 0, u32::try_from(8 * fields).unwrap()];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend((0..fields).flat_map(|value| (value + 1).to_le_bytes()));
        bytes
    }

    #[test]
    fn every_unit_of_the_new_form_is_read() {
        for (kind, version, count, unit, status) in [
            (0, 0, 11, "AI Core", 11),
            (0, 1, 14, "AI Core", 11),
            (1, 1, 14, "vector core", 11),
            (2, 0, 8, "AI CPU", 8),
            (3, 1, 10, "SDMA", 10),
        ] {
            let mut bytes = new(kind, version, count);
            // Padding follows.
            bytes.extend([0; 32]);
            let [found] = &read(&bytes).unwrap()[..] else { panic!("one overflow") };
            assert_eq!((found.unit, found.field("status")), (unit, Some(status)));
            assert_eq!((found.field("stream_id"), found.field("task_id")), (Some(2), Some(3)));
        }
        let text = read(&new(3, 0, 10)).unwrap()[0].to_string();
        assert!(text.starts_with("SDMA: model_id 1, stream_id 2") && text.contains("src_addr 0x7"), "{text}");
    }

    #[test]
    fn what_is_not_valid_or_no_overflow_is_told_apart() {
        let mut idle = new(0, 0, 11);
        idle[8] = 0;
        assert_eq!(read(&idle).unwrap(), []);
        assert_eq!(read(&[0; OLD_BYTES]).unwrap(), []);
        let mut old = vec![0; OLD_BYTES];
        old[256 + 16] = 9;
        old[1024 + 16] = 4;
        let [found] = &read(&old).unwrap()[..] else { panic!("one overflow") };
        assert_eq!(
            (found.unit, found.field("task_id"), found.field("status")),
            ("AI Core", Some(9), Some(4))
        );
        for (bytes, message) in [
            (vec![], "these are 0 other bytes"),
            (vec![0; 100], "these are 100 other bytes"),
            (new(9, 0, 11), "a unit of unknown kind 9"),
            (new(0, 0, 14), "AI Core of version 0 needs 88 bytes, not 112"),
            (new(0, 0, 11)[..40].to_vec(), "ends before task_id"),
            (new(0, 0, 11)[..14].to_vec(), "ends after 14 bytes"),
        ] {
            let error = read(&bytes).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }
}
