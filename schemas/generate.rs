//! Writes the JSON Schemas of probe's machine-readable reports into `schemas/`.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas");
    std::fs::write(folder.join("report.schema.json"), probe::report::model::report_schema())
}
