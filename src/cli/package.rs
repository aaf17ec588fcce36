//! Work of the Python package: what needs torch or Ray runs in an interpreter, whose `main` takes an order.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context;
use serde_json::Value;

/// The interpreter, if this command was started through the package.
const PYTHON: &str = "PROBE_PYTHON";

/// Program for the interpreter. The working folder is not searched, since it may well contain something with the
/// package's name.
const PROGRAM: &str = "\
import importlib, sys
sys.path[:] = [entry for entry in sys.path if entry]
module, needs, *order = sys.argv[1:]
try:
    main = importlib.import_module(module).main
except ImportError as error:
    print(f'error: {needs}: {sys.executable}: {error}', file=sys.stderr)
    sys.exit(2)
if order:
    main(*order)";

/// A module of the package that carries out orders.
#[derive(Debug, Clone, Copy)]
pub(super) struct Worker {
    /// Its name.
    pub(super) module: &'static str,
    /// The option that asks for it, and what that needs: `--ray needs ...`.
    pub(super) needs: &'static str,
}

impl Worker {
    /// Returns the command that carries out `order`, and the interpreter that it starts.
    pub(super) fn command(self, order: &Value) -> (Command, OsString) {
        let (mut command, python) = self.loading();
        command.arg(order.to_string());
        (command, python)
    }

    /// Returns true if an interpreter can load the module.
    pub(super) fn is_there(self) -> bool {
        let (mut command, _) = self.loading();
        let done = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        done.is_ok_and(|status| status.success())
    }

    fn loading(self) -> (Command, OsString) {
        let python = env::var_os(PYTHON).unwrap_or_else(|| OsString::from("python3"));
        let mut command = Command::new(&python);
        command.args(["-c", PROGRAM, self.module, self.needs]).env_remove(PYTHON);
        (command, python)
    }
}

/// Returns a path as text.
pub(super) fn text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().with_context(|| format!("{}: is not UTF-8", path.display()))
}
