//! What the page is told beside the columns: which view it is, the report, the names of the columns.

use serde::Serialize;

use super::pack::{ColumnNames, columns};
use crate::report::gallery::Portraits;
use crate::report::model::{Report, SCHEMA_VERSION, Tool};

/// The last piece of data of a page.
#[derive(Debug, Serialize)]
pub(super) struct Head<'a, R: Serialize> {
    /// The view: `compare` or `config`.
    kind: &'static str,
    schema_version: u32,
    tool: Tool,
    columns: Option<ColumnNames>,
    data: &'a R,
}

/// What the view of a comparison reads.
#[derive(Debug, Serialize)]
pub(super) struct Comparison<'a> {
    pub(super) report: Report<'a>,
    pub(super) portraits: Portraits<'a>,
}

impl<'a, R: Serialize> Head<'a, R> {
    /// A view without columns.
    pub(super) fn of(kind: &'static str, data: &'a R) -> Self {
        Self { kind, schema_version: SCHEMA_VERSION, tool: Tool::THIS, columns: None, data }
    }

    /// The view of a comparison.
    pub(super) fn comparison(data: &'a R) -> Self {
        Self { columns: Some(columns()), ..Self::of("compare", data) }
    }
}
