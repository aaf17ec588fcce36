//! `probe convert`.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;

use super::interrupt::leave_no_tree_behind;
use super::print::PrintFormat;
use super::scratch::Scratch;
use super::{Exit, terminal};
use crate::cli::commands::CommandReport;
use crate::convert::{Conversion, ConvertDraft, ConvertOptions, Target, convert};
use crate::dump::{NumberSet, native::MANIFEST};
use crate::files::map::FileAccess;
use crate::report::number::counted;
use crate::store::{Selection, Stores};

/// Write a dump in another format: probe's own, or files of tensors.
///
/// DUMP is anything that `probe compare` takes: a dump of probe, of msprobe or of the CANN runtime, or tensors. Elements keep their bits; `.npy` has
/// no bfloat16 and no 8-bit floats, which are converted to float32, exactly. The folder must be new or empty; it appears when it is complete.
///
/// Exit codes: 0 done, 2 failed or misused, 3 something could not be read and was left out.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probe convert kernel_dump -o npu_dump                  CANN's files as one dump
  probe convert npu_dump -o tensors --to npy             a file for each tensor
  probe convert npu_dump -o one --step 3 --rank 0 --to safetensors")]
pub(super) struct ConvertArgs {
    /// Dump or tensors to convert.
    #[arg(value_name = "DUMP")]
    pub(super) path: PathBuf,

    /// Output folder.
    #[arg(short, long, value_name = "FOLDER")]
    pub(super) output: PathBuf,

    /// Output format.
    #[arg(long, value_enum, default_value_t = Form::Native, value_name = "FORM")]
    pub(super) to: Form,

    /// Steps to convert, such as 3 or 0,10-12 [default: all].
    #[arg(long, value_name = "STEPS")]
    pub(super) step: Option<NumberSet>,

    /// Ranks to convert, such as 0 or 0-7 [default: all].
    #[arg(long, value_name = "RANKS")]
    pub(super) rank: Option<NumberSet>,

    /// Read files in pieces instead of mapping them: for network file systems and dumps still being written.
    #[arg(long)]
    pub(super) no_mmap: bool,

    #[command(flatten)]
    pub(super) scratch: Scratch,

    /// Format of the summary.
    #[arg(long, value_enum, default_value_t)]
    format: PrintFormat,

    /// Print only what was left out.
    #[arg(short, long)]
    pub(super) quiet: bool,
}

/// Formats that `convert` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Form {
    /// A dump of probe's own format.
    Native,
    /// A .npy file for each tensor.
    Npy,
    /// Safetensors files.
    Safetensors,
}

/// Most lines printed about left-out items.
const LISTED: usize = 20;

/// Runs the subcommand.
pub(super) fn run(args: &ConvertArgs, stores: &dyn Stores) -> anyhow::Result<Exit> {
    let mut stage = args.scratch.stage(stores, args.quiet)?;
    let selection = Selection::of(args.step.as_ref(), args.rank.as_ref());
    let output = stage.new_output(&args.output)?;
    let path = stage.dump(&args.path, &selection)?;
    let options = ConvertOptions {
        target: match args.to {
            Form::Native => Target::Native,
            Form::Npy => Target::Npy,
            Form::Safetensors => Target::Safetensors,
        },
        steps: selection.steps,
        ranks: selection.ranks,
        access: if args.no_mmap { FileAccess::Read } else { FileAccess::Map },
        copies: stage.copies().clone(),
    };
    let draft = ConvertDraft::create(&options.copies.place(&output))?;
    leave_no_tree_behind(draft.folder().to_path_buf())?;
    let found = convert(&path, &draft, &options);
    stage.sound()?;
    let found = found?;
    draft.place()?;
    stage.deliver_folder(&output, MANIFEST)?;
    match args.format {
        PrintFormat::Json => {
            terminal::print(&CommandReport::of_conversion(&args.output, options.target, &found).text()?)?;
        }
        PrintFormat::Text if args.quiet => {}
        PrintFormat::Text => terminal::print(&text(args, &found))?,
    }
    for left_out in found.left_out.iter().take(LISTED) {
        terminal::error(&anyhow::anyhow!("left out: {left_out}"));
    }
    if found.left_out.len() > LISTED {
        terminal::error(&anyhow::anyhow!(
            "left out: {} more; `probe inspect {}` lists them",
            found.left_out.len() - LISTED,
            args.path.display()
        ));
    }
    Ok(if found.left_out.is_empty() { Exit::Agree } else { Exit::Incomplete })
}

fn text(args: &ConvertArgs, found: &Conversion) -> String {
    let Conversion { parts, ops, tensors, bytes, without_data, widened, .. } = found;
    let mut text = format!(
        "{}: {} ({}) of {}, {}\n",
        args.output.display(),
        counted(*tensors, "tensor"),
        counted(*bytes, "byte"),
        counted(*ops, "op"),
        counted(*parts, "part")
    );
    if *widened > 0 {
        _ = writeln!(
            text,
            "{widened} of them were converted to float32, exactly: the format lacks their types"
        );
    }
    if *without_data > 0 {
        _ = writeln!(text, "{} recorded without their data", counted(*without_data, "tensor"));
    }
    text
}
