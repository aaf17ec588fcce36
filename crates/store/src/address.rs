//! Addresses: paths and URLs as typed.

use std::path::{Path, PathBuf};

use super::StoreError;
use super::scheme::Scheme;

/// A place in this machine's file systems or in an object store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A path.
    Local(PathBuf),
    /// An object, or all objects below a prefix.
    Remote(Remote),
}

/// An object of a store, or all objects below a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// Kind of store.
    pub scheme: Scheme,
    /// Bucket or container.
    pub bucket: String,
    /// Key without a slash at either end; empty for the whole bucket.
    pub key: String,
}

/// Maximum length of a component of a key: the limit that file systems have for names.
const MAX_NAME: usize = 255;

impl Address {
    /// Parses an address as typed. Everything except URLs such as `s3://…` is a path.
    ///
    /// # Errors
    /// [`StoreError::Address`] for a URL that names no place known to probe.
    pub fn parse(typed: &Path) -> Result<Self, StoreError> {
        let error = |message: String| StoreError::Address { name: typed.into(), message };
        let Some((word, rest)) = typed.to_str().and_then(|text| text.split_once("://")) else {
            return Ok(Self::Local(typed.into()));
        };
        let is_scheme = |text: &str| {
            text.starts_with(|letter: char| letter.is_ascii_alphabetic())
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        };
        if !is_scheme(word) {
            return Ok(Self::Local(typed.into()));
        }
        if word == "file" {
            return local(rest).map(Self::Local).map_err(error);
        }
        let Some(scheme) = Scheme::ALL.into_iter().find(|scheme| scheme.name() == word) else {
            return Err(error(format!(
                "{word}:// is not supported: probe reads s3://, gs://, az:// and file://; stores that speak S3, such as OBS or MinIO, are read as s3:// with AWS_ENDPOINT_URL"
            )));
        };
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(error(format!("names no bucket; write {scheme}://BUCKET/PATH")));
        }
        if let Some(fault) = key_fault(bucket) {
            return Err(error(format!("its bucket {fault}")));
        }
        let key = key.trim_end_matches('/');
        if let Some(fault) = (!key.is_empty()).then(|| key_fault(key)).flatten() {
            return Err(error(format!("its path {fault}")));
        }
        Ok(Self::Remote(Remote { scheme, bucket: bucket.into(), key: key.into() }))
    }
}

/// Returns the path of a `file://` URL.
fn local(rest: &str) -> Result<PathBuf, String> {
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    if !path.starts_with('/') {
        return Err("a file URL begins with three slashes, as in file:///data/dump".into());
    }
    let mut bytes = Vec::with_capacity(path.len());
    let mut left = path.as_bytes();
    while let [byte, rest @ ..] = left {
        left = rest;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let (Some(high), Some(low)) = (left.first().and_then(digit), left.get(1).and_then(digit)) else {
            return Err("a % in a file URL is followed by two hexadecimal digits".into());
        };
        bytes.push(high << 4 | low);
        left = left.get(2..).unwrap_or(&[]);
    }
    let text = String::from_utf8(bytes).map_err(|_| "its path is not UTF-8".to_owned())?;
    if text.contains('\0') {
        return Err("its path holds a zero byte".into());
    }
    Ok(text.into())
}

/// Returns the reason why an object with this key cannot be copied under its name below a folder.
pub(super) fn key_fault(key: &str) -> Option<String> {
    key.split('/').find_map(|part| match part {
        "" => Some("has two slashes in a row".to_owned()),
        "." | ".." => Some(format!("has a part {part:?}")),
        part if part.len() > MAX_NAME => Some(format!("has a part of {} bytes", part.len())),
        part if part.contains(['\0', '\\']) => Some("holds a zero byte or a backslash".to_owned()),
        _ => None,
    })
}

impl Remote {
    /// Returns `scheme://bucket`.
    pub fn root(&self) -> PathBuf {
        format!("{}://{}", self.scheme, self.bucket).into()
    }

    /// Returns the URL, as a path.
    pub fn name(&self) -> PathBuf {
        self.of(&self.key)
    }

    /// Returns the URL of another object of the bucket, as a path.
    pub fn of(&self, key: &str) -> PathBuf {
        if key.is_empty() { self.root() } else { format!("{}://{}/{key}", self.scheme, self.bucket).into() }
    }

    /// Returns the common prefix of the keys of all objects below it.
    pub fn prefix(&self) -> String {
        if self.key.is_empty() { String::new() } else { format!("{}/", self.key) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_urls_are_told_apart() {
        let local = |text: &str| Address::Local(text.into());
        let remote = |scheme, bucket: &str, key: &str| {
            Address::Remote(Remote { scheme, bucket: bucket.into(), key: key.into() })
        };
        for (typed, wanted) in [
            ("gpu_dump", local("gpu_dump")),
            ("/data/a:b", local("/data/a:b")),
            ("C:\\dump", local("C:\\dump")),
            ("9x://y", local("9x://y")),
            ("file:///data/my%20dump", local("/data/my dump")),
            ("file://localhost/data", local("/data")),
            ("s3://bucket", remote(Scheme::S3, "bucket", "")),
            ("s3://bucket/run/", remote(Scheme::S3, "bucket", "run")),
            ("gs://b/a/c.json", remote(Scheme::Gs, "b", "a/c.json")),
            ("az://b/a", remote(Scheme::Az, "b", "a")),
        ] {
            assert_eq!(Address::parse(Path::new(typed)).unwrap(), wanted, "{typed}");
        }
        for (typed, message) in [
            ("obs://bucket/run", "obs:// is not supported: probe reads s3://"),
            ("s3:///run", "names no bucket; write s3://BUCKET/PATH"),
            ("s3://bucket/a//b", "its path has two slashes in a row"),
            ("s3://bucket/../b", "its path has a part \"..\""),
            ("s3://../b", "its bucket has a part \"..\""),
            ("file://data/x", "a file URL begins with three slashes"),
            ("file:///data/%zz", "a % in a file URL is followed by two hexadecimal digits"),
        ] {
            let error = Address::parse(Path::new(typed)).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{typed}: {message}")), "{error}");
        }
    }
}
