//! Names of the files that MindSpore itself dumps of a graph (`common_dump_settings`).
//!
//! `{type}.{name}.{task}.{stream}.{time}.{input or output}.{slot}.{format}.{element type}`, as MindSpore 2.10 writes it on a
//! CPU; the element type is left out by older ones. Task, stream and time differ from run to run.

/// Returns the name of the tensor that is the same in every run, such as `MatMul.Default_net-Net_MatMul-op0.output.0`, and the
/// time at which it was written, of a file's name without its extension; None for other names.
pub(crate) fn parse(stem: &str) -> Option<(String, u64)> {
    let parts: Vec<&str> = stem.split('.').collect();
    let end = (parts.len().saturating_sub(4)..parts.len().saturating_sub(2)).rev();
    let side = end.into_iter().find(|&at| matches!(parts[at], "input" | "output"))?;
    let [op @ .., task, stream, time] = parts.get(..side)? else { return None };
    let numbers = [*task, *stream, *time, *parts.get(side + 1)?];
    if op.len() < 2 || !numbers.iter().all(|number| number.parse::<u64>().is_ok()) {
        return None;
    }
    Some((format!("{}.{}.{}", op.join("."), parts[side], parts[side + 1]), time.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn what_differs_from_run_to_run_is_left_out() {
        let op = "MatMul.Default_net-Net_fc-Dense_MatMul-op0";
        for end in ["DefaultFormat.Float32", "DefaultFormat"] {
            let found = parse(&format!("{op}.0.3.1795741147394844.output.1.{end}"));
            assert_eq!(found, Some((format!("{op}.output.1"), 1_795_741_147_394_844)));
        }
    }

    #[test]
    fn other_names_are_taken_as_they_are() {
        for name in [
            "",
            "input",
            "x.input.0.y",
            "layers.0.1.2.3.output.0",
            "a.b.c.0.1.output.0.ND",
            "a.0.0.1.output.0.ND",
        ] {
            assert_eq!(parse(name), None, "{name}");
        }
    }
}
