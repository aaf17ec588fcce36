//! The `probe` command.

fn main() {}
