//! Tests over whole reports: what was put in is read back with other libraries.

mod documents;
mod fixture;
#[cfg(all(feature = "html", feature = "parquet"))]
mod html;
mod json;
#[cfg(feature = "parquet")]
mod parquet;
mod set;
mod text;
#[cfg(feature = "xlsx")]
mod xlsx;
