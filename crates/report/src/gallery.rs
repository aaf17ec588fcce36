//! Portraits (closer looks at values at fault) as stored in files: those of the first parts, and their JSON form.

use serde::Serialize;
use serde::ser::Serializer;

use probe_compare::{PartReport, Portrait};
use probe_measure::{ErrorBins, ErrorMap, Look, ValueBins};

/// Maximum number of portraits; the first parts are kept.
pub(super) const MAX_PORTRAITS: usize = 200;

/// Portraits with the parts they belong to, up to the limit.
#[derive(Debug, Default)]
pub(super) struct Gallery(Vec<(u64, u32, Portrait)>);

impl Gallery {
    /// Adds the portraits of a part.
    pub(super) fn add(&mut self, part: &PartReport<'_>) {
        let room = MAX_PORTRAITS.saturating_sub(self.0.len());
        let (step, rank) = (part.pair.step, part.pair.rank);
        self.0.extend(part.portraits.iter().take(room).map(|portrait| (step, rank, portrait.clone())));
    }

    /// Returns the portraits in the form stored in files.
    pub(super) fn wire(&self) -> Portraits<'_> {
        Portraits(&self.0)
    }
}

/// Portraits in the form stored in files.
#[derive(Debug)]
pub(super) struct Portraits<'a>(&'a [(u64, u32, Portrait)]);

impl Serialize for Portraits<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(Wire::of))
    }
}

/// A closer look at a value at fault.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Portrait"))]
pub(super) struct Wire<'a> {
    step: u64,
    rank: u32,
    order: usize,
    slot: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    elements: Option<Elements<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lanes: Option<Vec<f64>>,
}

/// A map of the errors, and the distributions of values and errors.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Elements<'a> {
    height: usize,
    width: usize,
    rows: usize,
    columns: usize,
    /// Null if only one side is NaN or infinite.
    cells: Vec<Option<f64>>,
    min: f64,
    max: f64,
    baseline: &'a [u64],
    candidate: &'a [u64],
    equal: u64,
    non_finite: u64,
    errors: &'a [u64],
}

impl<'a> Wire<'a> {
    fn of((step, rank, Portrait { order, slot, look }): &'a (u64, u32, Portrait)) -> Self {
        let (elements, lanes) = match look {
            Look::Lanes(lanes) => (None, Some(lanes.iter().map(|&lane| short(lane)).collect())),
            Look::Elements { map, values, errors } => (Some(Elements::of(map, values, errors)), None),
        };
        Self { step: *step, rank: *rank, order: *order, slot: *slot, elements, lanes }
    }
}

impl<'a> Elements<'a> {
    fn of(
        ErrorMap { height, width, rows, columns, cells }: &ErrorMap,
        ValueBins { min, max, baseline, candidate }: &'a ValueBins,
        ErrorBins { equal, non_finite, counts }: &'a ErrorBins,
    ) -> Self {
        Self {
            height: *height,
            width: *width,
            rows: *rows,
            columns: *columns,
            cells: cells.iter().map(|&cell| cell.is_finite().then(|| short(cell))).collect(),
            min: *min,
            max: *max,
            baseline,
            candidate,
            equal: *equal,
            non_finite: *non_finite,
            errors: counts,
        }
    }
}

/// Rounds to four digits, which is more than a picture can show.
fn short(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}
