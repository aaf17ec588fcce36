//! `probe baseline diff`.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;

use super::side;
use crate::cli::compare::pool;
use crate::cli::print::PrintFormat;
use crate::cli::{Exit, terminal};
use crate::dump::Exact;
use crate::gate::baseline::Comparison;
use crate::report::baseline::DiffReport;

/// Show which scalars and modules moved between two baselines or runs, and by how much; nothing is judged.
///
/// Exit codes: 0 equal, 1 something differs, 2 failed or misused.
#[derive(Debug, Args)]
pub(super) struct DiffArgs {
    /// The older one: a baseline, a dump or a file of scalars.
    #[arg(value_name = "OLD")]
    old: PathBuf,

    /// The newer one.
    #[arg(value_name = "NEW")]
    new: PathBuf,

    /// Names to list.
    #[arg(long, default_value_t = 20)]
    top: usize,

    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: PrintFormat,
}

/// Runs the subcommand.
pub(super) fn run(args: &DiffArgs) -> anyhow::Result<Exit> {
    let (old, new) = pool(None)?.install(|| anyhow::Ok((side(&args.old)?, side(&args.new)?)))?;
    let found = Comparison::of(&old, &new);
    terminal::print(&match args.format {
        PrintFormat::Json => DiffReport::of(&found).text()?,
        PrintFormat::Text => crate::report::visible::lines(&text(&found, args.top)),
    })?;
    Ok(if found.different == 0 && found.environment.is_empty() { Exit::Agree } else { Exit::Differ })
}

/// Lists the differences, largest change first.
pub(super) fn text(found: &Comparison, top: usize) -> String {
    let differ = if found.different == 1 { "value differs" } else { "values differ" };
    let mut text = format!("{} {differ}, {} equal\n", found.different, found.equal);
    let value = |value: Option<Exact>| value.map_or_else(|| "nothing".to_owned(), |value| value.to_string());
    for (change, moved) in found.moved.iter().take(top) {
        let change = match (change.is_finite(), moved.old, moved.new) {
            (true, ..) => format!("{change:.2e}"),
            (false, None, _) => "new".to_owned(),
            (false, _, None) => "gone".to_owned(),
            (false, Some(_), Some(_)) => "non-finite".to_owned(),
        };
        _ = writeln!(
            text,
            "{change:>10}  {} ({}): {} became {}",
            moved.name,
            moved.place,
            value(moved.old),
            value(moved.new)
        );
    }
    if found.moved.len() > top {
        _ = writeln!(text, "and {} more", found.moved.len() - top);
    }
    let setting = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
    for (name, old, new) in found.environment.iter().take(top) {
        _ = writeln!(text, "environment {name}: {} became {}", setting(old), setting(new));
    }
    text
}
