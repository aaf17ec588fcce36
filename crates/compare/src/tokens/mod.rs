//! Two runs of one language model that hold the same tokens in batches of other forms: an engine packs tokens and decodes one after the
//! other, a trainer pads rows. Both are viewed as tokens, each identified by the tokens before it in its sequence.
//!
//! Forward calls of modules are compared. The calls of a module in all passes become one op whose values have a row for each token that
//! both sides have, in the order of the baseline.

mod frame;
mod fused;
mod requests;
mod ties;
mod view;

use std::collections::HashMap;

use probe_dump::Rank;

use frame::{Frame, Key};
pub(super) use requests::gather;
use view::View;

/// Replaces the ops of both sides by their views as tokens.
///
/// # Errors
/// The reason why a side cannot be viewed so.
pub(super) fn take(baseline: &mut Rank, candidate: &mut Rank) -> Result<(), String> {
    let of = |rank: &Rank, side: &str| Frame::of(rank).map_err(|reason| format!("the {side} {reason}"));
    let (mut b, mut c) = (of(baseline, "baseline")?, of(candidate, "candidate")?);
    // The side that has whole sequences tells how those of the other go on.
    if c.continues() && !b.continues() {
        b.name(None);
        c.name(Some(&b));
    } else {
        c.name(None);
        b.name(Some(&c));
    }
    let [b_places, c_places] = shared(&b, &c);
    if b_places.is_empty() {
        return Err(format!(
            "the two sides share no token: of {} and {} tokens, no two have the same ids before them; record the same sequences",
            b.count(),
            c.count(),
        ));
    }
    let of = |(frame, side): (&Frame, &str)| {
        format!("{} of the {side} in {}", frame.tokens().count(), frame.described())
    };
    let notes = [(&b, "baseline"), (&c, "candidate")].map(of).join(", ");
    let mut places = [b_places, c_places];
    let mut views = aligned([baseline, candidate], [&b, &c], &places);
    if let Some(kept) = ties::untouched(&views, &b, &places[0]) {
        let before = kept.len();
        for places in &mut places {
            let mut kept = kept.iter();
            places.retain(|_| kept.next().is_some_and(|kept| *kept));
        }
        baseline.notes.push(format!(
            "{} of {before} tokens are not compared: they, or tokens before them, went to other experts where rounding decides",
            before - places[0].len()
        ));
        views = aligned([baseline, candidate], [&b, &c], &places);
    }
    if views.iter().any(|view| view.ops.is_empty()) {
        return Err(
            "no module at the same path has values with a row for each token on both sides; record modules with task tensor"
                .into(),
        );
    }
    let [b_view, c_view] = &mut views;
    baseline.notes.push(format!("{} tokens are compared: {notes}", b_view.tokens()));
    for (view, rank, side) in [(b_view, baseline, "baseline"), (c_view, candidate, "candidate")] {
        let left = view.put_into(rank);
        if left > 0 {
            rank.notes.push(format!(
                "{left} calls of the {side} have no row for each token or no partner, and are not compared"
            ));
        }
    }
    Ok(())
}

/// Returns views of both sides that pair: joint projections as one, modules under one name, values of one shape.
fn aligned(ranks: [&Rank; 2], frames: [&Frame; 2], places: &[Vec<(usize, usize)>; 2]) -> [View; 2] {
    let mut views = [0, 1].map(|side| View::of(ranks[side], frames[side], places[side].clone()));
    fused::join(&mut views);
    let [b_view, c_view] = &mut views;
    b_view.rename(c_view);
    fused::unpad(&mut views);
    fused::reconcile(&mut views);
    views
}

/// Returns pass and place of each token that both sides have, in the order of the baseline. Of equal tokens after equal tokens, as in
/// samples of one prompt, the first of one side belongs to the first of the other.
fn shared(b: &Frame, c: &Frame) -> [Vec<(usize, usize)>; 2] {
    let mut theirs: HashMap<Key, Vec<(usize, usize)>> = HashMap::new();
    for (place, key) in c.tokens() {
        theirs.entry(key).or_default().push(place);
    }
    for places in theirs.values_mut() {
        places.reverse();
    }
    let pairs = b.tokens().filter_map(|(place, key)| Some((place, theirs.get_mut(&key)?.pop()?)));
    let (ours, theirs) = pairs.unzip();
    [ours, theirs]
}
