//! Paths of the parts of a dump: `<dump>/manifest.json`, `<dump>/step<N>/rank<R>/…`.

use std::path::{Path, PathBuf};

/// Description of the run, in the root of a dump.
pub const MANIFEST: &str = "manifest.json";
/// The table of all slots of a finished part.
pub const OPS: &str = "ops.parquet";
/// The table of call stacks of a finished part.
pub const STACKS: &str = "stacks.parquet";
/// The slots of a part being recorded.
pub const JOURNAL: &str = "journal.arrows";
/// The call stacks of a part being recorded.
pub const STACKS_JOURNAL: &str = "stacks.arrows";
/// Folder of the dump of operators below Python that was recorded alongside the ops of this one.
pub const RUNTIME_FOLDER: &str = "runtime";
/// Folder of the dump of a second run of the same program, moved by one rounding, which shows the noise of this one.
pub const NOISE_FOLDER: &str = "noise";
/// Reason a part was given up, as text; exists only in parts that were.
pub const STOPPED: &str = "stopped.txt";

/// Returns the root of the dump that `path` names: the path itself, or what is above its step and rank folders.
pub fn root_of(path: &Path) -> &Path {
    let above = |path: &Path, prefix| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| numbered(name, prefix).is_some())
    };
    let step = path.parent().filter(|_| above(path, "rank")).unwrap_or(path);
    step.parent().filter(|_| above(step, "step")).unwrap_or(step)
}

/// Returns the folder of a step.
pub fn step_folder(root: &Path, step: u64) -> PathBuf {
    root.join(format!("step{step}"))
}

/// Returns the folder of one rank in one step.
pub fn rank_folder(root: &Path, step: u64, rank: u32) -> PathBuf {
    step_folder(root, step).join(format!("rank{rank}"))
}

/// Returns the file name of a finished tensor shard.
pub fn shard_name(shard: u32) -> String {
    format!("tensors-{shard:05}.safetensors")
}

/// Returns the file name of a shard being written: its header is still empty.
pub fn shard_part_name(shard: u32) -> String {
    format!("tensors-{shard:05}.part")
}

/// Returns true if a file of this name may occur in the folder of a part.
pub fn is_dump_file(name: &str) -> bool {
    let name = name.strip_suffix(".part").unwrap_or(name);
    [OPS, STACKS, JOURNAL, STACKS_JOURNAL, STOPPED].contains(&name)
        || name.strip_suffix(".safetensors").unwrap_or(name).strip_prefix("tensors-").is_some_and(is_number)
}

/// Returns the number in the name of a step or rank folder, such as 20 in `step20`.
pub fn numbered(name: &str, prefix: &str) -> Option<u64> {
    name.strip_prefix(prefix).filter(|digits| is_number(digits))?.parse().ok()
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_above_steps_and_ranks() {
        for path in ["d/gpu", "d/gpu/step3", "d/gpu/step3/rank0"] {
            assert_eq!(root_of(Path::new(path)), Path::new("d/gpu"), "{path}");
        }
        assert_eq!(root_of(Path::new("stepping")), Path::new("stepping"));
    }
}
