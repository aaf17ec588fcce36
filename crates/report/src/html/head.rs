//! Page data other than the columns: the view to show, the report, and the column names.

use serde::Serialize;
use serde_json::value::RawValue;

use super::pack::{ColumnNames, columns};
use crate::gallery::Portraits;
use crate::model::{Report, SCHEMA_VERSION, Tool};
use crate::replays::Replay;

/// The last data element of a page.
#[derive(Debug, Serialize)]
pub(super) struct Head<'a, R: Serialize> {
    /// The view: `compare`, `config`, `gate` or `rollout`.
    kind: &'static str,
    schema_version: u32,
    tool: Tool,
    columns: Option<ColumnNames>,
    data: &'a R,
}

/// Data of the page of a comparison.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Comparison<'a> {
    pub(super) report: Report<'a>,
    #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::gallery::Wire<'static>>"))]
    pub(super) portraits: Looks<'a>,
    /// Calls that were run again since.
    pub(super) replays: &'a [Replay],
}

/// Portraits (closer looks at values at fault).
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Looks<'a> {
    /// Portraits of parts that were just compared.
    Live(Portraits<'a>),
    /// Portraits of parts that were compared earlier.
    Stored(&'a [Box<RawValue>]),
}

impl<'a, R: Serialize> Head<'a, R> {
    /// Creates the head of a view without columns.
    pub(super) fn of(kind: &'static str, data: &'a R) -> Self {
        Self { kind, schema_version: SCHEMA_VERSION, tool: Tool::THIS, columns: None, data }
    }

    /// Creates the head of the comparison view.
    pub(super) fn comparison(data: &'a R) -> Self {
        Self { columns: Some(columns()), ..Self::of("compare", data) }
    }
}
