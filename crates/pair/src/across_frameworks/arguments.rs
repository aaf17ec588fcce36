//! Arguments of functions, which the two frameworks take in different orders and under different names.

use super::table::{Argument, Table};
use crate::mapping::Function;
use probe_dump::{Op, Slot, SlotName, SlotSide, Value};

/// Gives the arguments of both ops the positions that PyTorch's function has for them. An argument that only one side
/// recorded is held against the other side's default. Arguments without a counterpart are removed.
///
/// Nothing is known of functions without a signature: their tensors pair by position, and other arguments only if the
/// function is one of `mint`, which has PyTorch's signatures.
pub(super) fn arrange(torch: &mut Op, mindspore: &mut Op, own: &str) {
    let signature = Table::get().signature(torch.name.stem());
    let Some((theirs, ours)) = signature.and_then(|found| Some((&*found.torch, found.mindspore(own)?)))
    else {
        if !own.starts_with("Mint") {
            mindspore.slots.retain(|slot| slot.side != SlotSide::Input || slot.value.tensor().is_some());
        }
        return;
    };
    place(torch, theirs);
    place(mindspore, ours);
    let written = [given(torch), given(mindspore)];
    fill(torch, theirs, &written[1]);
    fill(mindspore, ours, &written[0]);
}

/// Gives arguments and results the positions that the user named; others are removed, if any was named.
pub(super) fn as_mapped(mindspore: &mut Op, function: &Function) {
    if function.slots.is_empty() {
        return;
    }
    mindspore.slots.retain_mut(|slot| {
        let known = function.slots.iter().find_map(|(own, torch)| {
            let rest = slot.path.strip_prefix(&**own)?;
            (rest.is_empty() || rest.starts_with('.')).then(|| format!("{torch}{rest}"))
        });
        match known {
            Some(path) => slot.name = SlotName { path: path.into(), side: slot.side }.into(),
            None => return false,
        }
        true
    });
}

/// Renames the arguments to their positions in PyTorch's function.
fn place(op: &mut Op, arguments: &[Argument]) {
    op.slots.retain_mut(|slot| {
        if slot.side != SlotSide::Input {
            return true;
        }
        let mut parts = slot.path.splitn(3, '.');
        let (kind, name, rest) = (parts.next(), parts.next().unwrap_or_default(), parts.next());
        let argument = match kind {
            Some("input") => name.parse::<usize>().ok().and_then(|at| arguments.get(at)),
            _ => arguments.iter().find(|argument| argument.keyword == name),
        };
        let Some(place) = argument.and_then(|argument| argument.place) else { return false };
        let rest = rest.map(|rest| format!(".{rest}")).unwrap_or_default();
        slot.name = SlotName { path: format!("input.{place}{rest}").into(), side: slot.side }.into();
        slot.value != Value::None
    });
}

/// Returns the paths of the arguments.
fn given(op: &Op) -> Vec<Box<str>> {
    op.slots.iter().filter(|slot| slot.side == SlotSide::Input).map(|slot| slot.path.clone()).collect()
}

/// Adds the defaults of arguments that only the other side recorded.
fn fill(op: &mut Op, arguments: &[Argument], other: &[Box<str>]) {
    let own = given(op);
    for argument in arguments {
        let (Some(place), Some(default)) = (argument.place, &argument.default) else { continue };
        let path = format!("input.{place}");
        let is_given = |paths: &[Box<str>]| paths.iter().any(|other| **other == *path);
        if is_given(other) && !is_given(&own) {
            let end = op.slots.iter().filter(|slot| slot.side == SlotSide::Input).count();
            op.slots.insert(end, Slot::new(path, SlotSide::Input, Value::Scalar(default.clone())));
        }
    }
}
