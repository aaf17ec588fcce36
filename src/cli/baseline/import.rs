//! `probe baseline import`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::Origin;
use crate::cli::print::PrintFormat;
use crate::cli::{Exit, terminal};
use crate::gate::baseline::Baseline;
use crate::gate::environment;
use crate::gate::import::{self, ScalarFormat, Scalars};
use crate::gate::policy::Pattern;
use crate::report::baseline::WrittenReport;
use crate::report::number::counted;

/// Make a baseline of scalars that other tools recorded.
///
/// FILE holds golden values of Megatron-LM, lines of step and loss (torchtitan), `TensorBoard` events (or is a folder of them), a table (CSV) with
/// a column of steps, JSON Lines with a step each, or is a `trainer_state.json`. The format is detected from the content.
///
/// Exit codes: 0 done, 2 failed or misused.
#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// The files; their contents add up.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// The baseline to write.
    #[arg(short, long, value_name = "NAME.probe.json")]
    output: PathBuf,

    /// Format of the files [default: detected from their content].
    #[arg(long, value_parser = format(), value_name = "FORM")]
    from: Option<ScalarFormat>,

    /// Only scalars of this name (`*` matches anything); repeatable.
    #[arg(long, value_name = "PATTERN")]
    include: Vec<String>,

    /// Why the baseline is made.
    #[arg(long, default_value = "import")]
    reason: String,

    #[command(flatten)]
    origin: Origin,

    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: PrintFormat,

    /// Print nothing.
    #[arg(short, long)]
    quiet: bool,
}

fn format() -> impl TypedValueParser<Value = ScalarFormat> {
    PossibleValuesParser::new(ScalarFormat::ALL.map(ScalarFormat::name)).map(|word| {
        ScalarFormat::ALL.into_iter().find(|format| format.name() == word).unwrap_or(ScalarFormat::Csv)
    })
}

/// Runs the subcommand.
pub(super) fn run(args: &ImportArgs) -> anyhow::Result<Exit> {
    let wanted: Vec<Pattern> = args
        .include
        .iter()
        .map(|text| Pattern::new(text))
        .collect::<Result<_, _>>()
        .map_err(anyhow::Error::msg)?;
    let mut scalars = Scalars::new();
    let mut said = Vec::new();
    for path in &args.files {
        let imported = import::import(path, args.from)?;
        said.extend(imported.notes.iter().map(|note| format!("{}: {note}", path.display())));
        for (name, series) in imported.scalars {
            if !wanted.is_empty() && !wanted.iter().any(|pattern| pattern.matches(&name)) {
                continue;
            }
            if scalars.contains_key(&name) {
                bail!("{}: scalar {name:?} is also in an earlier file", path.display());
            }
            scalars.insert(name, series);
        }
    }
    if scalars.is_empty() {
        bail!("no scalar matches --include");
    }
    let baseline = Baseline {
        environment: match &args.origin.environment {
            Some(pack) => environment::of_pack(pack)?,
            None => BTreeMap::new(),
        },
        provenance: vec![args.origin.entry("import", &args.reason, &args.files)],
        scalars,
        ..Baseline::default()
    };
    let nonfinite = baseline.nonfinite();
    if let Some(first) = nonfinite.first() {
        said.push(format!(
            "not finite: {} ({first}); a gate never passes there",
            counted(nonfinite.len() as u64, "value")
        ));
    }
    baseline.write(&args.output).context("the baseline was not written")?;
    if args.format == PrintFormat::Json {
        terminal::print(&WrittenReport::of(&args.output, &baseline, None, &said).text()?)?;
    } else if !args.quiet {
        let mut text = format!(
            "{}: {}, {}\n",
            args.output.display(),
            counted(baseline.scalars.len() as u64, "scalar"),
            counted(baseline.len() as u64, "value")
        );
        text.extend(said.iter().map(|line| format!("note: {line}\n")));
        terminal::print(&text)?;
    }
    Ok(Exit::Agree)
}
