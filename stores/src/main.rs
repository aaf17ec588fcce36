//! `probe` with object stores.

use std::process::ExitCode;

fn main() -> ExitCode {
    probe::cli::run_with(std::env::args_os(), &probe_stores::ObjectStores::default()).into()
}
