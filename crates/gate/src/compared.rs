//! Compares values of ops through the pipeline of `probe compare`, as precisely as both sides allow.

use std::collections::HashSet;

use super::GateError;
use super::cases::is_boundary;
use super::options::GateOptions;
use super::outcome::{Case, Culprit, Kind, NOT_FINITE, Status};
use super::policy::Policy;
use super::side::{SideContent, Values};
use super::{cases, values};
use probe_compare::{CompareOptions, CompareRequest, PartReport, Progress, compare_dumps};
use probe_dump::{Counts, Dump, Number, NumberSet, TensorRecord};
use probe_files::map::FileAccess;
use probe_judge::{Finding, Incomplete, Role, RunVerdict, Summary, Verdict};

/// Findings on all values.
#[derive(Debug, Default)]
pub(super) struct Compared {
    pub(super) cases: Vec<Case>,
    pub(super) culprits: Vec<Culprit>,
    /// Roles of the culprits.
    pub(super) roles: Vec<Option<Role>>,
    pub(super) incomplete: Vec<Incomplete>,
    /// Values of the baseline that the candidate lacks.
    pub(super) missing: Vec<Incomplete>,
    pub(super) notes: Vec<String>,
    /// Calls that only the candidate has: step, rank, name.
    pub(super) extra: HashSet<(u64, u32, String)>,
    /// True if two dumps were compared, which `probe compare` can show.
    pub(super) sharp: bool,
    /// Number of values at module boundaries in the baseline, and how many of them the candidate also has.
    pub(super) expected: usize,
    pub(super) paired: usize,
    /// True for each rule and waiver of the policy that applied to something.
    pub(super) used_rules: Vec<bool>,
    pub(super) used_waivers: Vec<bool>,
    /// A value that no rule covers, although the rules do not end with a catch-all.
    pub(super) without_rule: Option<String>,
}

/// Maximum number of missing values named.
const NAMED: usize = 20;

/// Compares the values that both sides have.
pub(super) fn values(
    baseline: &mut SideContent,
    candidate: &mut SideContent,
    policy: &Policy,
    options: &GateOptions,
    progress: &dyn Progress,
) -> Result<Compared, GateError> {
    let mut found = Compared {
        used_rules: vec![false; policy.values.iter().count()],
        used_waivers: vec![false; policy.waivers.len()],
        ..Compared::default()
    };
    if !found.both_have_values(baseline, candidate) {
        return Ok(found);
    }
    let Some((steps, ranks)) = wanted(baseline, policy) else {
        let reason = "none belongs to a step and rank that the policy asks for";
        found.incomplete.push(Incomplete { place: "values of the baseline".into(), reason: reason.into() });
        return Ok(found);
    };
    let compare = CompareOptions {
        request: CompareRequest {
            steps: Some(steps.clone()),
            ranks: Some(ranks.clone()),
            no_mmap: options.access == FileAccess::Read,
            // A gate captures only modules, while its baseline may have been captured once with every op; modules are what
            // both have.
            any_level: true,
            ..CompareRequest::default()
        },
        rules: policy.values.clone(),
        ..CompareOptions::default()
    };
    let allowed = baseline.allows_nonfinite;
    let mut seen = Seen { policy, found: &mut found, allowed, nonfinite: Vec::new() };
    let by_op = match &candidate.values {
        Values::Dump(c) => by_sketches(baseline, c, &compare, progress, &mut seen)?,
        _ => None,
    };
    let summary = match (by_op, &baseline.values, &candidate.values) {
        (Some(summary), ..) => summary,
        (None, Values::Dump(b), Values::Dump(c)) => run(b, c, &compare, progress, &mut seen)?,
        _ => {
            let path = |side: &SideContent| side.info.paths.first().cloned().unwrap_or_default();
            let (b, c) = (baseline.lines(&steps, &ranks), candidate.lines(&steps, &ranks));
            let (b, c) = (values::as_dump(&path(baseline), b), values::as_dump(&path(candidate), c));
            run(&b, &c, &compare, progress, &mut seen)?
        }
    };
    let nonfinite = std::mem::take(&mut seen.nonfinite);
    found.sharp = matches!((&baseline.values, &candidate.values), (Values::Dump(_), Values::Dump(_)));
    found.conclude(&summary, nonfinite, policy);
    Ok(found)
}

/// Returns the steps and ranks of the baseline that the policy asks for; `None` if it has no part of them.
fn wanted(baseline: &SideContent, policy: &Policy) -> Option<(NumberSet, NumberSet)> {
    let asked =
        |numbers: &Option<NumberSet>, number: u64| numbers.as_ref().is_none_or(|set| set.contains(number));
    let parts: Vec<(u64, u32)> = baseline
        .parts()
        .into_iter()
        .filter(|(step, rank)| {
            asked(&policy.require.steps, *step) && asked(&policy.require.ranks, u64::from(*rank))
        })
        .collect();
    let steps = NumberSet::of(parts.iter().map(|(step, _)| *step));
    let ranks = NumberSet::of(parts.iter().map(|(_, rank)| u64::from(*rank)));
    (!parts.is_empty()).then_some((steps, ranks))
}

/// Compares the sketches of every op that are stored beside a baseline. `None` if there are none or the candidate was recorded
/// differently: lines are compared in that case.
fn by_sketches(
    baseline: &SideContent,
    candidate: &Dump,
    options: &CompareOptions,
    progress: &dyn Progress,
    seen: &mut Seen<'_>,
) -> Result<Option<Summary>, GateError> {
    use probe_compare::CompareError;

    let Some(path) = &baseline.info.sketches else { return Ok(None) };
    let unpacked = super::sketches::open(path, options.request.access())?;
    match run(&unpacked.dump, candidate, options, progress, seen) {
        Ok(summary) => Ok(Some(summary)),
        Err(GateError::Compare(
            error @ (CompareError::Levels { .. } | CompareError::Tasks { .. } | CompareError::Nothing { .. }),
        )) => {
            seen.found.notes.push(format!("the sketches of the baseline were not used: {error}"));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn run(
    baseline: &Dump,
    candidate: &Dump,
    options: &CompareOptions,
    progress: &dyn Progress,
    seen: &mut Seen<'_>,
) -> Result<Summary, GateError> {
    Ok(compare_dumps(baseline, candidate, options, progress, &mut |part| {
        seen.part(part);
        Ok(())
    })?)
}

/// Inspects the parts as they are compared.
struct Seen<'a> {
    policy: &'a Policy,
    found: &'a mut Compared,
    /// True if the baseline states why it holds values that are not finite.
    allowed: bool,
    /// Values that are not finite on both sides.
    nonfinite: Vec<Culprit>,
}

impl Seen<'_> {
    fn part(&mut self, part: &PartReport<'_>) {
        let (step, rank) = (part.pair.step, part.pair.rank);
        let any_module = part.pair.ops.iter().any(|op| is_boundary(part.pair.name(op)));
        for (position, (op, judged)) in part.pair.ops.iter().zip(&part.judged.ops).enumerate() {
            let name = part.pair.name(op);
            let boundary = is_boundary(name) || !any_module;
            for (waiver, used) in self.policy.waivers.iter().zip(&mut self.found.used_waivers) {
                *used |= waiver.pattern.matches(name);
            }
            let mut infinite = None;
            for (slots, judgement) in op.slots.iter().zip(&part.judged.slots[position]) {
                let (x, y) = part.pair.slot(op, slots);
                let Some(slot) = x.or(y).filter(|slot| slot.value.tensor().is_some()) else { continue };
                self.rules(name, &slot.path, slot.side.is_result());
                if !slot.side.is_result() || !boundary {
                    continue;
                }
                if let Some(x) = x {
                    self.found.expected += 1;
                    if y.is_some() && judgement.verdict != Verdict::Missing {
                        self.found.paired += 1;
                    } else if self.found.missing.len() < NAMED {
                        self.found.missing.push(Incomplete {
                            place: format!("step {step} rank {rank} {name} {}", x.path),
                            reason: "the candidate has no such value".into(),
                        });
                    }
                }
                let record = |slot: Option<&probe_dump::Slot>| {
                    slot.and_then(|slot| slot.value.tensor()).map(holds_nonfinite)
                };
                if record(x) == Some(true) && record(y) == Some(true) && !self.allowed {
                    infinite.get_or_insert_with(|| slot.path.to_string());
                }
            }
            if op.ops.baseline().is_none() {
                self.found.extra.insert((step, rank, name.to_owned()));
            }
            let Some(mut case) = cases::of_op(part, position, op, judged) else { continue };
            if let Some(slot) = infinite.filter(|_| case.status != Status::Failed) {
                let reason = "NaN or Inf on both sides, which proves nothing and never passes".to_owned();
                case.status = Status::Failed;
                case.message = format!("{slot}: {reason}");
                case.evidence = vec![case.message.clone()];
                self.nonfinite.push(nonfinite(case.kind, name, slot, (step, rank), reason));
            }
            self.found.cases.push(case);
        }
    }

    /// Records which rules apply to a value.
    fn rules(&mut self, op: &str, slot: &str, is_result: bool) {
        let mut any = false;
        for (rule, used) in self.policy.values.iter().zip(&mut self.found.used_rules) {
            if rule.is_about(op, slot) {
                *used = true;
                any = true;
            }
        }
        let ends_with_all = self.policy.values.iter().last().is_none_or(|rule| rule.pattern() == "*");
        if is_result && !any && !ends_with_all && self.found.without_rule.is_none() {
            self.found.without_rule = Some(format!("{op} {slot}"));
        }
        for (waiver, used) in self.policy.waivers.iter().zip(&mut self.found.used_waivers) {
            *used |= waiver.covers(op, slot);
        }
    }
}

impl Compared {
    /// Returns true if both sides have values; else records what that means.
    fn both_have_values(&mut self, baseline: &SideContent, candidate: &SideContent) -> bool {
        match (&baseline.values, &candidate.values) {
            (Values::None, Values::None) => false,
            (Values::None, _) => {
                self.notes.push("the baseline has no values of modules; only scalars were gated".into());
                false
            }
            (_, Values::None) => {
                let reason = "the candidate has none; give a dump of it with --candidate as well".to_owned();
                self.incomplete.push(Incomplete { place: "values of modules".into(), reason });
                false
            }
            _ => true,
        }
    }

    fn conclude(&mut self, summary: &Summary, nonfinite: Vec<Culprit>, policy: &Policy) {
        let extra = self.only_extra(summary);
        if extra {
            let calls = self.extra.len();
            self.notes.push(format!(
                "the candidate makes {calls} calls that the baseline does not; every value of the baseline was found and agrees"
            ));
            let extra = &self.extra;
            let is_extra = |case: &Case| {
                case.step
                    .zip(case.rank)
                    .is_some_and(|(step, rank)| extra.contains(&(step, rank, case.name.clone())))
            };
            self.cases.retain(|case| case.status != Status::Failed || !is_extra(case));
        }
        for group in summary.groups.iter().filter(|_| !extra) {
            let Some(first) = summary.culprits.get(group.first) else { continue };
            self.culprits.push(Culprit::of_finding(
                first,
                Kind::of(&first.op),
                group.findings,
                group.followers,
            ));
            self.roles.push(Some(first.role));
        }
        for culprit in nonfinite {
            let same = |other: &&mut Culprit| other.name == culprit.name && other.cause == culprit.cause;
            if let Some(other) = self.culprits.iter_mut().find(same) {
                other.places += 1;
            } else {
                self.culprits.push(culprit);
                self.roles.push(Some(Role::Introduces));
            }
        }
        if self.culprits.is_empty() && !extra && summary.verdict == RunVerdict::Diverged {
            let counts = &summary.counts;
            let differing: u64 =
                Verdict::ALL.iter().filter(|v| !v.is_fine()).map(|v| counts.verdict(*v)).sum();
            let reason = format!(
                "{differing} values differ, but no op at this level explains it; capture at a finer level"
            );
            self.culprits.push(whole("values of modules", "numerics", reason));
            self.roles.push(None);
        }
        let unpaired = summary.counts.ops_baseline_only + summary.counts.ops_candidate_only;
        if let Some(allowed) = policy.budget.unpaired.filter(|allowed| unpaired > *allowed) {
            let reason = format!(
                "{unpaired} ops have no partner ({} of the baseline, {} of the candidate), more than the budget of {allowed}",
                summary.counts.ops_baseline_only, summary.counts.ops_candidate_only
            );
            self.culprits.push(whole("ops without partner", "structure", reason));
            self.roles.push(None);
        }
        self.incomplete.extend(summary.incomplete.iter().cloned());
        self.notes.extend(summary.notes.iter().cloned());
    }

    /// Returns true if all findings of the judge are calls that only the candidate has and nothing of the baseline has moved: for example an
    /// evaluation between two steps, or an additional function that passes the same values on.
    fn only_extra(&self, summary: &Summary) -> bool {
        let is_extra =
            |finding: &Finding| self.extra.contains(&(finding.step, finding.rank, finding.op.clone()));
        let sound = |case: &Case| case.status == Status::Passed;
        !summary.culprits.is_empty()
            && summary.culprits.iter().all(is_extra)
            && self.paired == self.expected
            && self.cases.iter().all(|case| {
                sound(case)
                    || case
                        .step
                        .zip(case.rank)
                        .is_some_and(|(step, rank)| self.extra.contains(&(step, rank, case.name.clone())))
            })
    }
}

fn nonfinite(kind: Kind, name: &str, slot: String, (step, rank): (u64, u32), reason: String) -> Culprit {
    Culprit { kind, slot, step: Some(step), rank: Some(rank), places: 1, ..whole(name, NOT_FINITE, reason) }
}

/// Returns a culprit that is not a finding of the judge.
fn whole(name: &str, cause: &'static str, reason: String) -> Culprit {
    Culprit {
        kind: Kind::Op,
        name: name.to_owned(),
        slot: String::new(),
        step: None,
        rank: None,
        cause,
        reason,
        baseline: None,
        candidate: None,
        error: None,
        module: None,
        source: None,
        stack: Vec::new(),
        places: 1,
        followers: 0,
        waived: None,
    }
}

fn holds_nonfinite(record: &TensorRecord) -> bool {
    let counted = |counts: &Counts| counts.nan + counts.positive_infinite + counts.negative_infinite > 0;
    let statistics = &record.statistics;
    let numbers = [statistics.max(), statistics.min()].into_iter().flatten().map(Number::as_f64);
    record.counts.as_deref().map_or_else(
        || numbers.chain(statistics.mean()).chain(statistics.norm()).any(|value| !value.is_finite()),
        counted,
    )
}
