//! Numbers formatted for people. Machine formats hold exact values and do not use this module.

use std::fmt::Write as _;

use probe_dump::Exact;
use probe_measure::Metric;

/// Formats a number such as `1,830`.
pub(crate) fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a count such as `1 op` or `1,830 ops`.
pub fn counted(value: u64, noun: &str) -> String {
    format!("{} {noun}{}", thousands(value), if value == 1 { "" } else { "s" })
}

/// Formats a metric in about eight characters: `1.23e-5` for errors, `0.999950` for shares and the cosine; `-` if
/// unknown.
pub(crate) fn metric(metric: Metric, value: Option<f64>) -> String {
    let Some(value) = value else { return "-".into() };
    if let Some(word) = Exact(value).word() {
        return word.into();
    }
    match metric {
        // Exactly 1 must look different from nearly 1.
        Metric::Cosine | Metric::Within1e3 | Metric::Within5e3 if is_whole(value) => format!("{value:.0}"),
        Metric::Cosine | Metric::Within1e3 | Metric::Within5e3 => format!("{value:.6}"),
        _ if is_whole(value) && value.abs() < 1e6 => format!("{value:.0}"),
        _ if (1.0..1e5).contains(&value.abs()) => format!("{value:.2}"),
        _ => format!("{value:.2e}"),
    }
}

/// Formats an element of a tensor with as many digits as distinguish it from its neighbours, in binary32 if it is a
/// binary32 value.
pub(crate) fn element(value: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "whether anything is lost is what is asked")]
    let narrow = value as f32;
    let plain = value.to_bits() == 0 || (1e-4..1e7).contains(&value.abs());
    match (f64::from(narrow).to_bits() == value.to_bits(), plain) {
        (true, true) => format!("{narrow}"),
        (true, false) => format!("{narrow:e}"),
        (false, true) => format!("{value}"),
        (false, false) => format!("{value:e}"),
    }
}

/// Returns true for numbers without a fraction.
pub(crate) fn is_whole(value: f64) -> bool {
    value.fract().abs().to_bits() == 0
}

/// Formats a size such as `1.5 GiB`.
pub(crate) fn bytes(value: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if value < 1024 {
        return counted(value, "byte");
    }
    let mut scaled = value as f64 / 1024.0;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    format!("{scaled:.1} {}", UNITS[unit])
}

/// Formats a list such as `0, 1, 2`, with runs of more than two as `0-7`.
pub(crate) fn ranges<T: Into<u64> + Copy>(values: &[T]) -> String {
    let mut out = String::new();
    let mut rest = values.iter().map(|&value| value.into()).peekable();
    while let Some(start) = rest.next() {
        let mut end: u64 = start;
        while let Some(next) = rest.next_if(|&next| end.checked_add(1) == Some(next)) {
            end = next;
        }
        let lead = if out.is_empty() { "" } else { ", " };
        _ = match end - start {
            0 => write!(out, "{lead}{start}"),
            1 => write!(out, "{lead}{start}, {end}"),
            _ => write!(out, "{lead}{start}-{end}"),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_people_write_them() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(1830), "1,830");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(counted(1, "op"), "1 op");
        assert_eq!(bytes(1023), "1,023 bytes");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
        assert_eq!(ranges(&[0_u32, 1, 2, 3, 7, 9, 10]), "0-3, 7, 9, 10");
        assert_eq!(ranges::<u64>(&[]), "");
        assert_eq!(ranges(&[u64::MAX]), u64::MAX.to_string());
    }

    #[test]
    fn elements_have_the_digits_of_their_type() {
        assert_eq!(element(f64::from(0.1_f32)), "0.1");
        assert_eq!(element(0.1), "0.1");
        assert_eq!(element(1.0 / 3.0), "0.3333333333333333");
        assert_eq!(element(f64::from(-3e-9_f32)), "-3e-9");
        assert_eq!((element(0.0), element(12.0), element(1e30)), ("0".into(), "12".into(), "1e30".into()));
    }

    #[test]
    fn metrics_show_no_noise() {
        assert_eq!(metric(Metric::RelL2, Some(0.010_000_123)), "1.00e-2");
        assert_eq!(metric(Metric::RelL2, Some(0.0)), "0");
        assert_eq!(metric(Metric::Cosine, Some(0.999_950_1)), "0.999950");
        assert_eq!(metric(Metric::Cosine, Some(1.0)), "1");
        assert_eq!(metric(Metric::MaxUlp, Some(12.0)), "12");
        assert_eq!(metric(Metric::RelL2, Some(f64::INFINITY)), "Infinity");
        assert_eq!(metric(Metric::RelL2, None), "-");
    }
}
