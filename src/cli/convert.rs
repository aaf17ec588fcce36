//! `probe convert`.

use std::fmt::Write as _;

use super::Exit;
use super::args::{ConvertArgs, ConvertFormat};
use super::interrupt::leave_no_tree_behind;
use super::terminal;
use crate::convert::{Conversion, ConvertDraft, ConvertOptions, Target, convert};
use crate::read::map::FileAccess;
use crate::report::number::counted;

/// Lines of what was left out that are printed.
const LISTED: usize = 20;

/// Runs the subcommand.
pub(super) fn run(args: &ConvertArgs) -> anyhow::Result<Exit> {
    let options = ConvertOptions {
        target: match args.format {
            ConvertFormat::Native => Target::Native,
            ConvertFormat::Npy => Target::Npy,
            ConvertFormat::Safetensors => Target::Safetensors,
        },
        steps: args.step.clone().unwrap_or_default(),
        ranks: args.rank.clone().unwrap_or_default(),
        access: if args.no_mmap { FileAccess::Read } else { FileAccess::Map },
    };
    let draft = ConvertDraft::create(&args.output)?;
    leave_no_tree_behind(draft.folder().to_path_buf())?;
    let found = convert(&args.path, draft, &options)?;
    if !args.quiet {
        terminal::print(&text(args, &found))?;
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
        _ = writeln!(text, "{widened} of them became float32, exactly: the format does not have their types");
    }
    if *without_data > 0 {
        _ = writeln!(text, "{} recorded without their data", counted(*without_data, "tensor"));
    }
    text
}
