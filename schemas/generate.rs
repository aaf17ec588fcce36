//! Writes the JSON Schemas of what probe writes and reads for others into `schemas/`.

use std::path::Path;

fn main() -> std::io::Result<()> {
    write("manifest", &probe::dump::native::manifest_schema())?;
    write("report", &probe::report::model::report_schema())?;
    write("inspection", &probe::report::inspection::model::inspection_schema())?;
    write("config", &probe::report::config::model::config_schema())?;
    write("gate", &probe::report::gate::model::gate_schema())?;
    write("peers", &probe::report::peers::peers_schema())?;
    write("rollout", &probe::report::rollout::rollout_schema())?;
    write("weights", &probe::report::weights::weights_schema())?;
    write("baseline", &probe::gate::baseline::baseline_schema())?;
    write("baseline-report", &probe::report::baseline::baseline_report_schema())?;
    write("commands", &probe::cli::commands::commands_schema())?;
    write("history", &probe::report::history::history_schema())?;
    write("narrow", &probe::report::narrow::narrow_schema())?;
    write("pack", &probe::config_check::pack::pack_schema())
}

/// A schema that is as it was is left alone: the tests that embed it would be compiled again.
fn write(name: &str, schema: &str) -> std::io::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas").join(format!("{name}.schema.json"));
    if std::fs::read_to_string(&path).is_ok_and(|before| before == schema) {
        return Ok(());
    }
    std::fs::write(path, schema)
}
