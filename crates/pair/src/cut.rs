//! Handles a step that one side did not finish: ops after its end are not a difference between the runs.

use std::collections::{HashMap, HashSet};

use probe_dump::{Op, Rank};

/// Removes ops from each side that the other did not reach because its program ended inside the step, and says
/// so in a note on that side.
pub fn keep_reached(baseline: &mut Rank, candidate: &mut Rank) {
    reach(baseline, candidate, ["baseline", "candidate"]);
    reach(candidate, baseline, ["candidate", "baseline"]);
}

/// Cuts `whole` at the end of `cut`.
fn reach(whole: &mut Rank, cut: &mut Rank, [side, other]: [&str; 2]) {
    if !cut.cut {
        return;
    }
    let places: HashMap<&str, usize> =
        whole.ops.iter().enumerate().map(|(place, op)| (op.name.as_str(), place)).collect();
    // Calls ended by an exception were begun but not finished: surrounding modules are recorded last and would
    // extend to the end.
    let finished = cut.ops.iter().filter(|op| !op.raised);
    let reached = finished.filter_map(|op| places.get(op.name.as_str())).max().map_or(0, |last| last + 1);
    if reached == 0 && !cut.ops.is_empty() {
        // The names are entirely different.
        return;
    }
    // Nothing is known of a call that only this side began.
    cut.ops.retain(|op| !op.raised || places.contains_key(op.name.as_str()));
    let begun: HashMap<&str, &Op> = cut.ops.iter().map(|op| (op.name.as_str(), op)).collect();
    let mut place = 0;
    let before = whole.ops.len();
    whole.ops.retain(|op| {
        place += 1;
        place <= reached || begun.contains_key(op.name.as_str())
    });
    let left = before - whole.ops.len();
    for op in &mut whole.ops {
        let Some(partner) = begun.get(op.name.as_str()).filter(|partner| partner.raised) else { continue };
        let paths: HashSet<&str> = partner.slots.iter().map(|slot| &*slot.path).collect();
        op.slots.retain(|slot| paths.contains(&*slot.path));
    }
    if left > 0 {
        whole
            .notes
            .push(format!("ops of the {side} that the {other} never reached are not compared: {left}"));
    }
}
