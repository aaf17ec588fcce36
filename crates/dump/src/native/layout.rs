//! Where the parts of a dump lie: `<dump>/manifest.json`, `<dump>/step<N>/rank<R>/…`.

use std::path::{Path, PathBuf};

/// Describes the run; in the root of a dump.
pub const MANIFEST: &str = "manifest.json";
/// The table of all slots of a finished part.
pub const OPS: &str = "ops.parquet";
/// The table of call stacks of a finished part.
pub const STACKS: &str = "stacks.parquet";
/// The slots of a part while it is being recorded.
pub const JOURNAL: &str = "journal.arrows";
/// The call stacks of a part while it is being recorded.
pub const STACKS_JOURNAL: &str = "stacks.arrows";
/// Holds the dump of operators below Python that was recorded beside the ops of this one.
pub const RUNTIME_FOLDER: &str = "runtime";
/// Says why a part was given up, as text; only in parts that were.
pub const STOPPED: &str = "stopped.txt";

/// Folder of a step.
pub fn step_folder(root: &Path, step: u64) -> PathBuf {
    root.join(format!("step{step}"))
}

/// Folder of what one rank recorded in one step.
pub fn rank_folder(root: &Path, step: u64, rank: u32) -> PathBuf {
    step_folder(root, step).join(format!("rank{rank}"))
}

/// File name of a finished shard of tensors.
pub fn shard_name(shard: u32) -> String {
    format!("tensors-{shard:05}.safetensors")
}

/// File name of a shard that is being written: its header is still empty.
pub fn shard_part_name(shard: u32) -> String {
    format!("tensors-{shard:05}.part")
}

/// Whether a file of this name can stand in the folder of a part.
pub fn is_dump_file(name: &str) -> bool {
    let name = name.strip_suffix(".part").unwrap_or(name);
    [OPS, STACKS, JOURNAL, STACKS_JOURNAL, STOPPED].contains(&name)
        || name.strip_suffix(".safetensors").unwrap_or(name).strip_prefix("tensors-").is_some_and(is_number)
}

/// The number in the name of a folder of a step or a rank, such as 20 in `step20`.
pub fn numbered(name: &str, prefix: &str) -> Option<u64> {
    name.strip_prefix(prefix).filter(|digits| is_number(digits))?.parse().ok()
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}
