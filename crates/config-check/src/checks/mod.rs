//! One independent check per part: a failure in one becomes a row of that part.

mod context;
mod coverage;
mod dataloader;
mod dataset;
mod env;
mod hyperparameters;
mod model;
mod modules;
mod optimizer;
mod pip;
mod random;
mod rows;
mod schedule;
mod settings;
mod statistics;
mod weights;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub(super) use context::Context;
use rows::Rows;

use super::expectations::{Ruling, Subject};
use super::outcome::{PartOutcome, Row};
use super::pack::{DeviceKind, Pack, Parts, Record, Setting};
use super::part::{Part, Verdict};

/// Checks one part.
pub(super) fn run(part: Part, context: &Context<'_>) -> PartOutcome {
    // A panic is a bug in this check; the other checks still run.
    let rows = catch_unwind(AssertUnwindSafe(|| rows_of(part, context))).unwrap_or_else(|_| {
        let mut rows = Rows::new(context, part);
        let ruling = Ruling::new(Verdict::Unknown, "the check of this part failed");
        rows.push(part.name(), None, None, ruling.todo("report this as a bug of probe, with both packs"));
        rows.into_rows()
    });
    PartOutcome::of(part, rows.into_iter().map(|row| overruled(row, part, context)).collect())
}

/// Applies the user's rules to a row.
fn overruled(mut row: Row, part: Part, context: &Context<'_>) -> Row {
    if row.verdict != Verdict::Match {
        let subject = Subject {
            part,
            key: &row.key,
            baseline: row.baseline.as_deref(),
            candidate: row.candidate.as_deref(),
        };
        if let Some(ruling) = context.expectations.user_ruling(context.pair, subject) {
            (row.verdict, row.reason, row.action) = (ruling.verdict, ruling.why, ruling.todo);
        }
    }
    row
}

fn rows_of(part: Part, context: &Context<'_>) -> Vec<Row> {
    let mut rows = Rows::new(context, part);
    faults(&mut rows, context);
    if part == Part::Coverage {
        coverage::check(&mut rows, context);
        return rows.into_rows();
    }
    device(&mut rows, context);
    match (context.baseline.has(part), context.candidate.has(part)) {
        (true, true) => ranks(&mut rows, context),
        (false, false) => absent(&mut rows, context),
        (baseline, _) => {
            let recorded = || Some("recorded".to_owned());
            let side = if baseline { (recorded(), None) } else { (None, recorded()) };
            let reason = if baseline {
                reason_absent(context.candidate, part)
            } else {
                reason_absent(context.baseline, part)
            };
            let why = format!("recorded on one side only, so it was not compared{reason}");
            let ruling = Ruling::new(Verdict::Unknown, why).todo("collect this part on both sides");
            rows.push(part.name(), side.0, side.1, ruling);
        }
    }
    rows.into_rows()
}

/// Adds rows for members that could not be read.
fn faults(rows: &mut Rows<'_>, context: &Context<'_>) {
    let part = rows.part();
    for (is_baseline, pack) in [(true, context.baseline), (false, context.candidate)] {
        for fault in pack.faults.iter().filter(|fault| fault.part == part) {
            let place = format!("{}: {}", pack.path.display(), fault.member);
            let ruling = Ruling::new(Verdict::Unknown, format!("{place}: {}", fault.reason))
                .todo("write the pack again, or copy it again from its source");
            let unreadable = || Some("unreadable".to_owned());
            let (a, b) = if is_baseline { (unreadable(), None) } else { (None, unreadable()) };
            rows.push(&fault.member, a, b, ruling);
        }
    }
}

fn reason_absent(pack: &Pack, part: Part) -> String {
    let reason = pack.manifest.as_ref().and_then(|manifest| manifest.absent.get(part.name()));
    reason.map_or_else(String::new, |reason| format!(" ({reason})"))
}

/// Adds a row for a part that neither side has.
fn absent(rows: &mut Rows<'_>, context: &Context<'_>) {
    let part = rows.part();
    let meant = |pack: &Pack| {
        pack.manifest.as_ref().is_some_and(|manifest| manifest.absent.contains_key(part.name()))
    };
    let both = meant(context.baseline) && meant(context.candidate);
    let verdict = if both { Verdict::Note } else { Verdict::Unknown };
    let why = format!("not recorded on either side{}", reason_absent(context.baseline, part));
    rows.push(part.name(), None, None, Ruling::new(verdict, why));
}

/// Compares device and world size from the manifests.
fn device(rows: &mut Rows<'_>, context: &Context<'_>) {
    let (Some(a), Some(b)) = (&context.baseline.manifest, &context.candidate.manifest) else {
        if rows.part() == Part::Platform {
            // Inferred by a vote over names of variables and packages.
            let [a, b] =
                [context.pair.baseline, context.pair.candidate].map(|kind| kind.map(DeviceKind::name));
            rows.fact("device.kind", a, b);
        }
        return;
    };
    match rows.part() {
        Part::Platform => {
            rows.fact("device.kind", Some(a.device.kind.name()), Some(b.device.kind.name()));
            rows.fact("device.names", Some(&a.device.names.join(", ")), Some(&b.device.names.join(", ")));
            rows.fact("device.count", Some(&a.device.count.to_string()), Some(&b.device.count.to_string()));
        }
        Part::Distributed => {
            rows.fact("world_size", Some(&a.world_size.to_string()), Some(&b.world_size.to_string()));
        }
        _ => {}
    }
}

/// Checks every rank that both sides have, and merges rows that several ranks share.
fn ranks(rows: &mut Rows<'_>, context: &Context<'_>) {
    let part = rows.part();
    let (a, b) = (context.baseline.ranks_with(part), context.candidate.ranks_with(part));
    let shared: Vec<u32> = a.intersection(&b).copied().collect();
    let mut found: Vec<(Row, Vec<u32>)> = Vec::new();
    let mut places: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    let hasher = std::hash::RandomState::new();
    let apart = part == Part::Weights && shared.iter().any(|rank| start_apart(context, *rank));
    for &rank in &shared {
        let (Some(a), Some(b)) = (context.baseline.ranks.get(&rank), context.candidate.ranks.get(&rank))
        else {
            continue;
        };
        let mut own = Rows::new(context, part);
        of_rank(&mut own, context, a, b, apart);
        for row in own.into_rows() {
            let known = places.entry(std::hash::BuildHasher::hash_one(&hasher, &row)).or_default();
            let same = |place: &&usize| found.get(**place).is_some_and(|(other, _)| *other == row);
            if let Some(&place) = known.iter().find(same) {
                found.get_mut(place).into_iter().for_each(|(_, ranks)| ranks.push(rank));
            } else {
                known.push(found.len());
                found.push((row, vec![rank]));
            }
        }
    }
    let several =
        a.len() > 1 || b.len() > 1 || context.baseline.ranks.len() > 1 || context.candidate.ranks.len() > 1;
    if shared.len() > 1 {
        // Earlier rows may cause later ones, whichever rank has them.
        found.sort_by_key(|(row, _)| row.step);
    }
    for (mut row, ranks) in found {
        if several {
            row.ranks = ranks;
        }
        rows.add(row);
    }
    if shared.is_empty() {
        let list = |ranks: &std::collections::BTreeSet<u32>| {
            Some(format!("ranks {}", ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")))
        };
        let ruling = Ruling::new(Verdict::Unknown, "no rank recorded this part on both sides");
        rows.push(part.name(), list(&a), list(&b), ruling.todo("collect the same ranks on both sides"));
    }
}

/// Returns true if the weights of one rank differ at its first step.
fn start_apart(context: &Context<'_>, rank: u32) -> bool {
    let [a, b] = [context.baseline, context.candidate].map(|pack| pack.ranks.get(&rank)?.weights.as_ref());
    a.zip(b).is_some_and(|(a, b)| weights::start_apart(&Rows::new(context, Part::Weights), a, b))
}

/// Checks one rank. `apart`: the weights of some rank differ from the start.
fn of_rank(rows: &mut Rows<'_>, context: &Context<'_>, a: &Parts, b: &Parts, apart: bool) {
    let (parts_a, parts_b) = (a, b);
    match rows.part() {
        Part::Env => with(a.env.as_ref(), b.env.as_ref(), |a, b| env::check(rows, a, b)),
        Part::Pip => with(a.pip.as_ref(), b.pip.as_ref(), |a, b| pip::check(rows, a, b)),
        Part::Random => with(a.random.as_ref(), b.random.as_ref(), |a, b| random::check(rows, a, b)),
        Part::Dataset => with(a.dataset.as_ref(), b.dataset.as_ref(), |a, b| dataset::check(rows, a, b)),
        Part::Model => with(a.model.as_ref(), b.model.as_ref(), |a, b| model::check(rows, a, b)),
        Part::Weights => {
            with(a.weights.as_ref(), b.weights.as_ref(), |a, b| weights::check(rows, a, b, apart));
        }
        Part::Optimizer => {
            with(a.optimizer.as_ref(), b.optimizer.as_ref(), |a, b| optimizer::check(rows, a, b));
        }
        Part::Schedule => with(a.schedule.as_ref(), b.schedule.as_ref(), |a, b| schedule::check(rows, a, b)),
        Part::Hyperparameters => {
            with(a.hyperparameters.as_ref(), b.hyperparameters.as_ref(), |a, b| {
                hyperparameters::check(rows, a, b);
            });
        }
        part => with(a.settings(part), b.settings(part), |a, b| {
            let manifests = context.baseline.manifest.is_some() && context.candidate.manifest.is_some();
            let leaves = |record: &Record| -> Vec<(String, Setting)> {
                let leaves = record.leaves().into_iter();
                // Already compared from the manifests.
                leaves
                    .filter(|(key, _)| !(manifests && part == Part::Distributed && key == "world_size"))
                    .map(|(key, value)| (key, value.clone()))
                    .collect()
            };
            settings::compare(rows, leaves(a), leaves(b));
            if part == Part::Dataloader {
                let manifests = (context.baseline.manifest.as_ref(), context.candidate.manifest.as_ref());
                dataloader::global_batch(rows, (parts_a, manifests.0), (parts_b, manifests.1));
            }
        }),
    }
}

fn with<T>(a: Option<&T>, b: Option<&T>, check: impl FnOnce(&T, &T)) {
    if let (Some(a), Some(b)) = (a, b) {
        check(a, b);
    }
}
