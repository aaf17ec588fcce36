//! Author and commit, as reported by CI systems.

use std::process::{Command, Stdio};

/// Variables with the commit: of GitHub, GitLab, Jenkins.
const COMMITS: [&str; 3] = ["GITHUB_SHA", "CI_COMMIT_SHA", "GIT_COMMIT"];

/// Variables with a name: of GitHub, GitLab, Jenkins, the system.
const NAMES: [&str; 5] = ["GITHUB_ACTOR", "GITLAB_USER_LOGIN", "BUILD_USER_ID", "USER", "LOGNAME"];

fn first(names: &[&str]) -> Option<String> {
    names.iter().filter_map(|name| std::env::var(name).ok()).find(|value| !value.trim().is_empty())
}

/// Returns the commit: the given one, else that of CI, else that of the working folder. `None` if there
/// is none.
pub(super) fn commit(given: Option<&str>) -> Option<String> {
    given.map(str::to_owned).or_else(|| first(&COMMITS)).or_else(of_folder)
}

fn of_folder() -> Option<String> {
    let output = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let commit = text.trim();
    let hexadecimal = commit.len() >= 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    (output.status.success() && hexadecimal).then(|| commit.to_owned())
}

/// Returns the author: the given one, else the one reported by CI or the system.
pub(super) fn name(given: Option<&str>) -> String {
    given.map(str::to_owned).or_else(|| first(&NAMES)).unwrap_or_else(|| "unknown".to_owned())
}
