//! `manifest.json`: identifies a pack and lists its members.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::super::part::Part;

/// Value of `format` in manifests of probe's packs.
pub const FORMAT: &str = "probe-pack";

/// Pack format version that this build writes and reads. Raised if a reader of the old version would misread a pack;
/// not for new members or keys, which every reader skips.
pub const VERSION: u32 = 1;

/// Name of the member.
pub const MANIFEST: &str = "manifest.json";

/// `manifest.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Manifest {
    /// `probe-pack`.
    pub format: String,
    /// Version of the format: 1.
    pub version: u32,
    /// Program that wrote the pack.
    pub tool: Tool,
    /// When, in UTC: `2026-11-21T15:27:00Z`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// `mindspore`; packs of PyTorch have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub framework: Option<String>,
    /// The accelerator the run used.
    pub device: Device,
    /// Number of processes of the run; 1 if it is not distributed.
    pub world_size: u32,
    /// Ranks whose parts are in this pack, ascending.
    pub ranks: Vec<u32>,
    /// Steps that were collected, ascending, from 0. A step is one forward call of the model.
    pub steps: Vec<u64>,
    /// Every other member by name, with what it must be.
    pub members: BTreeMap<String, MemberDigest>,
    /// Parts that were not collected, each with the reason (`no optimizer was given`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub absent: BTreeMap<String, String>,
}

/// A program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// The accelerator of a run. Nothing here names a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Device {
    /// Device of the model, never guessed from names.
    pub kind: DeviceKind,
    /// Product names, each once.
    #[serde(default)]
    pub names: Vec<String>,
    /// Devices that one host's processes see together; 0 for `cpu`.
    #[serde(default)]
    pub count: u32,
}

/// Kinds of device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// An NVIDIA or other CUDA-like GPU.
    Gpu,
    /// An Ascend NPU.
    Npu,
    /// No accelerator.
    Cpu,
}

impl DeviceKind {
    /// Returns its display name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gpu => "GPU",
            Self::Npu => "NPU",
            Self::Cpu => "CPU",
        }
    }
}

/// Required content of a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemberDigest {
    /// SHA-256 of the uncompressed content, 64 hexadecimal digits.
    pub sha256: String,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Returns the name of the member that holds `part` of `rank`: `rank0/env.json`.
pub fn member_name(part: Part, rank: u32) -> String {
    format!("rank{rank}/{}.json", part.name())
}

/// Returns the part and rank that a member name encodes; `None` for any name that a pack of version 1 does
/// not have.
pub fn parse_member_name(name: &str) -> Option<(Part, u32)> {
    let (rank, file) = name.strip_prefix("rank")?.split_once('/')?;
    let number: u32 = rank.parse().ok()?;
    let part = Part::parse(file.strip_suffix(".json")?).filter(|part| *part != Part::Coverage)?;
    // Other spellings of the same number (`rank+0`, `rank00`) are different members, and not ours.
    (member_name(part, number) == name).then_some((part, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_names_are_members() {
        assert_eq!(parse_member_name("rank12/env.json"), Some((Part::Env, 12)));
        for name in [
            "rank0/coverage.json",
            "rank00/env.json",
            "rank+1/env.json",
            "rank0/env.JSON",
            "env",
            "rank0/../x",
            "rank/env.json",
        ] {
            assert_eq!(parse_member_name(name), None, "{name}");
        }
    }
}
