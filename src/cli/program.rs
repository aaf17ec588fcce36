//! Replaces this process by the user's program, with this package waiting inside its Python
//! interpreters.
//!
//! Nothing is recorded here. An order travels in an environment variable, and a `sitecustomize.py` at the front of the
//! module path loads the package `probe` once the program imports torch. The program replaces this process, so its exit
//! code, signals and terminal are its own.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use super::Exit;

/// Instructions for the package inside the program.
#[derive(Debug)]
pub(super) struct Order {
    /// The environment variable that it reads.
    pub(super) variable: &'static str,
    /// Its value.
    pub(super) value: String,
    /// Variables that an enclosing order may have left behind.
    pub(super) stale: &'static [&'static str],
}

/// Folder of the Python package, if this command was started through it.
const PACKAGE: &str = "PROBE_PACKAGE";

const BOOTSTRAP: &str = include_str!("../../python/probe/_bootstrap/sitecustomize.py");
const BOOTSTRAP_NAME: &str = "sitecustomize.py";

/// Runs in the program's own interpreter: checks the order and prints the folder of the bootstrap. The working folder
/// is not searched, since a program may well have a file with the package's name next to it.
const CHECK: &str =
    "import sys; sys.path[:] = [entry for entry in sys.path if entry]; from probe.launch import main; main()";

/// Interpreter options that prevent it from loading a `sitecustomize` found through the
/// environment.
const DEAF: [char; 3] = ['S', 'I', 'E'];

/// Runs `command` with `order` in effect; `prepare` is called last before it starts. Returns only if the program could not
/// be started.
pub(super) fn run(
    command: &[OsString],
    order: &Order,
    further: &[(&str, OsString)],
    prepare: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Exit> {
    let ready = ready(command, order, further, prepare)?;
    let program = ready.get_program().to_owned();
    become_program(ready, &program)
}

/// Returns what runs `command` with `order` in effect, in place of this process. `prepare` is called last.
pub(super) fn ready(
    command: &[OsString],
    order: &Order,
    further: &[(&str, OsString)],
    prepare: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Command> {
    let Some((program, rest)) = command.split_first() else { bail!("no command to run") };
    let folder = match Interpreter::of(program, rest) {
        Some(interpreter) => interpreter.bootstrap(order)?,
        // A shell script or a launcher: it decides which interpreters it starts, and they will report
        // problems.
        None => own_bootstrap()?,
    };
    let mut command = Command::new(program);
    command
        .args(rest)
        .env(order.variable, &order.value)
        // The process of the program itself, as opposed to processes that it starts.
        .env(format!("{}_PID", order.variable), std::process::id().to_string())
        .env_remove(PACKAGE)
        .env("PYTHONPATH", in_front(&folder, env::var_os("PYTHONPATH"))?);
    for name in order.stale {
        command.env_remove(name);
    }
    // Set after removing the stale ones, which may have the same names.
    command.envs(further.iter().map(|(name, value)| (name, value)));
    // Nothing is prepared for a program that does not exist: an old dump might be removed.
    if found(program).is_some_and(|path| path.is_file()) {
        prepare()?;
    }
    Ok(command)
}

#[cfg(unix)]
pub(super) fn become_program(mut command: Command, program: &OsStr) -> anyhow::Result<Exit> {
    use std::os::unix::process::CommandExt as _;

    Err(command.exec()).with_context(|| program.display().to_string())
}

#[cfg(not(unix))]
pub(super) fn become_program(_: Command, _: &OsStr) -> anyhow::Result<Exit> {
    bail!(
        "a program cannot be run from here on this system; use the Python interface, probe.capture() or probe.config_check.pack()"
    )
}

/// The Python interpreter that the command runs, if known before running it.
#[derive(Debug, PartialEq, Eq)]
struct Interpreter {
    program: OsString,
    /// Its own options: those before the script.
    options: Vec<OsString>,
}

impl Interpreter {
    /// Recognises `python …` itself, or a script such as `torchrun` whose first line names an
    /// interpreter.
    fn of(program: &OsStr, rest: &[OsString]) -> Option<Self> {
        if is_python(program) {
            return Some(Self { program: program.into(), options: rest.to_vec() });
        }
        let mut start = Vec::new();
        fs::File::open(found(program)?).ok()?.take(1024).read_to_end(&mut start).ok()?;
        let start = String::from_utf8_lossy(&start);
        let mut words = start.lines().next()?.strip_prefix("#!")?.split_whitespace();
        let mut first = words.next()?;
        if Path::new(first).file_name() == Some(OsStr::new("env")) {
            first = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
        }
        is_python(OsStr::new(first))
            .then(|| Self { program: first.into(), options: words.map(OsString::from).collect() })
    }

    /// Returns the option that prevents the interpreter from loading the recorder.
    fn deaf(&self) -> Option<char> {
        let mut options = self.options.iter().map(|option| option.to_string_lossy());
        while let Some(option) = options.next() {
            let Some(letters) = option.strip_prefix('-') else { break };
            if letters.starts_with('-') {
                // The only long option with a separate value.
                if letters == "-check-hash-based-pycs" {
                    options.next();
                }
                continue;
            }
            for (at, letter) in letters.char_indices() {
                match letter {
                    'c' | 'm' => return None,
                    'X' | 'W' => {
                        if at + letter.len_utf8() == letters.len() {
                            options.next();
                        }
                        break;
                    }
                    letter if DEAF.contains(&letter) => return Some(letter),
                    _ => {}
                }
            }
        }
        None
    }

    /// Makes the interpreter check the settings, and returns the folder of the bootstrap in its
    /// package.
    fn bootstrap(&self, order: &Order) -> anyhow::Result<PathBuf> {
        let shown = self.program.display();
        if let Some(option) = self.deaf() {
            bail!("{shown} -{option}: the recorder cannot be loaded with this option; leave it out");
        }
        let output = Command::new(&self.program)
            .args(["-c", CHECK])
            .env(order.variable, &order.value)
            .stdin(Stdio::null())
            .output()
            .with_context(|| shown.to_string())?;
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.trim_end().lines().next_back().unwrap_or("no output");
        match output.status.code() {
            Some(0) => {}
            Some(2) => bail!("{last}"),
            _ => bail!(
                "{shown} has no working package probe ({last}); install it with: {shown} -m pip install probe-precision"
            ),
        }
        let folder = String::from_utf8(output.stdout).ok();
        let folder =
            folder.as_deref().and_then(|text| text.trim_end().lines().next_back()).map(PathBuf::from);
        folder.filter(|folder| folder.join(BOOTSTRAP_NAME).is_file()).with_context(|| {
            format!("{shown}: its package probe has no bootstrap; install this version with: {shown} -m pip install probe-precision")
        })
    }
}

fn is_python(program: &OsStr) -> bool {
    let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
    ["python", "pypy"].iter().any(|kind| {
        name.strip_prefix(kind)
            .is_some_and(|rest| rest.chars().all(|letter| letter.is_ascii_digit() || letter == '.'))
    })
}

/// Returns the file that the system will run for a command.
fn found(program: &OsStr) -> Option<PathBuf> {
    if Path::new(program).components().count() > 1 {
        return Some(program.into());
    }
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// Returns a folder with the bootstrap, for programs whose interpreter is not known yet: the package's, or one in the
/// user's cache. It must outlive this process, since every interpreter that the program ever starts reads it.
fn own_bootstrap() -> anyhow::Result<PathBuf> {
    if let Some(package) = env::var_os(PACKAGE) {
        let folder = Path::new(&package).join("_bootstrap");
        if folder.join(BOOTSTRAP_NAME).is_file() {
            return Ok(folder);
        }
    }
    let set =
        |name: &str| env::var_os(name).filter(|value| Path::new(value).is_absolute()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    let cache = cache.context("no place for the recorder's bootstrap: set HOME or XDG_CACHE_HOME")?;
    let folder = cache.join("probe").join(concat!("bootstrap-", env!("CARGO_PKG_VERSION")));
    place(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}

/// Writes the bootstrap unless it exists; another process may be reading it.
fn place(folder: &Path) -> io::Result<()> {
    let path = folder.join(BOOTSTRAP_NAME);
    if fs::read(&path).is_ok_and(|text| text == BOOTSTRAP.as_bytes()) {
        return Ok(());
    }
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(BOOTSTRAP.as_bytes())?;
    file.persist(path)?;
    Ok(())
}

fn in_front(folder: &Path, before: Option<OsString>) -> anyhow::Result<OsString> {
    let before = before.filter(|paths| !paths.is_empty());
    let folders =
        std::iter::once(folder.to_path_buf()).chain(before.iter().flat_map(|paths| env::split_paths(paths)));
    env::join_paths(folders).with_context(|| format!("{}: cannot be part of PYTHONPATH", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interpreter(line: &str) -> Option<Interpreter> {
        let mut words = line.split(' ').map(OsString::from);
        Interpreter::of(&words.next().unwrap(), &words.collect::<Vec<_>>())
    }

    #[test]
    fn pythons_are_known_by_their_names() {
        for name in ["python", "python3", "python3.12", "/usr/bin/python3", "pypy3"] {
            assert!(is_python(OsStr::new(name)), "{name}");
        }
        for name in ["bash", "pythonize", "torchrun", "python-config", ""] {
            assert!(!is_python(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn options_that_shut_out_the_recorder_are_seen_and_those_of_the_script_are_not() {
        for (line, option) in [
            ("python -I train.py", Some('I')),
            ("python -uS train.py", Some('S')),
            ("python -X dev -E train.py", Some('E')),
            ("python -Wignore -S train.py", Some('S')),
            ("python --check-hash-based-pycs always -I train.py", Some('I')),
            ("python -u train.py -S", None),
            ("python -m train -I", None),
            ("python -cprint -I", None),
            ("python -X I train.py", None),
            ("python -XI train.py", None),
            ("python", None),
        ] {
            assert_eq!(interpreter(line).unwrap().deaf(), option, "{line}");
        }
    }

    #[test]
    fn a_script_is_run_by_the_interpreter_of_its_first_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("torchrun");
        for (text, expected) in [
            ("#!/opt/venv/bin/python3 -s\nimport sys\n", Some(("/opt/venv/bin/python3", vec!["-s"]))),
            ("#!/usr/bin/env python\n", Some(("python", vec![]))),
            ("#!/usr/bin/env -S python3 -I\n", Some(("python3", vec!["-I"]))),
            ("#!/bin/sh\npython train.py\n", None),
            ("\u{7f}ELF", None),
            ("", None),
        ] {
            fs::write(&path, text).unwrap();
            let expected = expected.map(|(program, options): (&str, Vec<&str>)| Interpreter {
                program: program.into(),
                options: options.into_iter().map(OsString::from).collect(),
            });
            assert_eq!(Interpreter::of(path.as_os_str(), &[]), expected, "{text:?}");
        }
    }

    #[test]
    fn the_bootstrap_is_written_once_and_mended_when_it_was_changed() {
        let cache = tempfile::tempdir().unwrap();
        let folder = cache.path().join("probe/bootstrap");
        let path = folder.join(BOOTSTRAP_NAME);
        for before in [None, Some("another version")] {
            if let Some(text) = before {
                fs::write(&path, text).unwrap();
            }
            place(&folder).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), BOOTSTRAP);
        }
    }

    #[test]
    fn the_users_own_module_path_stays_behind_the_bootstrap() {
        let folder = Path::new("/cache/probe");
        assert_eq!(in_front(folder, Some("/a:/b".into())).unwrap(), OsString::from("/cache/probe:/a:/b"));
        assert_eq!(in_front(folder, Some("".into())).unwrap(), OsString::from("/cache/probe"));
        assert_eq!(in_front(folder, None).unwrap(), OsString::from("/cache/probe"));
    }
}
