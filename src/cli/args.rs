//! What can be typed.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};

use super::baseline::BaselineArgs;
use super::gate::GateArgs;
use super::history::HistoryArgs;
use super::narrow::NarrowArgs;
use crate::compare::{LevelFilter, NumberSet};
use crate::report::Format;
use crate::report::config::ConfigFormat;
use crate::shard::Shard;

/// Finds the operator where two training runs part ways, and says why.
#[derive(Debug, Parser)]
#[command(
    name = "probe",
    version,
    max_term_width = 120,
    after_help = "\
Examples:
  probe capture --steps 0-2 -o gpu_dump -- python train.py    record a run
  probe compare gpu_dump npu_dump                             compare two
  probe calibrate gpu_dump gpu_dump_2 -o noise.toml           measure noise
  probe inspect gpu_dump --op '*gelu*'                        look into one
  probe convert kernel_dump -o npu_dump                       write it in another form
  probe config-check gpu.zip npu.zip                          compare set-ups
  probe gate --baseline gpt2.probe.json --candidate losses.txt -o out"
)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Capture(CaptureArgs),
    Compare(CompareArgs),
    Peers(PeersArgs),
    Plan(PlanArgs),
    Merge(MergeArgs),
    Calibrate(CalibrateArgs),
    #[command(alias = "config_check")]
    ConfigCheck(ConfigCheckArgs),
    Gate(GateArgs),
    Baseline(BaselineArgs),
    Convert(ConvertArgs),
    History(HistoryArgs),
    Narrow(NarrowArgs),
    Inspect(InspectArgs),
    #[cfg(all(feature = "html", feature = "parquet"))]
    Report(ReportArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

/// Run a program and record what every torch op in it reads and writes; the program is not changed.
///
/// The optimizer's steps count iterations, unless --step-on says otherwise. Every option is also a key of the file given with --config, and wins over
/// it.
///
/// The exit code is the program's own; 2 if it could not be started.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probe capture --steps 10-12 -o gpu_dump -- python train.py --batch 8
  probe capture --ranks 0 --task tensor -- torchrun train.py
  probe capture --include 'layers.3.*' --level op -- python train.py
  probe capture --perturb -o gpu_noise -- python train.py
  probe capture --runtime acl --steps 10 -o npu_dump -- python train.py
  probe capture --runtime acl --step-on aclnnApplyAdamWV2 -- ./train")]
pub(super) struct CaptureArgs {
    /// TOML file of settings.
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,

    /// Folder of the dump [default: `probe_dump`].
    #[arg(short, long, value_name = "DUMP")]
    pub(super) output: Option<PathBuf>,

    /// Replace the dump that the folder holds.
    #[arg(long)]
    pub(super) overwrite: bool,

    /// Iterations to record, such as 10,20 or 10-12 [default: all].
    #[arg(long, value_name = "STEPS", value_parser = numbers)]
    pub(super) steps: Option<String>,

    /// Where iterations end: at the steps of the `optimizer`, calls of the `model`, calls of `probe.step()` in the `program`
    /// alone, or at calls of a function or a module of that name [default: optimizer]. With --runtime also the launch of an operator
    /// (`aclnnApplyAdamWV2`).
    #[arg(long, value_name = "WHAT")]
    pub(super) step_on: Option<String>,

    /// Ranks that record, such as 0 or 0-7 [default: all].
    #[arg(long, value_name = "RANKS", value_parser = numbers)]
    pub(super) ranks: Option<String>,

    /// What an op is: a call of a module, of a torch function, both (mix), or each op that torch dispatches [default: mix].
    #[arg(long, value_parser = ["module", "api", "mix", "op", "save"])]
    pub(super) level: Option<String>,

    /// What is recorded of a tensor [default: sketch].
    #[arg(long, value_parser = ["statistics", "sketch", "hash", "tensor"])]
    pub(super) task: Option<String>,

    /// Record only this op or module, and what runs inside it (`*` stands for anything); may be given several times.
    #[arg(long, value_name = "NAME")]
    pub(super) include: Vec<String>,

    /// Leave this op or module out, and what runs inside it; may be given several times.
    #[arg(long, value_name = "NAME")]
    pub(super) exclude: Vec<String>,

    /// Tensor data that a step of one rank may store, such as 2GB; tensors beyond it are recorded as a sketch.
    #[arg(long, value_name = "SIZE")]
    pub(super) max_bytes: Option<String>,

    /// Record below Python, any program on CANN: every aclnn operator that is launched, in place of the ops of torch; with --level,
    /// beside them, in DUMP/runtime.
    #[arg(long, value_parser = ["acl"], value_name = "RUNTIME")]
    pub(super) runtime: Option<String>,

    /// With --runtime: record tensors above this size without values, such as 64MB [default: half of --ring].
    #[arg(long, requires = "runtime", value_name = "SIZE", value_parser = size)]
    pub(super) max_tensor: Option<u64>,

    /// With --runtime: pinned memory between the device and the writer; launches wait where it is full [default: 256MiB].
    #[arg(long, requires = "runtime", value_name = "SIZE", value_parser = size)]
    pub(super) ring: Option<u64>,

    /// Change the run: move weights and inputs by one rounding, at random, so that this dump shows what rounding does
    /// (`probe compare --noise`).
    #[arg(long, value_name = "SEED", num_args = 0..=1, default_missing_value = "0", value_parser = clap::value_parser!(u32).range(..1 << 31))]
    pub(super) perturb: Option<u32>,

    /// Print no line at the end that says what was recorded.
    #[arg(short, long)]
    pub(super) quiet: bool,

    /// The program and its arguments, after `--`.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
}

/// Compare two dumps: name the first op that diverges, and its cause
///
/// BASELINE and CANDIDATE are dumps (a dump root, step folder, rank folder or dump.json) or tensors
/// (.safetensors, .pt, .pth, .bin, .npy, .npz, or a folder of them).
///
/// Exit codes: 0 agree, 1 diverged, 2 failed or misused, 3 finished but incomplete.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    override_usage = "probe compare [OPTIONS] BASELINE CANDIDATE",
    after_help = "\
Examples:
  probe compare gpu_dump npu_dump                     answer, and reports
  probe compare gpu_dump/step3 npu_dump/step3 -v      one step, everything
  probe compare gpu.safetensors npu.safetensors -q    the first line only
  probe compare gpu_dump npu_dump --noise gpu_dump_2  allow for measured noise
  probe compare gpu_dump npu_dump --reference f64     who is nearer to the truth
  probe compare gpu_dump npu_dump --format json | jq .first_divergence"
)]
pub(super) struct CompareArgs {
    /// The run that is trusted (usually on a GPU).
    #[arg(value_name = "BASELINE", required_unless_present_any = ["baseline", "candidate", "plan"])]
    first: Option<PathBuf>,

    /// The run under test (usually on an NPU).
    #[arg(value_name = "CANDIDATE", required_unless_present_any = ["baseline", "candidate", "plan"])]
    second: Option<PathBuf>,

    /// BASELINE, given by name.
    #[arg(short, long, aliases = ["golden-path", "golden_path"], value_name = "BASELINE")]
    #[arg(requires = "candidate", conflicts_with = "first")]
    baseline: Option<PathBuf>,

    /// CANDIDATE, given by name.
    #[arg(short, long, aliases = ["target-path", "target_path"], value_name = "CANDIDATE")]
    #[arg(requires = "baseline", conflicts_with = "first")]
    candidate: Option<PathBuf>,

    /// Folder for the reports, created when missing; `-` prints one report and writes none [default: probe-report].
    #[arg(short, long, alias = "output_path", value_name = "DIR")]
    pub(super) output: Option<PathBuf>,

    /// Kinds of op to compare: module calls, torch functions, dispatcher ops, or all.
    #[arg(short, long, default_value_t = LevelFilter::All, value_parser = level())]
    pub(super) level: LevelFilter,

    /// Steps to compare, such as 3 or 0,10-12 [default: all].
    #[arg(long, value_name = "STEPS")]
    pub(super) step: Option<NumberSet>,

    /// Ranks to compare, such as 0 or 0-7 [default: all].
    #[arg(long, value_name = "RANKS")]
    pub(super) rank: Option<NumberSet>,

    /// TOML file of tolerance rules: pattern and bounds, the first match wins.
    #[arg(long, value_name = "FILE")]
    pub(super) tolerance: Option<PathBuf>,

    /// Names that belong together: TOML, or YAML of cells or data as the older tool takes it.
    #[arg(long, aliases = ["cell_mapping", "data_mapping"], value_name = "FILE")]
    pub(super) mapping: Option<PathBuf>,

    /// A second run of the baseline, or a file that `probe calibrate` wrote: what it differs by is no fault; may be given
    /// several times.
    #[arg(long, value_name = "DUMP")]
    pub(super) noise: Vec<PathBuf>,

    /// A run of the same program in float32 or float64: values as near to it as the baseline's are not at fault.
    #[arg(long, value_name = "DUMP")]
    pub(super) reference: Option<PathBuf>,

    /// Reports to write, with commas [default: text,xlsx,parquet,json,html]; `json` alone, without -o, is printed.
    #[arg(long, value_delimiter = ',', value_parser = format(), value_name = "FORMATS")]
    pub(super) format: Option<Vec<Format>>,

    /// Put every op and value of a large dump into the workbook, not only what differs and what is at fault.
    #[arg(long)]
    pub(super) full: bool,

    /// Threads to use [default: one for each processor].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) threads: Option<u16>,

    /// Ops at fault to list in the terminal.
    #[arg(long, default_value_t = 10)]
    pub(super) top: usize,

    #[command(flatten)]
    pub(super) unlike: Unlike,

    /// Compare a shard of the plan that `probe plan` wrote, for `probe merge`; everything else was settled there.
    #[arg(long, value_name = "PLAN", requires = "shard")]
    #[arg(conflicts_with_all = ["first", "second", "baseline", "candidate", "output", "level", "step", "rank", "tolerance", "mapping", "noise", "reference", "format", "full", "any_task", "any_level", "rows"])]
    pub(super) plan: Option<PathBuf>,

    /// The shard: 3/64, `slurm` (a task of a job array or a step), or `k8s/64` (a pod of an indexed job).
    #[arg(long, value_name = "SHARD", requires = "plan")]
    pub(super) shard: Option<Shard>,

    /// Read files in pieces instead of mapping them: for network file systems and dumps still being written.
    #[arg(long)]
    pub(super) no_mmap: bool,

    #[command(flatten)]
    pub(super) verbosity: Verbosity,
}

// Dumps that were not recorded alike. No text of the help, which a comment for documentation would become.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Unlike {
    /// Compare dumps of different tasks by what both recorded.
    #[arg(long)]
    pub(super) any_task: bool,

    /// Compare dumps of different levels by the kinds of op that both recorded.
    #[arg(long)]
    pub(super) any_level: bool,

    /// Compare batches of another size by the rows that both have: the forward pass, task tensor.
    #[arg(long)]
    pub(super) rows: bool,
}

#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Verbosity {
    /// Print the answer only, and no progress.
    #[arg(short, long, conflicts_with = "verbose")]
    pub(super) quiet: bool,

    /// List every op at fault and everything that could not be compared.
    #[arg(short, long)]
    pub(super) verbose: bool,
}

impl CompareArgs {
    /// Baseline and candidate.
    pub(super) fn sides(&self) -> Option<[&PathBuf; 2]> {
        let baseline = self.first.as_ref().or(self.baseline.as_ref())?;
        Some([baseline, self.second.as_ref().or(self.candidate.as_ref())?])
    }
}

/// Compare the ranks of one dump with one another: who holds another value than its peers, and where a NaN was born.
///
/// Weights, gradients after their reduction and steps of the optimizer are the same on all replicas; which ranks are replicas is told from the dump itself.
///
/// Exit codes: 0 the ranks agree, 1 one differs or makes a NaN, 2 failed or misused, 3 something could not be read.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probe peers npu_dump
  probe peers npu_dump --step 120-130")]
pub(super) struct PeersArgs {
    /// A dump of several ranks.
    #[arg(value_name = "DUMP")]
    pub(super) dump: PathBuf,

    /// Steps to look at, such as 3 or 0,10-12 [default: all].
    #[arg(long, value_name = "STEPS")]
    pub(super) step: Option<NumberSet>,

    /// Ranks to look at, such as 0 or 0-7 [default: all].
    #[arg(long, value_name = "RANKS")]
    pub(super) rank: Option<NumberSet>,

    /// Threads to use [default: one for each processor].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) threads: Option<u16>,

    /// Read files in pieces instead of mapping them: for network file systems and dumps still being written.
    #[arg(long)]
    pub(super) no_mmap: bool,
}

/// Settle a comparison of many ranks once, to be run in shards by any scheduler: `probe compare --plan`, then `probe merge`.
///
/// Lists both dumps, pairs their parts and weighs them. Shards may run anywhere that sees the same paths, in any order, also twice.
#[derive(Debug, Args)]
#[command(
    override_usage = "probe plan [OPTIONS] BASELINE CANDIDATE -o RUN",
    after_help = "\
Examples:
  probe plan gpu_dump npu_dump -o run
  sbatch --array=1-64 --wrap 'probe compare --plan run/plan.json --shard slurm'
  probe merge run"
)]
pub(super) struct PlanArgs {
    /// The run that is trusted (usually on a GPU).
    #[arg(value_name = "BASELINE", required_unless_present = "baseline")]
    first: Option<PathBuf>,

    /// The run under test (usually on an NPU).
    #[arg(value_name = "CANDIDATE", required_unless_present = "candidate")]
    second: Option<PathBuf>,

    /// BASELINE, given by name.
    #[arg(short, long, value_name = "BASELINE", requires = "candidate", conflicts_with = "first")]
    baseline: Option<PathBuf>,

    /// CANDIDATE, given by name.
    #[arg(short, long, value_name = "CANDIDATE", requires = "baseline", conflicts_with = "first")]
    candidate: Option<PathBuf>,

    /// Folder of the run: the plan, the shards and the reports.
    #[arg(short, long, value_name = "RUN")]
    pub(super) output: PathBuf,

    /// Kinds of op to compare.
    #[arg(short, long, default_value_t = LevelFilter::All, value_parser = level())]
    pub(super) level: LevelFilter,

    /// Steps to compare, such as 3 or 0,10-12 [default: all].
    #[arg(long, value_name = "STEPS", value_parser = numbers)]
    pub(super) step: Option<String>,

    /// Ranks to compare, such as 0 or 0-7 [default: all].
    #[arg(long, value_name = "RANKS", value_parser = numbers)]
    pub(super) rank: Option<String>,

    /// TOML file of tolerance rules.
    #[arg(long, value_name = "FILE")]
    pub(super) tolerance: Option<PathBuf>,

    /// Names that belong together, as for `probe compare`.
    #[arg(long, value_name = "FILE")]
    pub(super) mapping: Option<PathBuf>,

    /// A file that `probe calibrate` wrote; may be given several times.
    #[arg(long, value_name = "FILE")]
    pub(super) noise: Vec<PathBuf>,

    /// A run of the same program in float32 or float64.
    #[arg(long, value_name = "DUMP")]
    pub(super) reference: Option<PathBuf>,

    #[command(flatten)]
    pub(super) unlike: Unlike,

    /// Read files in pieces instead of mapping them: for network file systems and dumps still being written.
    #[arg(long)]
    pub(super) no_mmap: bool,

    /// Print the path of the plan only.
    #[arg(short, long)]
    pub(super) quiet: bool,
}

impl PlanArgs {
    /// Baseline and candidate.
    pub(super) fn sides(&self) -> Option<[&PathBuf; 2]> {
        let baseline = self.first.as_ref().or(self.baseline.as_ref())?;
        Some([baseline, self.second.as_ref().or(self.candidate.as_ref())?])
    }
}

/// Fold the shards of a plan into the answer and its reports.
///
/// May be run at any time: shards that are not done are listed with the command that makes them up.
///
/// Exit codes: 0 agree, 1 diverged, 2 failed or misused, 3 finished but incomplete, as when a shard is missing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probe merge run
  probe merge run -q --format json")]
pub(super) struct MergeArgs {
    /// Folder of the run.
    #[arg(value_name = "RUN")]
    pub(super) run: PathBuf,

    /// Reports to write into it, with commas; rows stay in the shards, `result.parquet` in each [default: text,xlsx,json].
    #[arg(long, value_delimiter = ',', value_parser = format(), value_name = "FORMATS")]
    pub(super) format: Option<Vec<Format>>,

    /// Ops at fault to list in the terminal.
    #[arg(long, default_value_t = 10)]
    pub(super) top: usize,

    #[command(flatten)]
    pub(super) verbosity: Verbosity,
}

/// Measure by how much runs of one program differ, as floors for `probe compare --noise`.
///
/// BASELINE and each NOISE are dumps of the same program on the same data: run twice, on two machines alike, or with
/// `probe capture --perturb`. The file names each function with its noise; it can be read and changed.
///
/// Exit codes: 0 done, 2 failed or misused, 3 something could not be read.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probe calibrate gpu_dump gpu_dump_2 -o noise.toml
  probe calibrate gpu_dump gpu_dump_2 gpu_dump_3 --step 0-2
  probe compare gpu_dump npu_dump --noise noise.toml")]
pub(super) struct CalibrateArgs {
    /// The run that is trusted.
    #[arg(value_name = "BASELINE")]
    pub(super) baseline: PathBuf,

    /// Further runs of it.
    #[arg(value_name = "NOISE", required = true)]
    pub(super) noise: Vec<PathBuf>,

    /// The file to write.
    #[arg(short, long, default_value = "noise.toml", value_name = "FILE")]
    pub(super) output: PathBuf,

    /// Steps to measure, such as 3 or 0,10-12 [default: all].
    #[arg(long, value_name = "STEPS")]
    pub(super) step: Option<NumberSet>,

    /// Ranks to measure, such as 0 or 0-7 [default: all].
    #[arg(long, value_name = "RANKS")]
    pub(super) rank: Option<NumberSet>,

    /// Threads to use [default: one for each processor].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) threads: Option<u16>,

    /// Read files in pieces instead of mapping them: for network file systems and dumps still being written.
    #[arg(long)]
    pub(super) no_mmap: bool,

    /// Print nothing, and no progress.
    #[arg(short, long)]
    pub(super) quiet: bool,
}

/// Check whether two training set-ups can be compared: environment, packages, flags, seeds, data, weights and more
///
/// BASELINE and CANDIDATE are configuration packs (.zip), as `probe.config_check.pack` writes them; packs of msprobe are read too.
///
/// Exit codes: 0 agree, 1 something differs that can change numerics, 2 failed or misused, 3 something could not be read.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  probe config-check gpu.zip npu.zip
  probe config-check gpu.zip npu.zip --strict --format json | jq .verdict
  probe config-check --collect -o gpu.zip -- python train.py"
)]
pub(super) struct ConfigCheckArgs {
    /// The pack of the run that is trusted (usually on a GPU), and that of the run under test (usually on an NPU).
    #[arg(num_args = 2, required_unless_present_any = ["compare", "collect"], value_names = ["BASELINE", "CANDIDATE"])]
    packs: Vec<PathBuf>,

    /// Make a pack instead: run the program after `--` and pack what its first steps show into the file given with -o.
    #[arg(long, requires = "command", conflicts_with_all = ["packs", "compare", "rules", "strict"])]
    pub(super) collect: bool,

    /// With --collect: steps to look at [default: 1].
    #[arg(long, requires = "collect", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) steps: Option<u32>,

    /// With --collect: end the program once the pack is written.
    #[arg(long, requires = "collect")]
    pub(super) stop: bool,

    /// With --collect: launch scripts and configuration files to take settings from.
    #[arg(long, requires = "collect", value_name = "FILE")]
    pub(super) from: Vec<PathBuf>,

    /// With --collect: the program and its arguments, after `--`.
    #[arg(last = true, requires = "collect", value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,

    /// The same, as the older tool's users type it.
    #[arg(short, long, num_args = 2, hide = true, conflicts_with = "packs", value_names = ["BASELINE", "CANDIDATE"])]
    compare: Vec<PathBuf>,

    /// Folder for the reports, created when missing; `-` prints one report and writes none [default: probe-config].
    #[arg(short, long, alias = "output_path", value_name = "DIR")]
    pub(super) output: Option<PathBuf>,

    /// TOML file of expectations, asked before the table that comes with probe.
    #[arg(long, value_name = "FILE")]
    pub(super) rules: Option<PathBuf>,

    /// Count what is unknown (not recorded, or on one side only) as a difference.
    #[arg(long)]
    pub(super) strict: bool,

    /// Reports to write, with commas [default: text,xlsx,json,html]; `json` alone, without -o, is printed.
    #[arg(long, value_delimiter = ',', value_parser = config_format(), value_name = "FORMATS")]
    pub(super) format: Option<Vec<ConfigFormat>>,

    /// Differences to list in the terminal, of each part.
    #[arg(long, default_value_t = 10)]
    pub(super) top: usize,

    #[command(flatten)]
    pub(super) verbosity: ConfigVerbosity,
}

#[derive(Debug, Clone, Copy, Args)]
pub(super) struct ConfigVerbosity {
    /// Print the answer only.
    #[arg(short, long, conflicts_with = "verbose")]
    pub(super) quiet: bool,

    /// List every row of every part, also those that agree.
    #[arg(short, long)]
    pub(super) verbose: bool,
}

impl ConfigCheckArgs {
    /// The two packs.
    pub(super) fn packs(&self) -> Option<[&PathBuf; 2]> {
        match if self.compare.is_empty() { &*self.packs } else { &*self.compare } {
            [baseline, candidate] => Some([baseline, candidate]),
            _ => None,
        }
    }
}

/// Show what a dump or a tensor file holds: ops, slots and statistics, or one tensor's values.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probe inspect gpu_dump --op 'Functional.gelu.*'
  probe inspect gpu_dump --tensor 'Functional.gelu.0.forward output.0'
  probe inspect model.safetensors --format json")]
pub(super) struct InspectArgs {
    /// Dump folder, dump.json, or tensor file.
    pub(super) path: PathBuf,

    /// Only ops whose name matches this pattern (`*` stands for anything).
    #[arg(long, value_name = "PATTERN")]
    pub(super) op: Option<String>,

    /// Show values and histogram of one tensor: `OP SLOT` in one argument (`"Functional.gelu.0.forward output.0"`), or the name
    /// of a tensor in a file.
    #[arg(long, value_name = "NAME")]
    pub(super) tensor: Option<String>,

    /// Steps to show [default: all].
    #[arg(long, value_name = "STEPS")]
    pub(super) step: Option<NumberSet>,

    /// Ranks to show [default: all].
    #[arg(long, value_name = "RANKS")]
    pub(super) rank: Option<NumberSet>,

    /// Form of the answer on standard output.
    #[arg(long, value_enum, default_value_t = InspectFormat::Text, value_name = "FORMAT")]
    pub(super) format: InspectFormat,
}

/// Write a dump in another form: probe's own, or files of tensors.
///
/// DUMP is anything that `probe compare` takes: a dump of probe, of msprobe or of the CANN runtime, or tensors. Elements keep their bits; `.npy` has
/// no bfloat16 and no floats of 8 bits, which become float32, exactly. The folder must be new or empty, and appears when it is complete.
///
/// Exit codes: 0 done, 2 failed or misused, 3 something could not be read and was left out.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probe convert kernel_dump -o npu_dump                  CANN's files as one dump
  probe convert npu_dump -o tensors --format npy         a file for each tensor
  probe convert npu_dump -o one --step 3 --rank 0 --format safetensors")]
pub(super) struct ConvertArgs {
    /// What to convert.
    #[arg(value_name = "DUMP")]
    pub(super) path: PathBuf,

    /// Folder to write.
    #[arg(short, long, value_name = "FOLDER")]
    pub(super) output: PathBuf,

    /// What to write.
    #[arg(long, value_enum, default_value_t = ConvertFormat::Native, value_name = "FORMAT")]
    pub(super) format: ConvertFormat,

    /// Steps to convert, such as 3 or 0,10-12 [default: all].
    #[arg(long, value_name = "STEPS")]
    pub(super) step: Option<NumberSet>,

    /// Ranks to convert, such as 0 or 0-7 [default: all].
    #[arg(long, value_name = "RANKS")]
    pub(super) rank: Option<NumberSet>,

    /// Read files in pieces instead of mapping them: for network file systems and dumps still being written.
    #[arg(long)]
    pub(super) no_mmap: bool,

    /// Print nothing but what was left out.
    #[arg(short, long)]
    pub(super) quiet: bool,
}

/// What `convert` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ConvertFormat {
    /// A dump of probe's own format.
    Native,
    /// A .npy file for each tensor.
    Npy,
    /// Safetensors files.
    Safetensors,
}

/// Forms in which `inspect` answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum InspectFormat {
    /// For people.
    Text,
    /// For programs; `schemas/inspection.schema.json` describes it.
    Json,
}

/// Make a page to look at from an earlier result.
///
/// Reads nothing but the result.parquet that `probe compare` wrote: the dumps need not be there any more.
#[cfg(all(feature = "html", feature = "parquet"))]
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probe report probe-report                           probe-report/result.html
  probe report probe-report/result.parquet -o x.html")]
pub(super) struct ReportArgs {
    /// A result.parquet, or the folder that holds it.
    pub(super) result: PathBuf,

    /// The page, or a folder for it [default: result.html beside the result].
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,

    /// Print nothing.
    #[arg(short, long)]
    pub(super) quiet: bool,
}

/// Print the script that completes this command's words in a shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probe completions bash > ~/.local/share/bash-completion/completions/probe
  probe completions zsh > \"${fpath[1]}/_probe\"
  probe completions fish > ~/.config/fish/completions/probe.fish")]
pub(super) struct CompletionsArgs {
    /// The shell.
    pub(super) shell: clap_complete::Shell,
}

/// Write the manual pages of this command and its subcommands.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: probe man ~/.local/share/man/man1 && man probe-compare")]
pub(super) struct ManArgs {
    /// Folder for the pages; created when missing.
    #[arg(value_name = "DIR")]
    pub(super) folder: PathBuf,
}

/// Bytes, with or without a unit.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic() || letter == ' ');
    let unit = match text.get(digits.len()..).unwrap_or_default().trim() {
        "" | "B" => 1,
        "K" | "KB" => 1000,
        "KiB" => 1 << 10,
        "M" | "MB" => 1_000_000,
        "MiB" => 1 << 20,
        "G" | "GB" => 1_000_000_000,
        "GiB" => 1 << 30,
        other => return Err(format!("`{other}` is no unit of bytes: KB, KiB, MB, MiB, GB or GiB")),
    };
    let number: u64 =
        digits.parse().map_err(|_| "a whole number and a unit are needed, as in 64MB".to_owned())?;
    number.checked_mul(unit).ok_or_else(|| "more bytes than can be counted".to_owned())
}

/// A set of numbers, as it was typed: it is read again where it is used.
fn numbers(text: &str) -> Result<String, String> {
    if text == "all" {
        return Ok(text.to_owned());
    }
    let set: Result<NumberSet, _> = text.replace('|', ",").parse();
    set.map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn level() -> impl TypedValueParser<Value = LevelFilter> {
    PossibleValuesParser::new(LevelFilter::ALL.map(LevelFilter::name))
        .map(|word| LevelFilter::ALL.into_iter().find(|level| level.name() == word).unwrap_or_default())
}

fn format() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(Format::ALL.map(Format::name))
        .map(|word| Format::ALL.into_iter().find(|format| format.name() == word).unwrap_or(Format::Text))
}

fn config_format() -> impl TypedValueParser<Value = ConfigFormat> {
    PossibleValuesParser::new(ConfigFormat::ALL.map(ConfigFormat::name)).map(|word| {
        ConfigFormat::ALL.into_iter().find(|format| format.name() == word).unwrap_or(ConfigFormat::Text)
    })
}

/// The older tool's users type `-gp` and `-tp`, which are no short options to clap. What follows `--` is another program's.
pub(super) fn with_long_names(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut ours = true;
    let long = |arg: OsString| {
        ours &= arg != "--";
        match arg.to_str() {
            Some("-gp") if ours => "--golden-path".into(),
            Some("-tp") if ours => "--target-path".into(),
            _ => arg,
        }
    };
    args.into_iter().map(long).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn two_packs_are_needed() {
        for line in ["probe config-check a b", "probe config_check -c a b -o out"] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            let Command::ConfigCheck(args) = cli.command else { panic!("config-check") };
            assert_eq!(args.packs(), Some([&PathBuf::from("a"), &PathBuf::from("b")]), "{line}");
        }
        for line in ["probe config-check", "probe config-check a", "probe config-check a b c"] {
            assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }

    #[test]
    fn names_of_the_older_tool_are_understood() {
        for line in [
            "probe compare a b",
            "probe compare -b a -c b",
            "probe compare -gp a -tp b",
            "probe compare --golden_path a --target_path b",
            "probe compare --golden_path=a --target_path=b",
        ] {
            let cli = Cli::try_parse_from(with_long_names(line.split(' ').map(OsString::from))).unwrap();
            let Command::Compare(args) = cli.command else { panic!("compare") };
            assert_eq!(args.sides(), Some([&PathBuf::from("a"), &PathBuf::from("b")]), "{line}");
        }
        for line in ["", " a", " a b c", " -b a", " a -c b", " a b -b c"] {
            let line = format!("probe compare{line}");
            assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }

    #[test]
    fn a_captured_program_keeps_its_arguments() {
        let line = "probe capture --steps 10|20 --include conv1 --include fc -- python train.py -tp 2 --steps 5 -- x";
        let cli = Cli::try_parse_from(with_long_names(line.split(' ').map(OsString::from))).unwrap();
        let Command::Capture(args) = cli.command else { panic!("capture") };
        assert_eq!(
            args.command,
            ["python", "train.py", "-tp", "2", "--steps", "5", "--", "x"].map(OsString::from)
        );
        assert_eq!(
            (args.steps.as_deref(), args.include),
            (Some("10|20"), vec!["conv1".to_owned(), "fc".to_owned()])
        );
    }

    #[test]
    fn a_capture_without_a_program_or_with_a_misspelt_word_is_refused() {
        for line in [
            "probe capture --steps 1",
            "probe capture --",
            "probe capture --level modul -- true",
            "probe capture --task sketsh -- true",
            "probe capture --steps one -- true",
            "probe capture --stpes 1 -- true",
        ] {
            let parsed = Cli::try_parse_from(with_long_names(line.split(' ').map(OsString::from)));
            assert!(parsed.is_err(), "{line}");
        }
    }
}
