//! Pairs the parts of two dumps by step and rank.

use std::collections::{BTreeMap, BTreeSet};

use probe_dump::{Dump, PartKey, RankId};

/// One part on each side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartMatch {
    /// The baseline's part.
    pub baseline: PartKey,
    /// The candidate's part.
    pub candidate: PartKey,
    /// Steps since this rank's previous compared step; `None` for the first.
    pub since: Option<u64>,
    /// The ranks that are compared together; `None` if ranks pair one to one.
    pub many: Option<Many>,
}

/// All ranks of one side in one step, or of both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Many {
    /// Those of the baseline.
    Baseline(Vec<PartKey>),
    /// Those of the candidate.
    Candidate(Vec<PartKey>),
    /// Those of both, which spread the model in different ways.
    Both(Vec<PartKey>, Vec<PartKey>),
}

/// Pairing of the parts of two dumps.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pairing {
    /// Parts present on both sides, in order of step, then rank.
    pub matches: Vec<PartMatch>,
    /// Parts of the baseline only.
    pub baseline_only: Vec<PartKey>,
    /// Parts of the candidate only.
    pub candidate_only: Vec<PartKey>,
    /// Parts that cannot be paired because several represent the same step and rank: the place and the remedy.
    pub ambiguous: Vec<(String, String)>,
    /// Notes on pairings of unequal numbers, one each.
    pub notes: Vec<String>,
}

/// Pairs parts by step and rank. A process folder without a rank counts as rank 0. When each side holds exactly one
/// part, they are paired whatever their numbers: the user chose them. When one side has one rank and the other several, the one is paired with
/// all of them; when both have several and recorded different groups, all are paired with all, of which some may be missing.
pub fn pair_parts(baseline: &Dump, candidate: &Dump, selected: impl Fn(&PartKey) -> bool) -> Pairing {
    let mut pairing = Pairing::default();
    let (b, b_unclear) = index(baseline, &selected, "baseline", &mut pairing.ambiguous);
    let (mut c, c_unclear) = index(candidate, &selected, "candidate", &mut pairing.ambiguous);
    if let ([only_b], [only_c]) = (baseline.parts.as_slice(), candidate.parts.as_slice())
        && (only_b.step, only_b.rank.number()) != (only_c.step, only_c.rank.number())
        && selected(only_b)
    {
        pairing.notes.push(format!(
            "step {} {} of the baseline is compared with step {} {} of the candidate, the only part of each",
            only_b.step, only_b.rank, only_c.step, only_c.rank
        ));
        pairing.matches.push(PartMatch {
            baseline: only_b.clone(),
            candidate: only_c.clone(),
            since: None,
            many: None,
        });
        return pairing;
    }
    let of = |dump, parts| World::of(dump, parts, &selected);
    let (b_world, c_world) = (of(baseline, &b), of(candidate, &c));
    if let Some(baseline_is_one) = b_world.is_one_of(&c_world)
        && b_unclear.is_empty()
        && c_unclear.is_empty()
    {
        of_unequal_worlds(b, c, baseline_is_one, &mut pairing);
        return pairing;
    }
    if b_world.is_spread_unlike(&c_world) && b_unclear.is_empty() && c_unclear.is_empty() {
        of_different_layouts(b, c, &mut pairing);
        return pairing;
    }
    let mut before: BTreeMap<u32, u64> = BTreeMap::new();
    for (place, key) in b {
        match c.remove(&place) {
            Some(partner) => {
                let (step, rank) = place;
                let since = before.insert(rank, step).map(|earlier| step - earlier);
                pairing.matches.push(PartMatch { baseline: key, candidate: partner, since, many: None });
            }
            None if c_unclear.contains(&place) => {}
            None => pairing.baseline_only.push(key),
        }
    }
    pairing
        .candidate_only
        .extend(c.into_iter().filter(|(place, _)| !b_unclear.contains(place)).map(|(_, key)| key));
    pairing
}

/// Step and rank.
type Place = (u64, u32);

/// Returns the ranks that have parts.
fn worlds(parts: &BTreeMap<Place, PartKey>) -> BTreeSet<u32> {
    parts.keys().map(|(_, rank)| *rank).collect()
}

/// Pairs each step of a run of one rank with all ranks of the other run.
fn of_unequal_worlds(
    b: BTreeMap<Place, PartKey>,
    c: BTreeMap<Place, PartKey>,
    baseline_is_one: bool,
    pairing: &mut Pairing,
) {
    let (one, many) = if baseline_is_one { (b, c) } else { (c, b) };
    let mut ranks: BTreeMap<u64, Vec<PartKey>> = BTreeMap::new();
    for ((step, _), key) in many {
        ranks.entry(step).or_default().push(key);
    }
    let mut before: Option<u64> = None;
    for ((step, _), key) in one {
        let Some(all) = ranks.remove(&step) else {
            let lone = if baseline_is_one { &mut pairing.baseline_only } else { &mut pairing.candidate_only };
            lone.push(key);
            continue;
        };
        let since = before.replace(step).map(|earlier| step - earlier);
        let first = all[0].clone();
        let (baseline, candidate, many) = if baseline_is_one {
            (key, first, Many::Candidate(all))
        } else {
            (first, key, Many::Baseline(all))
        };
        pairing.matches.push(PartMatch { baseline, candidate, since, many: Some(many) });
    }
    let lone = if baseline_is_one { &mut pairing.candidate_only } else { &mut pairing.baseline_only };
    lone.extend(ranks.into_values().flatten());
}

/// The ranks of a run, and how they were grouped.
struct World<'d> {
    /// Number of ranks that the run had.
    size: Option<usize>,
    /// Number of ranks to compare.
    ranks: usize,
    /// True if the dump holds more ranks, which the user left out.
    is_selection: bool,
    /// Ranks of each group, as recorded.
    groups: BTreeMap<&'d str, &'d str>,
}

impl<'d> World<'d> {
    fn of(dump: &'d Dump, parts: &BTreeMap<Place, PartKey>, selected: &impl Fn(&PartKey) -> bool) -> Self {
        let recorded: BTreeSet<u32> = dump.parts.iter().map(|key| key.rank.number()).collect();
        let ranks = worlds(parts).len();
        let group =
            |(name, ranks): (&'d String, &'d String)| Some((name.strip_prefix("groups.")?, ranks.as_str()));
        let size: Option<u32> = dump.environment.get("world_size").and_then(|size| size.parse().ok());
        // What is missing may be what the user left out.
        let left_out = |key: &PartKey| {
            let of_rank = |rank| PartKey { rank: RankId::Rank(rank), ..key.clone() };
            (0..size.unwrap_or(0)).any(|rank| !selected(&of_rank(rank)))
        };
        Self {
            size: size.and_then(|size| usize::try_from(size).ok()),
            ranks,
            is_selection: recorded.len() > ranks || parts.values().next().is_some_and(left_out),
            groups: dump.environment.iter().filter_map(group).collect(),
        }
    }

    /// Returns whether this run, and not the other, is the one on one rank; `None` if both are, or neither is. One rank of a run that was spread over
    /// several is not, even if the dump lacks the others.
    fn is_one_of(&self, other: &Self) -> Option<bool> {
        let rest_is_missing = |world: &Self| {
            world.size.is_some_and(|size| size > 1) && !world.is_selection && !world.groups.is_empty()
        };
        match (self.ranks, other.ranks) {
            (1, 1) if self.size == Some(1) && rest_is_missing(other) => Some(true),
            (1, 1) if other.size == Some(1) && rest_is_missing(self) => Some(false),
            (own, others) => ((own == 1) != (others == 1)).then_some(own == 1),
        }
    }

    /// Returns true for several ranks that are spread over recorded groups.
    fn is_spread(&self) -> bool {
        let known = self.size.is_some_and(|size| size >= self.ranks);
        self.ranks > 1 && known && !self.is_selection && !self.groups.is_empty()
    }

    /// Returns true if both runs are spread, over other groups.
    fn is_spread_unlike(&self, other: &Self) -> bool {
        let whole = [self, other].iter().all(|world| world.size == Some(world.ranks));
        // The first rank tells its groups: if it is missing, those of another stand there.
        let sizes = |world: &Self| -> Vec<(String, usize)> {
            let of = |(name, ranks): (&&str, &&str)| ((*name).to_owned(), ranks.split(',').count());
            world.groups.iter().map(of).collect()
        };
        let unlike = if whole { self.groups != other.groups } else { sizes(self) != sizes(other) };
        self.is_spread() && other.is_spread() && unlike
    }
}

/// Pairs each step of two runs on many ranks, all of both.
fn of_different_layouts(b: BTreeMap<Place, PartKey>, c: BTreeMap<Place, PartKey>, pairing: &mut Pairing) {
    let steps = |parts: BTreeMap<Place, PartKey>| {
        let mut steps: BTreeMap<u64, Vec<PartKey>> = BTreeMap::new();
        for ((step, _), key) in parts {
            steps.entry(step).or_default().push(key);
        }
        steps
    };
    let (b, mut c) = (steps(b), steps(c));
    let mut before: Option<u64> = None;
    for (step, baseline) in b {
        let Some(candidate) = c.remove(&step) else {
            pairing.baseline_only.extend(baseline);
            continue;
        };
        let since = before.replace(step).map(|earlier| step - earlier);
        pairing.matches.push(PartMatch {
            baseline: baseline[0].clone(),
            candidate: candidate[0].clone(),
            since,
            many: Some(Many::Both(baseline, candidate)),
        });
    }
    pairing.candidate_only.extend(c.into_values().flatten());
}

/// Returns the parts by place, and the places that several parts represent.
fn index(
    dump: &Dump,
    selected: &impl Fn(&PartKey) -> bool,
    side: &str,
    ambiguous: &mut Vec<(String, String)>,
) -> (BTreeMap<Place, PartKey>, BTreeSet<Place>) {
    let mut groups: BTreeMap<Place, Vec<&PartKey>> = BTreeMap::new();
    for key in dump.parts.iter().filter(|key| selected(key)) {
        groups.entry((key.step, key.rank.number())).or_default().push(key);
    }
    let mut unclear = BTreeSet::new();
    let index = groups
        .into_iter()
        .filter_map(|(place, keys)| match keys.as_slice() {
            [key] => Some((place, (*key).clone())),
            several => {
                // A folder that names its rank wins over processes left by an earlier run.
                let ranked: Vec<_> =
                    several.iter().filter(|key| matches!(key.rank, RankId::Rank(_))).collect();
                if let [key] = ranked.as_slice() {
                    return Some((place, (**key).clone()));
                }
                let labels: Vec<&str> = several.iter().map(|key| &*key.label).collect();
                ambiguous.push((
                    format!("{side} step {} rank {}", place.0, place.1),
                    format!(
                        "{} folders hold the same rank ({}); give the path of one of them",
                        several.len(),
                        labels.join(", ")
                    ),
                ));
                unclear.insert(place);
                None
            }
        })
        .collect();
    (index, unclear)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world(size: usize, ranks: usize, groups: &[(&'static str, &'static str)]) -> World<'static> {
        World { size: Some(size), ranks, is_selection: false, groups: groups.iter().copied().collect() }
    }

    #[test]
    fn one_rank_of_a_run_that_was_spread_is_no_run_on_one_rank() {
        let (alone, one_of_two) = (world(1, 1, &[]), world(2, 1, &[("tp", "0,1")]));
        assert_eq!((alone.is_one_of(&one_of_two), one_of_two.is_one_of(&alone)), (Some(true), Some(false)));
        assert_eq!(one_of_two.is_one_of(&one_of_two), None);
        // Replicas without groups, and a rank that the user chose.
        assert_eq!(alone.is_one_of(&world(2, 1, &[])), None);
        assert_eq!(alone.is_one_of(&World { is_selection: true, ..one_of_two }), None);
    }

    #[test]
    fn runs_over_other_groups_are_paired_as_a_whole() {
        let (two, four) = (world(2, 2, &[("tp", "0,1")]), world(4, 4, &[("tp", "0,1,2,3")]));
        assert!(two.is_spread_unlike(&four) && !two.is_spread_unlike(&two));
        // A rank is missing: of the first, or of another, whose groups have other numbers.
        assert!(two.is_spread_unlike(&world(4, 3, &[("tp", "0,1,2,3")])));
        let mixed =
            [world(4, 4, &[("dp", "0,2"), ("tp", "0,1")]), world(4, 3, &[("dp", "1,3"), ("tp", "0,1")])];
        assert!(!mixed[0].is_spread_unlike(&mixed[1]));
        // The user compares some ranks.
        assert!(!two.is_spread_unlike(&World { is_selection: true, ..four }));
    }
}
