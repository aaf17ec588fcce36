//! Shell completions and manual pages of the command line.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, CommandFactory};

use super::args::Cli;
use super::{Exit, terminal};

/// Print the completion script for a shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probe completions bash > ~/.local/share/bash-completion/completions/probe
  probe completions zsh > \"${fpath[1]}/_probe\"
  probe completions fish > ~/.config/fish/completions/probe.fish")]
pub(super) struct CompletionsArgs {
    /// The shell.
    pub(super) shell: clap_complete::Shell,
}

/// Write manual pages for this command and its subcommands.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: probe man ~/.local/share/man/man1 && man probe-compare")]
pub(super) struct ManArgs {
    /// Folder for the pages; created if missing.
    #[arg(value_name = "DIR")]
    pub(super) folder: PathBuf,
}

/// Prints the completion script of a shell.
pub(super) fn completions(args: &CompletionsArgs) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "probe", &mut script);
    terminal::print(&String::from_utf8(script)?)?;
    Ok(Exit::Agree)
}

/// Writes a page for the command and each subcommand.
pub(super) fn pages(args: &ManArgs) -> anyhow::Result<Exit> {
    let folder = &args.folder;
    let written =
        std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
    written.with_context(|| format!("cannot write the manual pages to {}", folder.display()))?;
    Ok(Exit::Agree)
}
