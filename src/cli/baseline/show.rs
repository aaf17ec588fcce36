//! `probe baseline show`.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;

use crate::cli::print::PrintFormat;
use crate::cli::{Exit, terminal};
use crate::dump::Exact;
use crate::gate::baseline::Baseline;
use crate::report::baseline::ShownReport;

/// Show what a baseline holds: scalars, values, set-up, and who changed it and why.
///
/// Exit codes: 0 shown, 2 failed or misused.
#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// The baseline.
    #[arg(value_name = "NAME.probe.json")]
    baseline: PathBuf,

    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: PrintFormat,
}

/// Runs the subcommand.
pub(super) fn run(args: &ShowArgs) -> anyhow::Result<Exit> {
    let baseline = Baseline::read(&args.baseline)?;
    let beside = |name: &String| super::folder(&args.baseline).join(name).exists();
    let found = baseline.sketches.as_ref().is_some_and(beside);
    if args.format == PrintFormat::Json {
        terminal::print(&ShownReport::of(&args.baseline, &baseline, found).text()?)?;
        return Ok(Exit::Agree);
    }
    let mut text = String::new();
    for (name, series) in &baseline.scalars {
        if let (Some((first, a)), Some((last, b))) = (series.first_key_value(), series.last_key_value()) {
            _ = writeln!(
                text,
                "{name}: {} steps, {} at step {first}, {} at step {last}",
                series.len(),
                Exact(*a),
                Exact(*b)
            );
        }
    }
    for part in &baseline.parts {
        _ = writeln!(text, "step {} rank {}: {} values", part.step, part.rank, part.values.len());
    }
    if let Some(sketches) = &baseline.sketches {
        _ = writeln!(text, "sketches: {sketches}{}", if found { "" } else { " (not here)" });
    }
    for (name, value) in &baseline.environment {
        _ = writeln!(text, "environment {name}: {value}");
    }
    for entry in &baseline.provenance {
        let commit = entry.commit.as_deref().map_or_else(String::new, |commit| format!(" at {commit:.12}"));
        _ = writeln!(
            text,
            "{} by {}{commit}: {} (from {})",
            entry.action,
            entry.by,
            entry.reason,
            entry.from.join(", ")
        );
        if let Some(reason) = &entry.nonfinite {
            _ = writeln!(text, "  NaN and infinities recorded: {reason}");
        }
        for moved in entry.changes.iter().take(3) {
            let value =
                |value: Option<Exact>| value.map_or_else(|| "nothing".to_owned(), |value| value.to_string());
            _ = writeln!(
                text,
                "  {} ({}): {} became {}",
                moved.name,
                moved.place,
                value(moved.old),
                value(moved.new)
            );
        }
    }
    terminal::print(&crate::report::visible::lines(&text))?;
    Ok(Exit::Agree)
}
