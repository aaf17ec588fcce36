//! Errors that ranks pass to one another through collectives.
//!
//! Each rank is judged by itself. On a rank that receives another rank's error, the collective looks like the
//! origin: its inputs agree, its outputs do not. Collectives synchronise the ranks, so anything that precedes
//! a collective on any rank precedes its result on all others. No clocks are compared.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use probe_dump::OpName;
use probe_pair::PartPair;

/// Returns the positions of a part's collectives, in order.
pub(super) fn collectives(pair: &PartPair) -> Vec<usize> {
    let is_collective = |(place, op): (usize, &probe_pair::OpPair)| {
        let (b, c) = pair.op(op);
        b.or(c).is_some_and(|op| op.name.is_collective()).then_some(place)
    };
    pair.ops.iter().enumerate().filter_map(is_collective).collect()
}

/// Drops the collectives that only pass on what another rank got wrong before them, and returns one statement
/// for each step and op that says so. `findings` are in order; what is dropped counts as following from the
/// origin.
pub(super) fn origins(findings: Vec<Finding>) -> (Vec<Finding>, Vec<String>) {
    let is_collective: Vec<bool> =
        findings.iter().map(|finding| OpName::parse(&finding.op).is_collective()).collect();
    if !is_collective.contains(&true) {
        return (findings, Vec::new());
    }
    // For each step, the two earliest faulty ops that are not collectives, on different ranks: a rank does not
    // receive its own error.
    let mut earliest: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    let mut order: Vec<usize> = (0..findings.len()).filter(|&place| !is_collective[place]).collect();
    order.sort_by_key(|&place| (findings[place].collectives, findings[place].order, findings[place].rank));
    for place in order {
        let Finding { step, rank, .. } = findings[place];
        let known = earliest.entry(step).or_default();
        if known.len() < 2 && known.iter().all(|&other| findings[other].rank != rank) {
            known.push(place);
        }
    }
    let origin_of = |place: usize| {
        let Finding { step, rank, collectives, .. } = findings[place];
        let known = earliest.get(&step)?.iter().copied();
        known
            .filter(|&origin| findings[origin].rank != rank && findings[origin].collectives <= collectives)
            .find(|_| is_collective[place])
    };
    let handed: Vec<Option<usize>> = (0..findings.len()).map(origin_of).collect();
    let mut said: BTreeMap<(u64, usize, &str), BTreeSet<u32>> = BTreeMap::new();
    let mut followers = vec![0; findings.len()];
    for (finding, origin) in findings.iter().zip(&handed) {
        if let Some(origin) = *origin {
            followers[origin] += finding.followers + 1;
            said.entry((finding.step, origin, &finding.op)).or_default().insert(finding.rank);
        }
    }
    let said = said.into_iter().map(|((step, origin, op), ranks)| {
        let Finding { rank, op: made, .. } = &findings[origin];
        let have = if ranks.len() == 1 { "has" } else { "have" };
        format!(
            "step {step}: {} {have} the error of rank {rank}'s {made}, received through {op}",
            in_words(&ranks)
        )
    });
    let said = said.collect();
    let mut left = findings;
    for (finding, more) in left.iter_mut().zip(followers) {
        finding.followers += more;
    }
    let mut place = 0;
    left.retain(|_| {
        place += 1;
        handed[place - 1].is_none()
    });
    (left, said)
}

/// Formats ranks, as in `rank 3` or `ranks 0-2 and 5`.
fn in_words(ranks: &BTreeSet<u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &rank in ranks {
        match ranges.last_mut() {
            Some((_, end)) if *end + 1 == rank => *end = rank,
            _ => ranges.push((rank, rank)),
        }
    }
    let one = |&(first, end): &(u32, u32)| {
        if first == end { first.to_string() } else { format!("{first}-{end}") }
    };
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {}", ranges.iter().map(one).collect::<Vec<_>>().join(", "))
}

/// Returns a finding in which only the op matters.
#[cfg(test)]
pub(super) fn finding(op: &str) -> Finding {
    Finding {
        step: 3,
        rank: 0,
        order: 0,
        op: op.into(),
        slot: "output.0".into(),
        cause: super::Cause::Numerics,
        role: super::Role::Introduces,
        metrics: probe_measure::ALL_METRICS.map(|metric| (metric, None)),
        basis: None,
        reference: super::ReferenceErrors::default(),
        place: None,
        reason: String::new(),
        followers: 10,
        stack: Vec::new(),
        source: None,
        module: None,
        below: Vec::new(),
        caller: None,
        collectives: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(rank: u32, op: &str, order: usize, collectives: u64) -> Finding {
        Finding { rank, order, collectives, ..super::finding(op) }
    }

    fn left(findings: &[Finding]) -> Vec<(u32, &str)> {
        findings.iter().map(|finding| (finding.rank, finding.op.as_str())).collect()
    }

    const REDUCE: &str = "Distributed.all_reduce.1.forward";

    #[test]
    fn what_a_rank_received_is_told_with_the_rank_and_op_where_it_was_born() {
        let mut findings = vec![finding(2, "Functional.exp.0.forward", 4, 1)];
        findings.extend([0, 1, 3].map(|rank| finding(rank, REDUCE, 9, 1)));
        let (origins, said) = origins(findings);
        assert_eq!(left(&origins), [(2, "Functional.exp.0.forward")]);
        assert_eq!(origins[0].followers, 10 + 3 * 11);
        assert_eq!(
            said,
            [
                "step 3: ranks 0-1, 3 have the error of rank 2's Functional.exp.0.forward, received through Distributed.all_reduce.1.forward"
            ]
        );
    }

    #[test]
    fn a_collective_that_is_wrong_itself_stays() {
        // All ranks show it alike, and nothing was wrong before it.
        let all: Vec<Finding> = (0..4).map(|rank| finding(rank, REDUCE, 9, 1)).collect();
        let (origins_of_all, said) = origins(all.clone());
        assert_eq!((left(&origins_of_all).len(), said.len()), (4, 0));
        // A later error on another rank explains nothing.
        let mut later = all;
        later.push(finding(2, "Functional.exp.0.forward", 20, 2));
        assert_eq!(origins(later).0.len(), 5);
        // Neither does an error on its own rank: it would have shown in the inputs.
        let own = vec![finding(2, "Functional.exp.0.forward", 4, 1), finding(2, REDUCE, 9, 1)];
        assert_eq!(origins(own).0.len(), 2);
        // Neither does an error in another step.
        let other = Finding { step: 2, ..finding(1, "Functional.exp.0.forward", 4, 0) };
        assert_eq!(origins(vec![other, finding(2, REDUCE, 9, 1)]).0.len(), 2);
    }
}
