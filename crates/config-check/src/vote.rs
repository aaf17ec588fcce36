//! Infers device kind and framework of packs that do not record them, from their variables, packages and weights.

use std::borrow::Cow;

use super::expectations::Expectations;
use super::pack::{DeviceKind, Pack};
use super::pair::DevicePair;
use probe_dump::torch_parameter;

/// Returns the device kinds of two packs, from their manifests, else by a vote over names and packages; and whether their
/// frameworks differ.
pub(super) fn devices(baseline: &Pack, candidate: &Pack, expectations: &Expectations) -> DevicePair {
    let kind = |pack: &Pack| pack.device.or_else(|| vote(pack, expectations));
    let across_frameworks = is_mindspore(baseline) != is_mindspore(candidate);
    DevicePair { baseline: kind(baseline), candidate: kind(candidate), across_frameworks }
}

/// Returns true if a pack is of a program of MindSpore: as its manifest says, else by its weights' names or its packages.
fn is_mindspore(pack: &Pack) -> bool {
    if let Some(manifest) = &pack.manifest {
        return manifest.framework.as_deref() == Some("mindspore");
    }
    pack.ranks.values().any(|parts| {
        let mut weights =
            parts.weights.iter().flat_map(|weights| &weights.steps).flat_map(|step| &step.tensors);
        let has = |name: &str| {
            parts.pip.as_ref().is_some_and(|pip| pip.packages.iter().any(|package| package.name == name))
        };
        weights.any(|weight| matches!(torch_parameter(&weight.name), Cow::Owned(_)))
            || has("mindspore") && !has("torch")
    })
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
