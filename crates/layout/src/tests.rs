//! Layouts of pieces cut from known values.
