//! The program without a store that it could reach.

use std::process::Command;

#[test]
fn what_cannot_be_reached_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str], variables: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_probe-stores"));
        // Nothing of the environment of whoever runs the tests.
        command.args(args).env_clear().envs(variables.iter().copied()).env("TMPDIR", folder.path());
        let output = command.output().unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = run(&["inspect", "az://container/dump"], &[]);
    assert_eq!(code, Some(2));
    assert!(said.starts_with("error: az://container/dump: ") && said.contains("AZURE_*"), "{said}");
    let (code, said) =
        run(&["inspect", "gs://bucket/dump"], &[("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere.json")]);
    assert_eq!(code, Some(2));
    assert!(said.starts_with("error: gs://bucket/dump: ") && said.lines().count() == 1, "{said}");
    assert_eq!(run(&["--version"], &[]).0, Some(0));
}
