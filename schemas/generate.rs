//! Writes the JSON Schemas of probe's public files into `schemas/`, and the types of the page into `web/src/report.ts`.

use std::path::Path;

fn main() -> std::io::Result<()> {
    write("schemas/manifest.schema.json", &probe::dump::native::manifest_schema())?;
    write("schemas/report.schema.json", &probe::report::model::report_schema())?;
    write("schemas/inspection.schema.json", &probe::report::inspection::model::inspection_schema())?;
    write("schemas/config.schema.json", &probe::report::config::model::config_schema())?;
    write("schemas/gate.schema.json", &probe::report::gate::model::gate_schema())?;
    write("schemas/peers.schema.json", &probe::report::peers::peers_schema())?;
    write("schemas/rollout.schema.json", &probe::report::rollout::rollout_schema())?;
    write("schemas/weights.schema.json", &probe::report::weights::weights_schema())?;
    write("schemas/baseline.schema.json", &probe::gate::baseline::baseline_schema())?;
    write("schemas/baseline-report.schema.json", &probe::report::baseline::baseline_report_schema())?;
    write("schemas/commands.schema.json", &probe::cli::commands::commands_schema())?;
    write("schemas/history.schema.json", &probe::report::history::history_schema())?;
    write("schemas/narrow.schema.json", &probe::report::narrow::narrow_schema())?;
    write("schemas/pack.schema.json", &probe::config_check::pack::pack_schema())?;
    write("web/src/report.ts", &probe::report::page_types())
}

/// A file that is as it was is left alone: the tests that embed it would be compiled again.
fn write(place: &str, text: &str) -> std::io::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(place);
    if std::fs::read_to_string(&path).is_ok_and(|before| before == text) {
        return Ok(());
    }
    std::fs::write(path, text)
}
