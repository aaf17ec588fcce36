//! Numbers in JSON as loggers of tensors write them: nested one level deep or not, with words for what is not finite.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

/// A number, or the word that [`probe_read::msprobe::with_quoted_numbers`] makes of a bare `NaN` or `Infinity`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Real(pub(super) f64);

impl<'de> Deserialize<'de> for Real {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RealVisitor)
    }
}

struct RealVisitor;

impl Visitor<'_> for RealVisitor {
    type Value = Real;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }
    fn visit_f64<E>(self, value: f64) -> Result<Real, E> {
        Ok(Real(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Real, E> {
        Ok(Real(value as f64))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Real, E> {
        Ok(Real(value as f64))
    }
    fn visit_bool<E>(self, value: bool) -> Result<Real, E> {
        Ok(Real(f64::from(u8::from(value))))
    }
    fn visit_unit<E>(self) -> Result<Real, E> {
        Ok(Real(f64::NAN))
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Real, E> {
        text.parse().map(Real).map_err(|_| E::custom(format!("expected a number, found {text:?}")))
    }
}

/// A whole number that is not below 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Whole(pub(super) u64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WholeVisitor)
    }
}

struct WholeVisitor;

impl Visitor<'_> for WholeVisitor {
    type Value = Whole;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number of 0 or more")
    }
    fn visit_u64<E>(self, value: u64) -> Result<Whole, E> {
        Ok(Whole(value))
    }
}

/// Rows of numbers. A single number is one row of one, a flat list is one row.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Rows(pub(super) Vec<Vec<f64>>);

impl<'de> Deserialize<'de> for Rows {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RowsVisitor)
    }
}

struct RowsVisitor;

impl<'de> Visitor<'de> for RowsVisitor {
    type Value = Rows;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("numbers, or rows of numbers")
    }
    fn visit_f64<E>(self, value: f64) -> Result<Rows, E> {
        Ok(Rows(vec![vec![value]]))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Rows, E> {
        Ok(Rows(vec![vec![value as f64]]))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Rows, E> {
        Ok(Rows(vec![vec![value as f64]]))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Rows, A::Error> {
        let mut rows: Vec<Vec<f64>> = Vec::new();
        let mut flat: Vec<f64> = Vec::new();
        while let Some(item) = items.next_element::<Item>()? {
            match item {
                Item::One(value) => flat.push(value),
                Item::Row(row) => rows.push(row),
            }
        }
        match (rows.is_empty(), flat.is_empty()) {
            (true, _) => Ok(Rows(vec![flat])),
            (false, true) => Ok(Rows(rows)),
            (false, false) => Err(A::Error::custom("expected numbers or lists of numbers, found both")),
        }
    }
}

enum Item {
    One(f64),
    Row(Vec<f64>),
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ItemVisitor)
    }
}

struct ItemVisitor;

impl<'de> Visitor<'de> for ItemVisitor {
    type Value = Item;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number or a list of numbers")
    }
    fn visit_f64<E>(self, value: f64) -> Result<Item, E> {
        Ok(Item::One(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Item, E> {
        Ok(Item::One(value as f64))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Item, E> {
        Ok(Item::One(value as f64))
    }
    fn visit_bool<E>(self, value: bool) -> Result<Item, E> {
        Ok(Item::One(f64::from(u8::from(value))))
    }
    fn visit_unit<E>(self) -> Result<Item, E> {
        Ok(Item::One(f64::NAN))
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Item, E> {
        RealVisitor.visit_str(text).map(|real| Item::One(real.0))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Item, A::Error> {
        let mut row = Vec::new();
        while let Some(Real(value)) = items.next_element()? {
            row.push(value);
        }
        Ok(Item::Row(row))
    }
}

/// Returns the id of a token that a file states as a number.
pub(super) fn id(value: f64) -> Result<u32, String> {
    const END: f64 = u32::MAX as f64;
    if value.fract().abs().to_bits() != 0 || !(0.0..END).contains(&value) {
        return Err(format!("{value} is not the id of a token"));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the range checked")]
    Ok(value as u32)
}

/// Returns the number of an expert that a file states as a number.
pub(super) fn expert(value: f64) -> Result<u16, String> {
    let expert = id(value).ok().and_then(|id| u16::try_from(id).ok());
    expert.ok_or_else(|| format!("{value} is not an expert"))
}

/// Returns a log-probability as it is kept.
#[expect(clippy::cast_possible_truncation, reason = "log-probabilities are recorded in binary32")]
pub(crate) const fn narrow(value: f64) -> f32 {
    value as f32
}

/// Returns a place or a length; readers check lengths against the limit of tokens before.
pub(super) fn place(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
