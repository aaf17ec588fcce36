//! Tests over whole reports: their content is read back with other libraries.

mod documents;
pub(crate) mod fixture;
mod html;
mod json;
mod parquet;
mod set;
mod text;
mod xlsx;
