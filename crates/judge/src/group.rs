//! Merges equal findings of several steps and ranks: 64 ranks with the same faulty op are one fault.

use std::collections::{BTreeSet, HashMap};

use super::{Cause, Finding};

/// One fault, in all the steps and ranks where it shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultGroup {
    /// Position in [`Summary::culprits`](super::Summary::culprits) of the first finding.
    pub first: usize,
    /// Steps that show it, in order.
    pub steps: Vec<u64>,
    /// Ranks that show it, in order.
    pub ranks: Vec<u32>,
    /// Number of merged findings: one for each step and rank that shows the fault.
    pub findings: u64,
    /// Ops that differ because of it, over all steps and ranks.
    pub followers: u64,
}

/// Groups findings by op, value, cause and module, in the order of the first of each.
pub fn groups(findings: &[Finding]) -> Vec<FaultGroup> {
    type Key<'a> = (&'a str, &'a str, Cause, Option<&'a str>);
    let mut places: HashMap<Key<'_>, usize> = HashMap::new();
    let mut found: Vec<(FaultGroup, BTreeSet<u64>, BTreeSet<u32>)> = Vec::new();
    for (first, finding) in findings.iter().enumerate() {
        let key: Key<'_> = (&finding.op, &finding.slot, finding.cause, finding.module.as_deref());
        let place = *places.entry(key).or_insert_with(|| {
            let group = FaultGroup { first, steps: vec![], ranks: vec![], findings: 0, followers: 0 };
            found.push((group, BTreeSet::new(), BTreeSet::new()));
            found.len() - 1
        });
        let (group, steps, ranks) = &mut found[place];
        group.findings += 1;
        group.followers += finding.followers;
        steps.insert(finding.step);
        ranks.insert(finding.rank);
    }
    let complete = |(group, steps, ranks): (FaultGroup, BTreeSet<u64>, BTreeSet<u32>)| FaultGroup {
        steps: steps.into_iter().collect(),
        ranks: ranks.into_iter().collect(),
        ..group
    };
    found.into_iter().map(complete).collect()
}
