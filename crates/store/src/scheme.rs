//! Kinds of object store.

use std::fmt;

/// Kinds of object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// Amazon S3 and compatible stores: Huawei OBS, `MinIO`, Ceph.
    S3,
    /// Google Cloud Storage.
    Gs,
    /// Azure Blob Storage.
    Az,
}

impl Scheme {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::S3, Self::Gs, Self::Az];

    /// Returns the word before `://`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Gs => "gs",
            Self::Az => "az",
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
