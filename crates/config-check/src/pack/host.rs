//! `env.json` and `pip.json`: the environment of the training script.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `env.json`: the environment variables of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Env {
    /// Variables of the allow list with their values.
    #[serde(default)]
    pub values: BTreeMap<String, String>,
    /// Names of all other variables, sorted. Their values never enter a pack.
    #[serde(default)]
    pub names: Vec<String>,
    /// Variables of packs of the older tool that are on no allow list: name, and a digest of the value that says "same" or
    /// "other" and nothing else. Made while reading, never written.
    #[serde(skip)]
    pub hidden: BTreeMap<String, u64>,
}

/// `pip.json`: the Python packages of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pip {
    /// Every distribution once, in the order of the import path.
    pub packages: Vec<Package>,
}

/// A distribution.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Package {
    /// Name as PEP 503 normalises it: lower case, runs of `-`, `_` and `.` as one `-`.
    pub name: String,
    /// Version of the copy that is first on the import path, local part included (`2.7.1+cu126`).
    pub version: String,
    /// `__version__` of the module that was actually imported, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported: Option<String>,
    /// File of the imported module, for the packages that matter to numerics; the home directory as `~`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Commit of a package that was installed from git or in editable form, with `-dirty` where files were changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Versions of further copies later on the import path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shadowed: Vec<String>,
}
