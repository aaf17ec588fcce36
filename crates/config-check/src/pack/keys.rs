//! Keys of the parts that are plain settings, which a collector should write as the guide and the schema describe.
//!
//! Any of these parts may hold further keys; they are compared too. Dots denote nesting: `cudnn.enabled` is
//! `{"cudnn": {"enabled": true}}`.

use super::super::part::Part;

/// A documented key.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Full name; `*` stands for any one name.
    pub name: &'static str,
    /// Type in words.
    pub kind: &'static str,
    /// Its content and source.
    pub meaning: &'static str,
}

const fn key(name: &'static str, kind: &'static str, meaning: &'static str) -> Key {
    Key { name, kind, meaning }
}

/// Returns the documented keys of `part`; none for parts with a format of their own.
pub const fn documented(part: Part) -> &'static [Key] {
    match part {
        Part::Platform => PLATFORM,
        Part::Flags => FLAGS,
        Part::Dataloader => DATALOADER,
        Part::Scaler => SCALER,
        Part::Distributed => DISTRIBUTED,
        Part::Source => SOURCE,
        _ => &[],
    }
}

const PLATFORM: &[Key] = &[
    key("python", "text", "version of Python, `3.11.9`"),
    key("os", "text", "`platform.system()`"),
    key("os_release", "text", "release of the kernel"),
    key("arch", "text", "`platform.machine()`: `x86_64`, `aarch64`"),
    key("libc", "text", "C library and version, `glibc 2.35`"),
    key("cpu", "text", "model of the processor"),
    key("cpu_capability", "text", "`torch.backends.cpu.get_cpu_capability()`"),
    key("blas", "text", "libraries for linear algebra that torch was built with"),
    key("threads.intra_op", "integer", "`torch.get_num_threads()`"),
    key("threads.inter_op", "integer", "`torch.get_num_interop_threads()`"),
    key("torch.git", "text", "`torch.version.git_version`"),
    key("gpu.driver", "text", "version of the GPU driver"),
    key("gpu.cuda", "text", "`torch.version.cuda`"),
    key("gpu.cudnn", "text", "`torch.backends.cudnn.version()`"),
    key("gpu.nccl", "text", "`torch.cuda.nccl.version()` with dots"),
    key("npu.driver", "text", "version of the NPU driver"),
    key("npu.firmware", "text", "version of the firmware"),
    key("npu.cann", "text", "version of CANN, from its `version.info`"),
    key("npu.hccl", "text", "version of HCCL"),
];

const FLAGS: &[Key] = &[
    key(
        "deterministic_algorithms",
        "bool",
        "`torch.are_deterministic_algorithms_enabled()`; MindSpore: `get_context(\"deterministic\")` is `ON`",
    ),
    key("deterministic_warn_only", "bool", "`torch.is_deterministic_algorithms_warn_only_enabled()`"),
    key("fill_uninitialized_memory", "bool", "`torch.utils.deterministic.fill_uninitialized_memory`"),
    key(
        "float32_matmul_precision",
        "text",
        "`torch.get_float32_matmul_precision()`: `highest`, `high`, `medium`",
    ),
    key("default_dtype", "text", "`torch.get_default_dtype()` without `torch.`"),
    key("autocast.enabled", "bool", "autocast on the device at the first forward call"),
    key("autocast.dtype", "text", "its element type, if it is on"),
    key("autocast.device", "text", "its device type, if it is on"),
    key("autocast.cache", "bool", "`torch.is_autocast_cache_enabled()`"),
    key(
        "compute_dtype",
        "text",
        "element types of the floating-point parameters, alphabetical, joined by `, `",
    ),
    key("loss_reduction", "text", "`reduction` of the loss function, if one was found"),
    key("compiler", "text", "backend of `torch.compile` or of graph mode; absent in eager mode"),
    key("sdp.flash", "bool", "`torch.backends.cuda.flash_sdp_enabled()`"),
    key("sdp.mem_efficient", "bool", "`torch.backends.cuda.mem_efficient_sdp_enabled()`"),
    key("sdp.math", "bool", "`torch.backends.cuda.math_sdp_enabled()`"),
    key("sdp.cudnn", "bool", "`torch.backends.cuda.cudnn_sdp_enabled()`"),
    key(
        "cudnn.enabled",
        "bool",
        "`torch.backends.cudnn.enabled`; GPU only, as all keys of `cudnn` and `cuda`",
    ),
    key("cudnn.benchmark", "bool", "`torch.backends.cudnn.benchmark`"),
    key("cudnn.deterministic", "bool", "`torch.backends.cudnn.deterministic`"),
    key(
        "cudnn.allow_tf32",
        "bool",
        "`torch.backends.cudnn.allow_tf32`; if a newer switch was set, true if `cudnn.conv.fp32_precision` is `tf32`",
    ),
    key(
        "cuda.matmul.allow_tf32",
        "bool",
        "`torch.backends.cuda.matmul.allow_tf32`; if a newer switch was set, true if `fp32_precision` beside it is `tf32`",
    ),
    key("cuda.matmul.allow_fp16_reduced_precision_reduction", "bool", "the attribute of that name"),
    key("cuda.matmul.allow_bf16_reduced_precision_reduction", "bool", "the attribute of that name"),
    key("npu.matmul.allow_hf32", "bool", "`torch.npu.matmul.allow_hf32`; NPU only, as all keys of `npu`"),
    key("npu.conv.allow_hf32", "bool", "`torch.npu.conv.allow_hf32`"),
    key("npu.jit_compile", "bool", "true if operators are compiled at run time"),
    key("npu.internal_format", "bool", "true if private layouts are allowed"),
    key("mindspore.mode", "text", "`PYNATIVE` or `GRAPH`; MindSpore only, as all keys of `mindspore`"),
    key(
        "mindspore.jit_level",
        "text",
        "`jit_level` of the context or of `jit_config`: `O0`, `O1`, `O2`; absent if it is not set",
    ),
    key("mindspore.precision_mode", "text", "`precision_mode` of `ascend_config`; absent if it is not set"),
    key("mindspore.amp", "text", "types that `Cell.to_float` gave to cells, and how many: `fp16 in 3 cells`"),
];

const DATALOADER: &[Key] = &[
    key("class", "text", "class of the loader"),
    key("batch_size", "integer", "samples per batch and rank"),
    key("shuffle", "bool", "true if the sampler draws at random"),
    key("sampler", "text", "class of the sampler"),
    key("batch_sampler", "text", "class of the batch sampler"),
    key("drop_last", "bool", "true if a last short batch is left out"),
    key("num_workers", "integer", "worker processes"),
    key("persistent_workers", "bool", "true if workers outlive an epoch"),
    key("worker_init_fn", "text", "name of the function; null if there is none"),
    key("worker_seed", "integer", "base seed of the workers, if it was drawn"),
    key("generator_seed", "integer", "`generator.initial_seed()`; null without its own generator"),
    key("collate_fn", "text", "name of the function"),
    key("prefetch_factor", "integer", "batches that a worker prepares ahead"),
    key("pin_memory", "bool", "true if batches are copied to pinned memory"),
    key("epoch", "integer", "last epoch given to `set_epoch`; null if it was never called"),
    key("dataset", "text", "class of the dataset"),
    key("samples", "integer", "length of the dataset, if it has one"),
    key("batches", "integer", "length of the loader, if it has one"),
];

const SCALER: &[Key] = &[
    key("class", "text", "class of the scaler; null if the run has none, which is worth recording"),
    key("enabled", "bool", "`is_enabled()`"),
    key("scale", "number", "`get_scale()` when it was packed"),
    key("growth_factor", "number", "from `state_dict()`"),
    key("backoff_factor", "number", "from `state_dict()`"),
    key("growth_interval", "integer", "from `state_dict()`"),
    key("growth_tracker", "integer", "`_growth_tracker` of `state_dict()`"),
];

const DISTRIBUTED: &[Key] = &[
    key("initialized", "bool", "true if a process group exists"),
    key("backend", "text", "`torch.distributed.get_backend()`"),
    key("world_size", "integer", "processes"),
    key("groups.tensor", "integer", "size of the tensor-parallel group"),
    key("groups.pipeline", "integer", "size of the pipeline-parallel group"),
    key("groups.data", "integer", "size of the data-parallel group"),
    key("groups.expert", "integer", "size of the expert-parallel group"),
    key("groups.context", "integer", "size of the context-parallel group"),
    key(
        "wrapper.kind",
        "text",
        "`DDP`, `FSDP`, `FSDP2`, `ZeRO-1` to `ZeRO-3`, `Megatron DDP`; null without a wrapper",
    ),
    key(
        "wrapper.*",
        "any",
        "options of the wrapper: `bucket_cap_mb`, `gradient_as_bucket_view`, `sharding_strategy` and so on",
    ),
    key("reduce_dtype", "text", "element type in which gradients are reduced"),
    key("local_ranks", "integer", "processes per host"),
];

const SOURCE: &[Key] = &[
    key("git.commit", "text", "commit of the repository of the entry script"),
    key("git.dirty", "bool", "true if files differ from that commit"),
    key("git.diff_sha256", "text", "SHA-256 of `git diff HEAD`"),
    key("git.changed", "list of texts", "names of changed files, relative to the repository, at most 200"),
    key("entry.name", "text", "name of the entry script, without folders"),
    key("entry.sha256", "text", "SHA-256 of the entry script"),
    key("argv", "list of texts", "arguments, secrets masked"),
];

#[cfg(test)]
mod tests {
    use super::*;

    const GUIDE: &str = include_str!("../../../../docs/config-check.md");

    #[test]
    fn the_guide_lists_every_key() {
        for part in Part::ALL {
            for Key { name, kind, meaning } in documented(part) {
                let line = format!("| `{name}` | {kind} | {meaning} |");
                assert!(GUIDE.lines().any(|row| row == line), "expected the line\n{line}");
            }
        }
    }

    #[test]
    fn the_guide_gives_the_right_example_of_the_unordered_hash() {
        let mix = |mut z: u64| {
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^ (z >> 31)
        };
        let element = |bits: u64| mix(bits.wrapping_add(0x9E37_79B9_7F4A_7C15));
        let hash = [1, 2, 3].map(element).into_iter().fold(0, u64::wrapping_add);
        assert!(GUIDE.contains(&format!("`{hash:016x}`")), "{hash:016x}");
    }
}
