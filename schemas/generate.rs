//! Writes the JSON Schemas of what probe writes and reads for others into `schemas/`.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas");
    #[cfg(feature = "native")]
    std::fs::write(folder.join("manifest.schema.json"), probe::dump::native::manifest_schema())?;
    std::fs::write(folder.join("report.schema.json"), probe::report::model::report_schema())?;
    std::fs::write(
        folder.join("inspection.schema.json"),
        probe::report::inspection::model::inspection_schema(),
    )?;
    std::fs::write(folder.join("config.schema.json"), probe::report::config::model::config_schema())?;
    std::fs::write(folder.join("gate.schema.json"), probe::report::gate::model::gate_schema())?;
    std::fs::write(folder.join("peers.schema.json"), probe::report::peers::peers_schema())?;
    std::fs::write(folder.join("baseline.schema.json"), probe::gate::baseline::baseline_schema())?;
    std::fs::write(
        folder.join("baseline-report.schema.json"),
        probe::report::baseline::baseline_report_schema(),
    )?;
    std::fs::write(folder.join("commands.schema.json"), probe::report::commands::commands_schema())?;
    std::fs::write(folder.join("history.schema.json"), probe::report::history::history_schema())?;
    std::fs::write(folder.join("narrow.schema.json"), probe::report::narrow::narrow_schema())?;
    std::fs::write(folder.join("pack.schema.json"), probe::config_check::pack::pack_schema())
}
