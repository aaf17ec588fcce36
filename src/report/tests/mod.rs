//! Tests over whole reports: what was put in is read back with other libraries.

mod fixture;
mod json;
mod text;
