//! The source line of an op, read off its recorded call stack.

/// Folders of frames that belong to the framework or its wrappers, not to the user's program.
const FRAMEWORK: [&str; 3] = ["/site-packages/", "/dist-packages/", "<frozen "];

/// `file:line` of the innermost frame outside the framework. Frames come innermost first, as
/// `File /path/train.py, line 112, in forward, ...`.
pub(crate) fn innermost<'a>(frames: impl Iterator<Item = &'a str>) -> Option<String> {
    frames.filter_map(place).find(|(path, _)| !FRAMEWORK.iter().any(|folder| path.contains(folder))).map(
        |(path, line)| {
            let file = path.rsplit(['/', '\\']).next().unwrap_or(path);
            format!("{file}:{line}")
        },
    )
}

fn place(frame: &str) -> Option<(&str, &str)> {
    let (path, rest) = frame.strip_prefix("File ")?.split_once(", line ")?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    (digits > 0).then(|| (path.trim_matches('"'), &rest[..digits]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn framework_frames_are_left_out() {
        let frames = [
            "File /opt/venv/lib/python3.11/site-packages/torch/nn/modules/conv.py, line 549, in _conv_forward, \n return F.conv2d(",
            "File /home/user/train/run_case.py, line 112, in forward, \n x = F.relu(x)",
        ];
        assert_eq!(innermost(frames.into_iter()).as_deref(), Some("run_case.py:112"));
        assert_eq!(innermost(["nonsense", "File a.py, line x"].into_iter()), None);
    }
}
