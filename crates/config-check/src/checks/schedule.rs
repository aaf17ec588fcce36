//! Learning-rate schedule.

use super::rows::Rows;
use super::settings;
use crate::expectations::Ruling;
use crate::pack::{Schedule, Setting};
use crate::part::Verdict;

/// Largest number of rates shown from a schedule.
const SHOWN: usize = 6;

/// Compares two schedules.
pub(super) fn check(rows: &mut Rows<'_>, a: &Schedule, b: &Schedule) {
    rows.text("class", &a.class, &b.class);
    rates(rows, a, b);
    let state = |side: &Schedule| -> Vec<(String, Setting)> {
        let leaves = side.state.leaves().into_iter();
        leaves.map(|(key, value)| (format!("state.{key}"), value.clone())).collect()
    };
    settings::compare(rows, state(a), state(b));
}

fn rates(rows: &mut Rows<'_>, a: &Schedule, b: &Schedule) {
    let shown = |side: &Schedule| {
        let rates: Vec<String> = side.rates.iter().take(SHOWN).map(|rates| format!("{rates:?}")).collect();
        let more = if side.rates.len() > SHOWN { ", ..." } else { "" };
        (!rates.is_empty()).then(|| format!("{}{more}", rates.join(", ")))
    };
    let (x, y) = (shown(a), shown(b));
    if x.is_none() || y.is_none() {
        if x.is_some() || y.is_some() {
            rows.one_sided("rates", x, y);
        }
        return;
    }
    let allowed = rows.limits().rates;
    let same = |x: &Vec<f64>, y: &Vec<f64>| {
        x.len() == y.len() && x.iter().zip(y).all(|(x, y)| (x - y).abs() <= allowed * x.abs().max(y.abs()))
    };
    let parting = a.rates.iter().zip(&b.rates).position(|(x, y)| !same(x, y));
    let ruling = match parting {
        Some(step) => {
            let default = rows.default_ruling(true);
            let at =
                |side: &Schedule| side.rates.get(step).map_or_else(String::new, |rates| format!("{rates:?}"));
            let why = format!("from step {step} on: {} against {}: {}", at(a), at(b), default.why);
            Ruling { why, ..default }
        }
        None if a.rates.len() == b.rates.len() => {
            Ruling::new(Verdict::Match, format!("the rates of the first {} steps", a.rates.len()))
        }
        None => {
            let common = a.rates.len().min(b.rates.len());
            Ruling::new(Verdict::Match, format!("the rates of the {common} steps that both sides recorded"))
        }
    };
    rows.push("rates", x, y, ruling);
}
