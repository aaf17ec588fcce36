//! What shells and `man` want to know of the command line.

use anyhow::Context;
use clap::CommandFactory;

use super::Exit;
use super::args::{Cli, CompletionsArgs, ManArgs};
use super::terminal;

/// Prints the script that completes words in a shell.
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
