//! Writes the JSON Schemas of probe's machine-readable reports into `schemas/`.

fn main() {}
