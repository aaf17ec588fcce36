//! `probe baseline`: makes, shows and changes what a gate holds runs against.

mod import;

use clap::{Args, Subcommand};

use super::Exit;

/// Make, show and refresh baselines (NAME.probe.json) of `probe gate`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probe baseline import golden_values.json -o gpt3.probe.json
  probe baseline import losses.txt -o llama3.probe.json --reason 'release 1.2'")]
pub(super) struct BaselineArgs {
    #[command(subcommand)]
    command: BaselineCommand,
}

#[derive(Debug, Subcommand)]
enum BaselineCommand {
    Import(import::ImportArgs),
}

// Who makes a baseline and why. No text of the help, which a comment for documentation would become.
#[derive(Debug, Args)]
struct Origin {
    /// Who makes it [default: what CI or the system says].
    #[arg(long, value_name = "NAME")]
    by: Option<String>,

    /// The commit of the run [default: what CI says, else HEAD].
    #[arg(long, value_name = "SHA")]
    commit: Option<String>,

    /// Configuration pack of the run (probe.config_check.pack), whose set-up is kept to tell drift from regressions.
    #[arg(long, value_name = "PACK.zip")]
    environment: Option<std::path::PathBuf>,
}

/// Runs the subcommand.
pub(super) fn run(args: &BaselineArgs) -> anyhow::Result<Exit> {
    match &args.command {
        BaselineCommand::Import(args) => import::run(args),
    }
}
