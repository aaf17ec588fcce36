//! `manifest.json`: describes the recorded run, and how it was recorded.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{SketchVersion, Task};

/// The value of `format` in every manifest.
pub const FORMAT: &str = crate::NATIVE;

/// Version of the format that this program writes, and the newest it reads.
pub const FORMAT_VERSION: u32 = 3;

/// Name and version of a program or library.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Software {
    /// Name, such as `torch`.
    pub name: String,
    /// Version, as it calls itself.
    pub version: String,
}

/// Device of the run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Device {
    /// Kind as the framework names it: `cpu`, `cuda`, `npu`.
    pub kind: String,
    /// Name of the hardware, as it calls itself; empty when unknown.
    #[serde(default)]
    pub name: String,
    /// Devices that one process sees.
    #[serde(default)]
    pub count: u32,
}

/// Kind of data recorded for tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum CaptureTask {
    /// Statistics and counts.
    Statistics,
    /// Statistics, counts, sketch and hash.
    #[default]
    Sketch,
    /// Statistics, counts and hash.
    Hash,
    /// All of these and the data.
    Tensor,
}

impl From<CaptureTask> for Task {
    fn from(task: CaptureTask) -> Self {
        match task {
            CaptureTask::Statistics => Self::Statistics,
            CaptureTask::Sketch => Self::Sketch,
            CaptureTask::Hash => Self::Hash,
            CaptureTask::Tensor => Self::Tensor,
        }
    }
}

/// Which ops were recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum CaptureLevel {
    /// `nn.Module` calls, with parameters and their gradients.
    Module,
    /// Torch functions and tensor methods.
    Api,
    /// Ops of the dispatcher.
    Op,
    /// Modules and APIs.
    #[default]
    Mix,
    /// Only what the program saved by name.
    Saved,
    /// Operators that were launched through the runtime of the device, below the framework.
    Runtime,
}

impl CaptureLevel {
    /// Returns the name used in the manifest and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Module => "module",
            Self::Api => "api",
            Self::Op => "op",
            Self::Mix => "mix",
            Self::Saved => "saved",
            Self::Runtime => "runtime",
        }
    }
}

/// `manifest.json` of a dump.
///
/// Unknown keys are ignored when it is read, so that a newer program may add some within one format version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(title = "manifest.json of a probe dump"))]
pub struct RunManifest {
    /// `probe dump`, by which the folder is known.
    pub format: String,
    /// Version of the format; readers refuse versions above the one they know.
    pub format_version: u32,
    /// Program that wrote the dump.
    pub tool: Software,
    /// The framework that was recorded.
    #[serde(default)]
    pub framework: Software,
    /// Device of the run.
    #[serde(default)]
    pub device: Device,
    /// Processes of the run; 1 when it is not distributed.
    pub world_size: u32,
    /// Further facts about the set-up by name, such as versions of packages (`torch_npu`, `cann`) and switches of the framework
    /// (`flags.deterministic_algorithms`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Identity of the run, by which its ranks know one another; empty where nobody gave it one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run: String,
    /// Which ops were recorded.
    pub level: CaptureLevel,
    /// Kind of data recorded for tensors.
    pub task: CaptureTask,
    /// Version of the function that made the sketches; sketches of two versions are not compared.
    pub sketch_version: u32,
    /// The settings of the capture, as they were in force.
    #[serde(default)]
    pub config: serde_json::Value,
    /// When the capture started, RFC 3339.
    #[serde(default)]
    pub started: String,
    /// Remarks on the run (`3 tensors beyond the byte budget hold a sketch`).
    #[serde(default)]
    pub notes: Vec<String>,
    /// Why the capture stopped before its end; absent when it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

impl RunManifest {
    /// Returns facts about the set-up by name. Unknown ones are left out.
    pub fn facts(&self) -> BTreeMap<String, String> {
        let mut facts = self.environment.clone();
        let device = &self.device;
        let count = if device.count > 0 { device.count.to_string() } else { String::new() };
        for (name, value) in [
            (&*self.framework.name, &*self.framework.version),
            ("device", &device.kind),
            ("device_name", &device.name),
            ("device_count", &count),
            ("world_size", &self.world_size.to_string()),
        ] {
            if !name.is_empty() && !value.is_empty() {
                facts.insert(name.to_owned(), value.to_owned());
            }
        }
        facts
    }
}

impl Default for RunManifest {
    /// Creates a manifest of this format and program for a non-distributed run; the rest is empty.
    fn default() -> Self {
        Self {
            format: FORMAT.into(),
            format_version: FORMAT_VERSION,
            tool: Software { name: crate::PROGRAM.into(), version: env!("CARGO_PKG_VERSION").into() },
            framework: Software::default(),
            device: Device::default(),
            world_size: 1,
            environment: BTreeMap::new(),
            run: String::new(),
            level: CaptureLevel::default(),
            task: CaptureTask::default(),
            sketch_version: SketchVersion::CURRENT.number(),
            config: serde_json::Value::Null,
            started: String::new(),
            notes: Vec::new(),
            stopped: None,
        }
    }
}

/// Returns the JSON Schema of `manifest.json`, as committed.
#[cfg(feature = "schema")]
pub fn manifest_schema() -> String {
    let schema = schemars::schema_for!(RunManifest);
    // A schema is plain data, so serialising it cannot fail.
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}
