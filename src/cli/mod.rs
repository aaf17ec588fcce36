//! The command line: parses, sets up threads and terminal, runs a subcommand, and turns its outcome into an exit code.
//!
//! The only module that knows clap, the terminal and the process.

mod args;
mod baseline;
mod calibrate;
mod capture;
mod cluster;
pub mod commands;
mod compare;
mod config_check;
mod confirm;
mod convert;
mod exit;
mod gate;
mod history;
mod inspect;
mod interrupt;
mod manual;
mod merge;
mod narrow;
mod nearest;
mod origin;
mod output;
mod package;
mod packs;
mod peers;
mod plan;
mod print;
mod program;
mod progress;
mod report;
mod rollout;
mod scratch;
mod sides;
mod terminal;
mod twin;
mod weights;

use clap::Parser;
use std::ffi::OsString;

use crate::store::{NoStores, Stores};
use args::{Cli, Command};
pub use exit::Exit;

/// Runs the command with `args`, the first of which is the program's name. It reads no object stores.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Exit {
    run_with(args, &NoStores)
}

/// Like [`run`], with object stores opened by `stores`.
pub fn run_with(args: impl IntoIterator<Item = OsString>, stores: &dyn Stores) -> Exit {
    let cli = match Cli::try_parse_from(args::with_long_names(args)) {
        Ok(cli) => cli,
        Err(error) => {
            if let Some(name) = args::in_package(&error) {
                terminal::error(&anyhow::anyhow!(
                    "probe {name} needs the Python package probe-precision: install it beside torch, and call that probe"
                ));
                return Exit::Failed;
            }
            // Help and version are answers; the rest is misuse. A closed pipe is not an error.
            let exit = if error.use_stderr() { Exit::Failed } else { Exit::Agree };
            _ = error.print();
            return exit;
        }
    };
    let outcome = match cli.command {
        Command::Capture(options) => capture::run(&options),
        Command::Compare(options) => compare::run(&options, stores),
        Command::Peers(options) => peers::run(&options, stores),
        Command::Plan(options) => plan::run(&options, stores),
        Command::Merge(options) => merge::run(&options, stores),
        Command::Calibrate(options) => calibrate::run(&options, stores),
        Command::ConfigCheck(options) => config_check::run(&options, stores),
        Command::Gate(options) => gate::run(&options),
        Command::Baseline(options) => baseline::run(&options),
        Command::Convert(options) => convert::run(&options, stores),
        Command::History(options) => history::run(&options),
        Command::Narrow(options) => narrow::run(&options),
        Command::Inspect(options) => inspect::run(&options, stores),
        Command::Report(options) => report::run(&options, stores),
        Command::Rollout(options) => rollout::run(&options),
        Command::Weights(options) => weights::run(&options),
        Command::Completions(options) => manual::completions(&options),
        Command::Man(options) => manual::pages(&options),
    };
    match outcome {
        Ok(exit) => exit,
        Err(error) => {
            terminal::error(&error);
            Exit::Failed
        }
    }
}
