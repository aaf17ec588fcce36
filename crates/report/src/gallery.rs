//! Portraits (closer looks at values at fault) as stored in files: those of the first parts, and their JSON form.

use serde::Serialize;
use serde::ser::{SerializeSeq as _, Serializer};

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
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for (step, rank, Portrait { order, slot, look }) in self.0 {
            list.serialize_element(&Wire {
                step: *step,
                rank: *rank,
                order: *order,
                slot: *slot,
                look: look.into(),
            })?;
        }
        list.end()
    }
}

#[derive(Debug, Serialize)]
struct Wire<'a> {
    step: u64,
    rank: u32,
    order: usize,
    slot: usize,
    #[serde(flatten)]
    look: WireLook<'a>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum WireLook<'a> {
    Elements {
        height: usize,
        width: usize,
        rows: usize,
        columns: usize,
        /// Null where only one side is NaN or infinite.
        cells: Vec<Option<f64>>,
        min: f64,
        max: f64,
        baseline: &'a [u64],
        candidate: &'a [u64],
        equal: u64,
        non_finite: u64,
        errors: &'a [u64],
    },
    Lanes(Vec<f64>),
}

impl<'a> From<&'a Look> for WireLook<'a> {
    fn from(look: &'a Look) -> Self {
        match look {
            Look::Lanes(lanes) => Self::Lanes(lanes.iter().map(|&lane| short(lane)).collect()),
            Look::Elements {
                map: ErrorMap { height, width, rows, columns, cells },
                values: ValueBins { min, max, baseline, candidate },
                errors: ErrorBins { equal, non_finite, counts },
            } => Self::Elements {
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
            },
        }
    }
}

/// Rounds to four digits, which is more than a picture can show.
fn short(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}
