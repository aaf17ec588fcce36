//! Call stacks reduced to what people need: their own frames, and the line to open.

/// Returns the user's frames of a recorded stack, innermost first. Frames of the interpreter, installed
/// packages and capture tools are dropped; if nothing else is left, all frames stay.
pub fn user_frames(stack: &[Box<str>]) -> Vec<String> {
    let own: Vec<String> = stack.iter().filter(|frame| !is_foreign(frame)).map(ToString::to_string).collect();
    if own.is_empty() { stack.iter().map(ToString::to_string).collect() } else { own }
}

/// Returns true for frames of torch and its plugins, of MindSpore, the recording tool, Python's standard library, and no
/// file. A model that is an installed package (transformers, diffusers) is code a user can act on.
fn is_foreign(frame: &str) -> bool {
    const PACKAGES: [&str; 6] = ["torch", "torch_npu", "mindspore", "msprobe", "probe", "mindstudio_probe"];
    let Some((path, _)) = place(frame) else { return false };
    let path = path.replace('\\', "/");
    for folder in ["/site-packages/", "/dist-packages/"] {
        if let Some((_, installed)) = path.rsplit_once(folder) {
            return PACKAGES
                .iter()
                .any(|package| installed.strip_prefix(package).is_some_and(|rest| rest.starts_with('/')));
        }
    }
    ["/lib/python", "/lib64/python"].iter().any(|part| path.contains(part)) || path.starts_with('<')
}

/// Returns path and line of a frame written as `File PATH, line N, in FUNCTION…`.
fn place(frame: &str) -> Option<(&str, &str)> {
    let rest = frame.strip_prefix("File ")?;
    let (path, rest) = rest.split_once(", line ")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    (digits > 0).then(|| (path.trim_matches('"'), &rest[..digits]))
}

/// Returns `file:line` of the innermost user frame of a recorded stack, or of its innermost frame if there is
/// none. `None` if the stack names no place.
pub fn source_line(stack: &[Box<str>]) -> Option<String> {
    let own = stack.iter().filter(|frame| !is_foreign(frame)).find_map(|frame| place(frame));
    let (path, line) = own.or_else(|| stack.iter().find_map(|frame| place(frame)))?;
    Some(format!("{path}:{line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_user_frame_is_the_source_line() {
        let stack: Vec<Box<str>> = [
            "File /opt/venv/lib/python3.11/site-packages/torch/nn/modules/conv.py, line 549, in _conv_forward: return F.conv2d(",
            "File /home/user/train/model.py, line 112, in forward: x = F.relu(x)",
            "File /home/user/train/train.py, line 20, in <module>: main()",
        ]
        .map(Into::into)
        .into();
        let frames = user_frames(&stack);
        assert_eq!(frames.len(), 2);
        assert_eq!(source_line(&stack).as_deref(), Some("/home/user/train/model.py:112"));
        assert_eq!(user_frames(&stack[..1]).len(), 1);
        assert_eq!(source_line(&["odd".into()]), None);
        let installed: Vec<Box<str>> = [
            "File /opt/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py, line 125, in forward: return F.linear(",
            "File /opt/venv/lib/python3.11/site-packages/transformers/models/llama/modeling_llama.py, line 71, in forward: x",
            "File /home/user/train/train.py, line 20, in <module>: main()",
        ]
        .map(Into::into)
        .into();
        let source = source_line(&installed).unwrap();
        assert!(source.ends_with("modeling_llama.py:71"), "{source}");
    }
}
