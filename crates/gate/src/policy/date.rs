//! Calendar dates.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// A day of the calendar, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date {
    year: i64,
    month: u8,
    day: u8,
}

impl Date {
    /// The earliest day.
    pub const FIRST: Self = Self { year: 0, month: 1, day: 1 };

    /// Creates a day; `None` if it is not in the calendar.
    pub fn new(year: u16, month: u8, day: u8) -> Option<Self> {
        let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let days = match month {
            4 | 6 | 9 | 11 => 30,
            2 if leap => 29,
            2 => 28,
            1..=12 => 31,
            _ => return None,
        };
        (1..=days).contains(&day).then_some(Self { year: year.into(), month, day })
    }

    /// Returns today.
    pub fn today() -> Self {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self::of_day(i64::try_from(seconds / 86_400).unwrap_or(0))
    }

    /// Returns the day this many days after 1970-01-01. The calendar repeats every 146,097 days, and years begin in March here, so that the
    /// leap day comes last (Hinnant, "chrono-compatible low-level date algorithms").
    fn of_day(days: i64) -> Self {
        let days = days + 719_468;
        let era = days.div_euclid(146_097);
        let day_of_era = days.rem_euclid(146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let small = |number: i64| u8::try_from(number).unwrap_or(0);
        Self { year: year_of_era + era * 400 + i64::from(month <= 2), month: small(month), day: small(day) }
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (day, text) in [
            (0, "1970-01-01"),
            (58, "1970-02-28"),
            (11_016, "2000-02-29"),
            (20_781, "2026-11-24"),
            (47_540, "2100-02-28"),
            (47_541, "2100-03-01"),
        ] {
            assert_eq!(Date::of_day(day).to_string(), text);
        }
        assert_eq!(Date::new(2026, 11, 24), Some(Date::of_day(20_781)));
        assert_eq!(Date::new(2026, 2, 29), None);
        assert_eq!(Date::new(2024, 2, 29).map(|day| day.to_string()).as_deref(), Some("2024-02-29"));
        assert!(Date::today() > Date::of_day(20_000));
    }
}
