//! A report file that is not there yet: written under a temporary name, put in place when it is whole.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::ReportError;

/// A file being written beside its target. Dropped without [`Draft::place`] it leaves nothing behind.
#[derive(Debug)]
pub struct Draft {
    file: NamedTempFile,
    target: PathBuf,
}

impl Draft {
    /// Creates the temporary file in the folder of `target`.
    ///
    /// # Errors
    /// [`ReportError::Io`] when the folder cannot be written, or `target` is a folder.
    pub fn create(target: &Path) -> Result<Self, ReportError> {
        if target.is_dir() {
            return Err(ReportError::io(target, io::ErrorKind::IsADirectory.into()));
        }
        let folder = match target.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let mut builder = tempfile::Builder::new();
        builder.prefix(".probe-").suffix(".part");
        // Reports are for others to read too: what the umask grants, not the owner alone.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let file = builder.tempfile_in(folder).map_err(|error| ReportError::io(target, error))?;
        Ok(Self { file, target: target.to_path_buf() })
    }

    /// The file to write to.
    pub fn file(&mut self) -> &mut File {
        self.file.as_file_mut()
    }

    /// Where the file will stand.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// The error for this file when the system refused.
    pub(crate) fn refused(&self, error: io::Error) -> ReportError {
        ReportError::io(&self.target, error)
    }

    /// Puts the file in place of whatever stood there.
    ///
    /// # Errors
    /// [`ReportError::Io`] when the system refuses; nothing is left behind then.
    pub fn place(self) -> Result<PathBuf, ReportError> {
        match self.file.persist(&self.target) {
            Ok(_) => Ok(self.target),
            Err(refused) => Err(ReportError::io(self.target, refused.error)),
        }
    }
}
