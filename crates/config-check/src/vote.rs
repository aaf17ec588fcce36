//! Infers the device kind of packs that do not record it, from their variables and packages.

use super::expectations::Expectations;
use super::pack::{DeviceKind, Pack};
use super::pair::DevicePair;

/// Returns the device kinds of two packs: from their manifests, else by a vote over names and
/// packages.
pub(super) fn devices(baseline: &Pack, candidate: &Pack, expectations: &Expectations) -> DevicePair {
    let kind = |pack: &Pack| pack.device.or_else(|| vote(pack, expectations));
    DevicePair { baseline: kind(baseline), candidate: kind(candidate) }
}

/// Returns the kind with the most weight; `None` if there are no votes, or on a tie.
fn vote(pack: &Pack, expectations: &Expectations) -> Option<DeviceKind> {
    let mut weights = [(DeviceKind::Gpu, 0), (DeviceKind::Npu, 0), (DeviceKind::Cpu, 0)];
    for vote in expectations.votes() {
        let speaks = pack.ranks.values().any(|parts| {
            let variable = vote.variable.as_deref().is_some_and(|wanted| {
                parts.env.as_ref().is_some_and(|env| {
                    env.values.contains_key(wanted)
                        || env.hidden.contains_key(wanted)
                        || env.names.iter().any(|name| name == wanted)
                })
            });
            let package = vote.package.as_deref().is_some_and(|wanted| {
                parts.pip.as_ref().is_some_and(|pip| {
                    pip.packages.iter().any(|package| super::wildcard::matches(wanted, &package.name))
                })
            });
            variable || package
        });
        if speaks {
            weights
                .iter_mut()
                .filter(|(kind, _)| *kind == vote.kind)
                .for_each(|(_, weight)| *weight += vote.weight);
        }
    }
    weights.sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
    match weights {
        [(kind, most), (_, next), _] if most > next => Some(kind),
        _ => None,
    }
}
