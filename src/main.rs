//! The `probe` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    probe::cli::run(std::env::args_os()).into()
}
