//! A store in memory that can be made to fail and to lie.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use probe::store::{Answer, Bucket, Fault, Object, Scheme, Stores};

/// Keys of a page of a listing.
pub(super) const PAGE: usize = 10;

/// Faults of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Lie {
    #[default]
    None,
    /// Each of the first answers of an object ends after half of its bytes; so many do.
    CutsShort(usize),
    /// Each of the first answers of an object breaks off with an error; so many do.
    BreaksOff(usize),
    /// The first requests of each kind for a key fail as an overloaded server does; so many do.
    Overloaded(usize),
    /// Answers go on beyond their end.
    GoesOn,
    /// Listings and heads claim this size of every object.
    Claims(u64),
    /// Answers claim another size than listings.
    Grows,
    /// Content changes between listing and answer.
    Changes,
    /// Other bytes come than were asked for, and the answer says so.
    Elsewhere,
    /// The second page of every listing is lost.
    LosesPage,
    /// The second page of the first listing is lost.
    LosesPageOnce,
    /// Objects go once they are listed.
    Forgets,
    /// A listing holds a key that leads out of any folder.
    Escapes,
    /// No permission.
    Forbidden,
    /// Objects are stored in half.
    PutsHalf,
}

/// Its objects, and the requests that it had.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) objects: Mutex<BTreeMap<String, Vec<u8>>>,
    pub(super) lie: Mutex<Lie>,
    asked: Mutex<BTreeMap<String, usize>>,
    under_way: AtomicUsize,
    /// Most requests at a time.
    pub(super) most: AtomicUsize,
    /// Keys of the objects that were read, one for each request.
    pub(super) read: Mutex<Vec<String>>,
    /// Bytes that were sent of each object.
    pub(super) sent: Mutex<BTreeMap<String, u64>>,
    /// Keys in the order in which they were put or, with a minus sign, removed.
    pub(super) changed: Mutex<Vec<String>>,
}

/// Stores that hold one bucket, whatever its name.
#[derive(Debug, Clone, Default)]
pub(super) struct Lying(pub(super) Arc<Content>);

impl Stores for Lying {
    fn open(&self, _: Scheme, _: &str) -> Result<Box<dyn Bucket>, String> {
        Ok(Box::new(self.clone()))
    }
}

impl Lying {
    /// Holds the files below `folder`, under keys that begin with `prefix`.
    pub(super) fn holding(folder: &Path, prefix: &str) -> Self {
        let lying = Self::default();
        lying.add(folder, prefix);
        lying
    }

    pub(super) fn add(&self, folder: &Path, prefix: &str) {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let key = format!("{prefix}/{}", entry.file_name().to_str().unwrap());
            if entry.path().is_dir() {
                self.add(&entry.path(), &key);
            } else {
                self.0.objects.lock().unwrap().insert(key, std::fs::read(entry.path()).unwrap());
            }
        }
    }

    pub(super) fn lies(&self, lie: Lie) {
        *self.0.lie.lock().unwrap() = lie;
        self.0.asked.lock().unwrap().clear();
    }

    fn lie(&self) -> Lie {
        *self.0.lie.lock().unwrap()
    }

    /// How often this was asked before.
    fn before(&self, what: String) -> usize {
        let mut asked = self.0.asked.lock().unwrap();
        let count = asked.entry(what).or_default();
        *count += 1;
        *count - 1
    }

    fn overloaded(&self, what: &str) -> Result<(), Fault> {
        match self.lie() {
            Lie::Overloaded(times) if self.before(what.to_owned()) < times => {
                Err(Fault::Passing("503 Slow Down".into()))
            }
            Lie::Forbidden => Err(Fault::Refused("403 Forbidden: AccessDenied".into())),
            _ => Ok(()),
        }
    }

    fn object(&self, key: &str, bytes: &[u8]) -> Object {
        let size = if let Lie::Claims(size) = self.lie() { size } else { bytes.len() as u64 };
        Object { key: key.into(), size, tag: Some(format!("\"{}\"", bytes.len())) }
    }
}

impl Bucket for Lying {
    fn head(&self, key: &str) -> Result<Object, Fault> {
        self.overloaded(&format!("head {key}"))?;
        let objects = self.0.objects.lock().unwrap();
        objects.get(key).map(|bytes| self.object(key, bytes)).ok_or(Fault::Missing)
    }

    fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        take: &mut dyn FnMut(Object) -> bool,
    ) -> Result<(), Fault> {
        self.overloaded(&format!("list {prefix}"))?;
        let lie = self.lie();
        let loses = match lie {
            Lie::LosesPage => true,
            Lie::LosesPageOnce => self.before("list".into()) == 0,
            _ => false,
        };
        let mut objects = self.0.objects.lock().unwrap();
        let wanted = objects
            .iter()
            .filter(|(key, _)| key.starts_with(prefix) && after.is_none_or(|after| key.as_str() > after));
        for (at, (key, bytes)) in wanted.enumerate() {
            let lost = loses && at / PAGE == 1;
            let more = lost || take(self.object(key, bytes));
            if !more {
                break;
            }
        }
        let outside = format!("{prefix}../../etc/passwd");
        if lie == Lie::Escapes && after.is_none_or(|after| outside.as_str() > after) {
            take(Object { key: outside, size: 1, tag: None });
        }
        if lie == Lie::Forgets && after.is_some() {
            objects.clear();
        }
        Ok(())
    }

    fn get(&self, key: &str, range: Range<u64>) -> Result<Answer<'_>, Fault> {
        let under_way = self.0.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.most.fetch_max(under_way, Ordering::SeqCst);
        std::thread::sleep(std::time::Duration::from_millis(2));
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
        self.overloaded(&format!("get {key} {}", range.start))?;
        self.0.read.lock().unwrap().push(key.to_owned());
        let bytes = self.0.objects.lock().unwrap().get(key).cloned().ok_or(Fault::Missing)?;
        let Object { mut size, mut tag, .. } = self.object(key, &bytes);
        let end = usize::try_from(range.end).unwrap().min(bytes.len());
        let sent = bytes[usize::try_from(range.start).unwrap().min(end)..end].to_vec();
        *self.0.sent.lock().unwrap().entry(key.to_owned()).or_default() += sent.len() as u64;
        let first = |times| self.before(format!("body {key} {}", range.start)) < times;
        let half = sent.len() / 2;
        let mut claimed = range.clone();
        let body: Box<dyn Read> = match self.lie() {
            Lie::CutsShort(times) if first(times) => Box::new(io::Cursor::new(sent[..half].to_vec())),
            Lie::BreaksOff(times) if first(times) => {
                Box::new(io::Cursor::new(sent[..half].to_vec()).chain(Broken))
            }
            Lie::GoesOn => Box::new(io::Cursor::new(sent).chain(io::repeat(7))),
            lie => {
                match lie {
                    Lie::Grows => size += 1,
                    Lie::Changes => tag = Some("\"another\"".into()),
                    Lie::Elsewhere => claimed = claimed.start + 1..claimed.end + 1,
                    _ => {}
                }
                Box::new(io::Cursor::new(sent))
            }
        };
        Ok(Answer { size, tag, range: claimed, body })
    }

    fn put(&self, key: &str, path: &Path) -> Result<(), Fault> {
        self.overloaded(&format!("put {key}"))?;
        let mut bytes = std::fs::read(path).map_err(|error| Fault::Refused(error.to_string()))?;
        if self.lie() == Lie::PutsHalf {
            bytes.truncate(bytes.len() / 2);
        }
        self.0.objects.lock().unwrap().insert(key.into(), bytes);
        self.0.changed.lock().unwrap().push(key.into());
        Ok(())
    }

    fn accepts(&self, key: &str) -> Result<(), Fault> {
        self.overloaded(&format!("accepts {key}"))
    }

    fn delete(&self, key: &str) -> Result<(), Fault> {
        self.overloaded(&format!("delete {key}"))?;
        if self.0.objects.lock().unwrap().remove(key).is_some() {
            self.0.changed.lock().unwrap().push(format!("-{key}"));
        }
        Ok(())
    }
}

/// A connection that broke.
struct Broken;

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::new(io::ErrorKind::ConnectionReset, "connection reset by peer"))
    }
}
