//! `probe capture`: runs the user's program with the recorder inside it.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, fs};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::args::{numbers, size};
use super::program::{self, Order};
use super::{Exit, packs, terminal, twin};
use crate::capture::{self, Existing};
use crate::dump::native::{NOISE_FOLDER, RUNTIME_FOLDER};

/// Run a program and record the inputs and outputs of every torch op; the program itself is not changed.
///
/// Each optimizer step ends an iteration, unless --step-on says otherwise. Every option but --twin is also a key of the --config file; options
/// override the file.
///
/// The exit code is the program's own; 2 if it could not be started.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probe capture --steps 10-12 -o gpu_dump -- python train.py --batch 8
  probe capture --ranks 0 --task tensor -- torchrun train.py
  probe capture --include 'layers.3.*' --level op -- python train.py
  probe capture --pack --twin --steps 0 -o gpu_dump -- python train.py
  probe capture --perturb -o gpu_noise -- python train.py
  probe capture --inject gpu_dump --at layers.3.mlp -o npu_alone -- python train.py
  probe capture --recheck --poison --steps 0 -- python train.py
  probe capture --step-on model --control record -o dump -- python serve.py
  probe capture --runtime acl --steps 10 -o npu_dump -- python train.py
  probe capture --runtime acl --step-on aclnnApplyAdamWV2 -- ./train
  probe capture --runtime acl-dump --steps 10 -o kernel_dump -- python train.py")]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub(super) struct CaptureArgs {
    /// TOML file of settings.
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,

    /// Folder of the dump [default: `probe_dump`].
    #[arg(short, long, value_name = "DUMP")]
    pub(super) output: Option<PathBuf>,

    /// Replace an existing dump in the folder.
    #[arg(long)]
    pub(super) overwrite: bool,

    /// Iterations to record, such as 10,20 or 10-12 [default: all].
    #[arg(long, value_name = "STEPS", value_parser = numbers)]
    pub(super) steps: Option<String>,

    /// End of an iteration: steps of the `optimizer`, calls of the `model`, only calls of `probe.step()` (`program`), or calls of
    /// the function or module of this name [default: optimizer]. With --runtime, also launches of the operator of this name
    /// (`aclnnApplyAdamWV2`).
    #[arg(long, value_name = "WHAT")]
    pub(super) step_on: Option<String>,

    /// Record nothing until a number is written to FILE while the program runs, such as 3: then the next 3 iterations, each time.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["steps", "runtime"])]
    pub(super) control: Option<PathBuf>,

    /// Ranks to record, such as 0 or 0-7 [default: all].
    #[arg(long, value_name = "RANKS", value_parser = numbers)]
    pub(super) ranks: Option<String>,

    /// Kinds of op to record: module calls, torch functions, both (mix), or dispatcher ops [default: mix].
    #[arg(long, value_parser = ["module", "api", "mix", "op", "save"])]
    pub(super) level: Option<String>,

    /// Data to record of each tensor [default: sketch].
    #[arg(long, value_parser = ["statistics", "sketch", "hash", "tensor"])]
    pub(super) task: Option<String>,

    /// Record only this op or module and everything that runs inside it (`*` matches anything); repeatable.
    #[arg(long, value_name = "NAME")]
    pub(super) include: Vec<String>,

    /// Leave out this op or module and everything that runs inside it; repeatable.
    #[arg(long, value_name = "NAME")]
    pub(super) exclude: Vec<String>,

    /// Limit on the tensor data of one step and rank, such as 2GB; beyond it, tensors are recorded as sketches.
    #[arg(long, value_name = "SIZE")]
    pub(super) max_bytes: Option<String>,

    /// Record below Python, in any program on CANN: `acl` records every aclnn operator that is launched, instead of torch ops, or with
    /// --level in addition to them, in DUMP/runtime; `acl-dump` collects the dump files that CANN itself writes, also of graphs.
    #[arg(long, value_enum, value_name = "RUNTIME")]
    pub(super) runtime: Option<Runtime>,

    /// With --runtime: record tensors above this size without values, such as 64MB [default: half of --ring].
    #[arg(long, requires = "runtime", value_name = "SIZE", value_parser = size)]
    pub(super) max_tensor: Option<u64>,

    /// With --runtime: pinned memory between the device and the writer; launches wait while it is full [default: 256MiB].
    #[arg(long, requires = "runtime", value_name = "SIZE", value_parser = size)]
    pub(super) ring: Option<u64>,

    /// With --runtime acl: pinned memory for the tensors of graphs (`NPUGraph`); 0 leaves replays of graphs unrecorded [default: 256MiB].
    #[arg(long, requires = "runtime", value_name = "SIZE", value_parser = size)]
    pub(super) graph_memory: Option<u64>,

    /// Change the run: perturb weights and inputs by one rounding error, at random, so that the dump shows the effect of rounding
    /// (`probe compare --noise`).
    #[arg(long, value_name = "SEED", num_args = 0..=1, default_missing_value = "0", value_parser = clap::value_parser!(u32).range(..1 << 31))]
    pub(super) perturb: Option<u32>,

    /// Run the program once more afterwards, up to the last recorded step, with weights and inputs perturbed by one rounding, and keep
    /// that as noise in the dump: `probe compare` then allows for it. The program must repeat itself (seeds).
    #[arg(long, conflicts_with_all = ["runtime", "control", "perturb", "inject"])]
    pub(super) twin: bool,

    /// Write the configuration pack of the run beside the dump, as DUMP.config.zip, for `probe config-check` and `probe compare`.
    #[arg(long)]
    pub(super) pack: bool,

    /// Change the run: give ops the values that DUMP recorded (with --task tensor) in place of their own, so that each shows its own
    /// error alone.
    #[arg(long, value_name = "DUMP", conflicts_with_all = ["runtime", "control", "perturb"])]
    pub(super) inject: Option<PathBuf>,

    /// With --inject: replace values of this op, or of what runs inside this module; repeatable [default: all].
    #[arg(long, value_name = "NAME", requires = "inject")]
    pub(super) at: Vec<String>,

    /// With --inject: values to replace, of `inputs`, `gradients` (those that arrive at results) and `results` [default: inputs].
    #[arg(long, value_name = "WHAT", requires = "inject", value_delimiter = ',', value_parser = ["inputs", "gradients", "results"])]
    pub(super) replace: Vec<String>,

    /// Hold what ops read against what ops have written there, and name the writer and the reader where memory has changed in between.
    #[arg(long)]
    pub(super) recheck: bool,

    /// Fill memory that torch hands out unwritten with NaN, and name who reads it.
    #[arg(long)]
    pub(super) poison: bool,

    /// Do not print the summary.
    #[arg(short, long)]
    pub(super) quiet: bool,

    /// The program and its arguments, after `--`.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
}

/// Ways to record below Python.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Runtime {
    /// Launches of operators.
    Acl,
    /// Dumps that CANN makes itself.
    AclDump,
}

/// Runs the subcommand. Returns only if the program could not be started.
pub(super) fn run(args: &CaptureArgs) -> anyhow::Result<Exit> {
    let settings = settings(args)?;
    check(args)?;
    if args.twin {
        return twice(args, settings);
    }
    let runtime = match args.runtime {
        Some(runtime) => Some(below_python(args, runtime, &place(args)?.0)?),
        None => None,
    };
    program::run(&args.command, &order(&settings), runtime.as_deref().unwrap_or_default(), || prepare(args))
}

/// Returns the order of these settings.
fn order(settings: &Value) -> Order {
    Order {
        variable: "PROBE_CAPTURE",
        value: settings.to_string(),
        // Owner, pack and runtime settings inherited from a command that this one runs inside.
        stale: &["PROBE_CAPTURE_OWNER", "PROBE_CONFIG_CHECK", "PROBE_RUNTIME"],
    }
}

/// Runs the program with `settings`, and then once more, perturbed.
fn twice(args: &CaptureArgs, mut settings: Value) -> anyhow::Result<Exit> {
    let file = file(args);
    for key in ["perturb", "inject", "control", "keep"] {
        if file.contains_key(key) {
            bail!("--twin: measures the noise of an ordinary run; leave out `{key}` in the file of --config");
        }
    }
    let chosen = |option: &Option<String>, key: &str, word| {
        option.as_deref().or_else(|| file.get(key)?.as_str()) == Some(word)
    };
    if chosen(&args.task, "task", "hash") {
        bail!("--twin: hashes have no size, so every one of them would differ; choose another task");
    }
    if chosen(&args.level, "level", "save") {
        bail!("--twin: nothing is perturbed at level save; choose another level");
    }
    let (dump, _) = place(args)?;
    let noise = dump.join(NOISE_FOLDER);
    settings["arguments"]["output"] = text(&dump)?.into();
    let plain = program::ready(&args.command, &order(&settings), &[], || prepare(args))?;
    let moved = || {
        let changes = [
            ("output", text(&noise)?.into()),
            ("perturb", 0.into()),
            ("pack", false.into()),
            ("quiet", true.into()),
        ];
        for (key, value) in changes {
            settings["arguments"][key] = value;
        }
        settings["run"] = run_identity().into();
        settings["stop"] = true.into();
        program::ready(&args.command, &order(&settings), &[], || Ok(()))
    };
    twin::run(&plain, moved, [&dump, &noise], args.quiet || is_set(&file, "quiet"))
}

/// Rejects options that cannot be combined.
fn check(args: &CaptureArgs) -> anyhow::Result<()> {
    let counted = counted(args).is_some();
    if counted && args.level.is_some() {
        bail!(
            "--step-on with an operator counts steps below Python; torch ops recorded with it (--level) count their own: leave one out"
        );
    }
    if counted && args.pack {
        bail!(
            "--pack: is written when torch's model is called, and --step-on with an operator leaves torch alone"
        );
    }
    if args.runtime != Some(Runtime::AclDump) {
        return Ok(());
    }
    let without = [
        ("--level", args.level.is_some()),
        ("--task", args.task.as_deref().is_some_and(|task| task != "tensor")),
        ("--max-tensor", args.max_tensor.is_some()),
        ("--ring", args.ring.is_some()),
        ("--graph-memory", args.graph_memory.is_some()),
        ("--max-bytes", args.max_bytes.is_some()),
        ("--perturb", args.perturb.is_some()),
        ("--recheck", args.recheck),
        ("--poison", args.poison),
    ];
    match without.into_iter().find(|(_, given)| *given) {
        Some((option, _)) => {
            bail!("--runtime acl-dump: CANN dumps only whole tensors; {option} does not apply")
        }
        None => Ok(()),
    }
}

/// Returns the operator whose launch ends a step, if one does.
fn counted(args: &CaptureArgs) -> Option<&str> {
    let operator =
        |name: &&str| args.runtime.is_some() && ["aclnn", "aclop"].iter().any(|kind| name.starts_with(kind));
    args.step_on.as_deref().filter(operator)
}

/// The library that records below Python.
const AGENT: &str = "libprobe_agent.so";
/// Variable with its path.
const AGENT_VARIABLE: &str = "PROBE_AGENT";
/// Variable with its settings.
const RUNTIME_VARIABLE: &str = "PROBE_RUNTIME";

/// Returns variables that load the agent into the program, and tell it what to record.
fn below_python(
    args: &CaptureArgs,
    runtime: Runtime,
    output: &Path,
) -> anyhow::Result<Vec<(&'static str, OsString)>> {
    let agent = agent()?;
    let mut preload = agent.into_os_string();
    if let Some(before) = env::var_os("LD_PRELOAD").filter(|before| !before.is_empty()) {
        preload.push(":");
        preload.push(before);
    }
    let beside = args.level.is_some();
    let output = if beside { output.join(RUNTIME_FOLDER) } else { output.to_path_buf() };
    let mut settings = json!({
        "output": output,
        "dumps": runtime == Runtime::AclDump,
        "steps": args.steps.clone().unwrap_or_default(),
        "ranks": args.ranks.clone().unwrap_or_default(),
        "task": args.task.clone().unwrap_or_else(|| "sketch".into()),
        "run": run_identity(),
        "step_on": counted(args),
        "max_tensor": args.max_tensor,
        "overwrite": args.overwrite,
        "quiet": args.quiet,
    });
    for (key, bytes) in [("ring", args.ring), ("graph_memory", args.graph_memory)] {
        if let Some(bytes) = bytes {
            settings[key] = bytes.into();
        }
    }
    if !beside {
        settings["include"] = json!(args.include);
        settings["exclude"] = json!(args.exclude);
    }
    let mut variables = vec![("LD_PRELOAD", preload), (RUNTIME_VARIABLE, settings.to_string().into())];
    if beside && env::var_os("TASK_QUEUE_ENABLE").is_some_and(|value| value == "2") {
        // The other thread could not distinguish operators of the recorder from those of the
        // program.
        terminal::note(
            "TASK_QUEUE_ENABLE is set to 1 for this run: with 2, torch ops and the operators below them cannot be recorded together",
        );
        variables.push(("TASK_QUEUE_ENABLE", "1".into()));
    }
    Ok(variables)
}

/// Returns the path of the agent: given by the variable, in the package, or next to this program.
fn agent() -> anyhow::Result<PathBuf> {
    if !cfg!(target_os = "linux") {
        bail!("--runtime: works only on Linux, where CANN runs");
    }
    if let Some(path) = env::var_os(AGENT_VARIABLE).map(PathBuf::from) {
        if path.is_file() {
            return Ok(std::path::absolute(path)?);
        }
        bail!("{AGENT_VARIABLE}={}: no such file", path.display());
    }
    let package = env::var_os("PROBE_PACKAGE").map(PathBuf::from);
    let beside = env::current_exe().ok().and_then(|program| program.parent().map(Path::to_path_buf));
    let found =
        [package, beside].into_iter().flatten().map(|folder| folder.join(AGENT)).find(|path| path.is_file());
    found.with_context(|| {
        format!(
            "--runtime: {AGENT} not found; build it with `cargo build --release --locked -p probe-agent` and set \
             {AGENT_VARIABLE}=target/release/{AGENT}"
        )
    })
}

/// Checks that the dump can be created, before the program runs in vain.
fn prepare(args: &CaptureArgs) -> anyhow::Result<()> {
    let (output, overwrite) = place(args)?;
    let existing = if args.overwrite || overwrite { Existing::Replace } else { Existing::Keep };
    if args.runtime == Some(Runtime::AclDump) {
        // A launcher runs this command once per rank: later ranks find the dump that others have begun.
        let several = env::var("WORLD_SIZE").is_ok_and(|size| size.parse().is_ok_and(|size: u32| size > 1));
        return if several { Ok(()) } else { Ok(capture::prepare_cann(&output, existing, "--overwrite")?) };
    }
    capture::prepare(&output, existing, "--overwrite")?;
    if args.pack || is_set(&file(args), "pack") {
        // A pack that an earlier run left would describe that one if this one wrote none.
        let pack = packs::beside(&output);
        match fs::remove_file(&pack) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).context(pack.display().to_string());
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns the folder of the dump, and whether the settings file asks to replace an old one.
fn place(args: &CaptureArgs) -> anyhow::Result<(PathBuf, bool)> {
    let file = file(args);
    let written = file.get("output").and_then(toml::Value::as_str).map(PathBuf::from);
    let output = args.output.clone().or(written).unwrap_or_else(|| "probe_dump".into());
    let output = match (output.strip_prefix("~"), env::home_dir()) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => output,
    };
    Ok((std::path::absolute(output)?, is_set(&file, "overwrite")))
}

/// Returns the content of the settings file, empty if there is none or it cannot be read: the package reports that.
fn file(args: &CaptureArgs) -> toml::Table {
    let text = args.config.as_ref().and_then(|path| fs::read_to_string(path).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn is_set(file: &toml::Table, key: &str) -> bool {
    file.get(key).and_then(toml::Value::as_bool).unwrap_or_default()
}

fn text(path: &Path) -> anyhow::Result<String> {
    path.to_str().map(String::from).with_context(|| format!("{}: is not UTF-8", path.display()))
}

/// Creates the identity of this run, by which its ranks recognise one another.
fn run_identity() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:x}-{:x}", now.as_nanos(), std::process::id())
}

/// Returns the requested settings, with the keys of `probe.toml`.
fn settings(args: &CaptureArgs) -> anyhow::Result<Value> {
    let mut settings = Map::new();
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            settings.insert(key.into(), value);
        }
    };
    set("output", args.output.as_deref().map(text).transpose()?.map(Value::from));
    set("steps", args.steps.clone().map(Value::from));
    // The agent counts operators by itself.
    set("step_on", args.step_on.clone().filter(|_| counted(args).is_none()).map(Value::from));
    let control = args.control.as_deref().map(std::path::absolute).transpose()?;
    set("control", control.as_deref().map(text).transpose()?.map(Value::from));
    set("ranks", args.ranks.clone().map(Value::from));
    set("level", args.level.clone().map(Value::from));
    set("task", args.task.clone().map(Value::from));
    set("max_bytes", args.max_bytes.clone().map(Value::from));
    set("perturb", args.perturb.map(Value::from));
    let inject = args.inject.as_deref().map(std::path::absolute).transpose()?;
    if let Some(dump) = &inject {
        fs::metadata(dump).with_context(|| format!("{} (--inject)", dump.display()))?;
    }
    set("inject", inject.as_deref().map(text).transpose()?.map(Value::from));
    set("inject_at", Some(&args.at).filter(|names| !names.is_empty()).map(|names| json!(names)));
    set("replace", Some(&args.replace).filter(|words| !words.is_empty()).map(|words| json!(words)));
    set("pack", args.pack.then(|| true.into()));
    set("recheck", args.recheck.then(|| true.into()));
    set("poison", args.poison.then(|| true.into()));
    set("quiet", args.quiet.then_some(Value::from(true)));
    set("include", Some(&args.include).filter(|names| !names.is_empty()).map(|names| json!(names)));
    set("exclude", Some(&args.exclude).filter(|names| !names.is_empty()).map(|names| json!(names)));
    set("overwrite", args.overwrite.then(|| true.into()));
    let config = match &args.config {
        Some(path) => {
            fs::metadata(path).with_context(|| path.display().to_string())?;
            Some(text(&std::path::absolute(path)?)?)
        }
        None => None,
    };
    let directory = text(&env::current_dir().context("the working folder")?)?;
    let mut order =
        json!({ "config": config, "arguments": settings, "directory": directory, "run": run_identity() });
    if args.runtime.is_some() {
        let how = if counted(args).is_some() {
            "alone"
        } else if args.level.is_some() {
            "beside"
        } else {
            "only"
        };
        order["runtime"] = how.into();
    }
    Ok(order)
}
