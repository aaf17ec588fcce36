//! What the page is told beside the columns: which view it is, the report, the names of the columns.

use serde::Serialize;
use serde_json::value::RawValue;

use super::pack::{ColumnNames, columns};
use crate::gallery::Portraits;
use crate::model::{Report, SCHEMA_VERSION, Tool};

/// The last piece of data of a page.
#[derive(Debug, Serialize)]
pub(super) struct Head<'a, R: Serialize> {
    /// The view: `compare`, `config` or `gate`.
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
    pub(super) portraits: Looks<'a>,
}

/// Closer looks at values at fault.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Looks<'a> {
    /// Of parts that were just compared.
    Live(Portraits<'a>),
    /// Of parts that were compared before.
    Stored(&'a [Box<RawValue>]),
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
