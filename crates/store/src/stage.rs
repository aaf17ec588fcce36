//! The copies of one command. Takes addresses as typed and returns something the other crates can open: a path, or the name of something that has a
//! copy.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::address::key_fault;
use super::choose::{self, Choice};
use super::fetch::{Delivery, Order, fetch, patiently, put, put_all};
use super::late::LateObjects;
use super::scratch::Scratch;
use super::{Address, Bucket, Fault, Object, Remote, SCRATCH_BYTES, Scheme, Selection, StoreError, Stores};
use probe_compare::CompareRequest;
use probe_dump::native::MANIFEST;
use probe_files::Copies;
use probe_files::late::LateFolder;

/// Maximum number of objects of one listing; a prefix with more is not a dump.
const MAX_OBJECTS: usize = 10_000_000;

/// Folder of the copies of late objects, in the scratch folder; no [`Scheme`] has this name.
const LATE: &str = "late";

/// Pauses before retries of transient failures.
const PAUSES: [Duration; 3] = [Duration::from_millis(300), Duration::from_secs(1), Duration::from_secs(4)];

/// Extensions of files that need their neighbours: tables, and indices of other files.
const WITH_NEIGHBOURS: [&str; 3] = ["json", "parquet", "arrows"];

/// Location and size limit of the copies.
#[derive(Debug, Clone)]
pub struct StageOptions {
    /// Folder in which the scratch folder is created; the system's temporary folder if `None`.
    pub scratch: Option<PathBuf>,
    /// Total number of bytes of all copies.
    pub bytes: u64,
    /// Pauses before retries of transient failures.
    pub pauses: Vec<Duration>,
}

impl Default for StageOptions {
    fn default() -> Self {
        Self { scratch: None, bytes: SCRATCH_BYTES, pauses: PAUSES.into() }
    }
}

/// Open buckets.
type Buckets = BTreeMap<(Scheme, String), Arc<dyn Bucket>>;

/// Copies for one command, removed on drop.
pub struct Stage<'a> {
    stores: &'a dyn Stores,
    options: StageOptions,
    /// Dropped before the folder that holds its copies.
    late: Option<(LateObjects, LateFolder)>,
    scratch: Option<Scratch>,
    buckets: Buckets,
    copies: Copies,
    /// Files that are complete copies.
    whole: BTreeSet<PathBuf>,
    watch: Box<dyn Fn(u64, u64) + Send + Sync + 'a>,
}

impl std::fmt::Debug for Stage<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage")
            .field("options", &self.options)
            .field("copies", &self.copies)
            .finish_non_exhaustive()
    }
}

impl<'a> Stage<'a> {
    /// Creates a stage that has copied nothing and created no folder.
    pub fn new(stores: &'a dyn Stores, options: StageOptions) -> Self {
        Self {
            stores,
            options,
            late: None,
            scratch: None,
            buckets: BTreeMap::new(),
            copies: Copies::default(),
            whole: BTreeSet::new(),
            watch: Box::new(|_, _| {}),
        }
    }

    /// Sets `watch` to be called with the bytes copied so far and the total.
    #[must_use]
    pub fn watched(self, watch: impl Fn(u64, u64) + Send + Sync + 'a) -> Self {
        Self { watch: Box::new(watch), ..self }
    }

    /// Registers that `name` is to be read at `place`: the copy was made by somebody else.
    #[must_use]
    pub fn with_copy(mut self, name: impl Into<PathBuf>, place: impl Into<PathBuf>) -> Self {
        self.copies.add(name, place);
        self
    }

    /// Checks that everything read from the copies so far was there. Must be called before giving an answer based on them.
    ///
    /// # Errors
    /// [`StoreError`] of the first bytes that could not be copied when they were read.
    pub fn sound(&self) -> Result<(), StoreError> {
        self.late.as_ref().map_or(Ok(()), |(late, _)| late.sound())
    }

    /// Returns the copies so far.
    pub const fn copies(&self) -> &Copies {
        &self.copies
    }

    /// Copies the dump, or the file with its companions, at the address `typed`. Returns its name from now on.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn dump(&mut self, typed: &Path, selection: &Selection) -> Result<PathBuf, StoreError> {
        let remote = match Address::parse(typed)? {
            Address::Local(path) => return Ok(path),
            Address::Remote(remote) => remote,
        };
        let found = self.head(&remote)?;
        let alone = |key: &str| {
            let kind = Path::new(key).extension().and_then(|kind| kind.to_str());
            !kind.is_some_and(|kind| WITH_NEIGHBOURS.contains(&kind))
        };
        let mut folder = remote.clone();
        let objects = match found {
            Some(object) if object.size > 0 && alone(&object.key) => vec![object],
            found => {
                // Some stores represent folders by empty objects.
                if found.is_some_and(|object| object.size > 0) {
                    choose::split(&remote.key).0.clone_into(&mut folder.key);
                }
                self.list(&folder)?
            }
        };
        if objects.is_empty() {
            return Err(StoreError::Missing { name: remote.name() });
        }
        let choices = choose::choose(&objects, selection);
        let above = self.manifests_above(&folder)?;
        let chosen = objects.iter().zip(choices).chain(above.iter().map(|object| (object, Choice::Copy)));
        let chosen: Vec<_> = chosen.collect();
        self.take(&remote, &chosen)?;
        Ok(remote.name())
    }

    /// Copies the data that the options of a comparison name. Returns the options with the names to use from now on.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn request(
        &mut self,
        request: &CompareRequest,
        selection: &Selection,
    ) -> Result<CompareRequest, StoreError> {
        let files: Vec<PathBuf> = request.files().map(Into::into).collect();
        // A repeated run of the baseline is measured whole if it has none of the steps being compared.
        let selection = Selection { or_all: true, ..selection.clone() };
        request.clone().with_paths(|path| {
            if files.iter().any(|file| file == path) { self.file(path) } else { self.dump(path, &selection) }
        })
    }

    /// Copies one object. Returns its name from now on.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn file(&mut self, typed: &Path) -> Result<PathBuf, StoreError> {
        let missing = || StoreError::Missing { name: typed.into() };
        self.file_if_there(typed)?.ok_or_else(missing)
    }

    /// As [`file`](Self::file), but `None` if a store has no such object.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn file_if_there(&mut self, typed: &Path) -> Result<Option<PathBuf>, StoreError> {
        let remote = match Address::parse(typed)? {
            Address::Local(path) => return Ok(Some(path)),
            Address::Remote(remote) => remote,
        };
        let Some(object) = self.head(&remote)? else { return Ok(None) };
        self.take(&remote, &[(&object, Choice::Copy)])?;
        Ok(Some(remote.name()))
    }

    /// Copies the objects of a folder that `wanted` accepts, by their keys within it; folders of the other objects exist but are
    /// empty.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn folder(&mut self, typed: &Path, wanted: impl Fn(&str) -> bool) -> Result<PathBuf, StoreError> {
        let remote = match Address::parse(typed)? {
            Address::Local(path) => return Ok(path),
            Address::Remote(remote) => remote,
        };
        let objects = self.list(&remote)?;
        if objects.is_empty() {
            return Err(StoreError::Missing { name: remote.name() });
        }
        let prefix = remote.prefix();
        for object in &objects {
            self.make_folder_of(&remote.of(&object.key))?;
        }
        let wanted = |object: &&Object| object.key.strip_prefix(&prefix).is_some_and(&wanted);
        let chosen: Vec<_> = objects.iter().filter(wanted).map(|object| (object, Choice::Copy)).collect();
        self.take(&remote, &chosen)?;
        Ok(remote.name())
    }

    /// Prepares a folder to write to, inside the scratch folder if a store was given; checks that the store accepts objects. Returns the name of the
    /// folder; files written to its [place](Copies::place) are uploaded by [`deliver`](Self::deliver).
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn output(&mut self, typed: &Path) -> Result<PathBuf, StoreError> {
        let remote = match Address::parse(typed)? {
            Address::Local(path) => return Ok(path),
            Address::Remote(remote) => remote,
        };
        let trial = format!("{}.probe-trial", remote.prefix());
        let bucket = opened(&mut self.buckets, self.stores, &remote)?;
        patiently(&self.options.pauses, &remote.name(), || bucket.accepts(&trial))?;
        self.make_folder_of(&remote.of(&trial))?;
        Ok(remote.name())
    }

    /// Prepares a file to write, as [`output`](Self::output) does for a folder.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn output_file(&mut self, typed: &Path) -> Result<PathBuf, StoreError> {
        let Address::Remote(remote) = Address::parse(typed)? else { return self.output(typed) };
        let above = remote.of(choose::split(&remote.key).0);
        self.output(&above)?;
        Ok(remote.name())
    }

    /// Prepares a folder to write to, as [`output`](Self::output), which must still be empty in a store.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn new_output(&mut self, typed: &Path) -> Result<PathBuf, StoreError> {
        if let Address::Remote(remote) = Address::parse(typed)?
            && let Some(object) = self.list(&remote)?.first()
        {
            let message =
                format!("is not empty, it has {:?}; name a folder that does not exist yet", object.key);
            return Err(StoreError::unsound(remote.name(), message));
        }
        self.output(typed)
    }

    /// Uploads the files below the folder called `name` if it belongs to a store, where the folder was empty. The files called `last` are uploaded
    /// last, because they mark the others as present.
    ///
    /// # Errors
    /// [`StoreError`] of a file that was not uploaded; the others are then removed, as far as the store allows.
    pub fn deliver_folder(&mut self, name: &Path, last: &str) -> Result<(), StoreError> {
        let Address::Remote(remote) = Address::parse(name)? else { return Ok(()) };
        let bucket = opened(&mut self.buckets, self.stores, &remote)?;
        let (mut files, mut after) = (Vec::new(), Vec::new());
        let mut folders = vec![(remote.key.clone(), self.copies.place(name))];
        while let Some((key, folder)) = folders.pop() {
            let refused = |error| StoreError::scratch(&folder, error);
            for entry in fs::read_dir(&folder).map_err(refused)? {
                let file = entry.map_err(refused)?.path();
                let part = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let key = if key.is_empty() { part.clone() } else { format!("{key}/{part}") };
                if file.is_dir() {
                    folders.push((key, file));
                    continue;
                }
                let to = if part == last { &mut after } else { &mut files };
                to.push(Delivery { name: remote.of(&key), key, file });
            }
        }
        let pauses = &self.options.pauses;
        let put = put_all(&**bucket, &files, pauses).and_then(|()| put_all(&**bucket, &after, pauses));
        if put.is_err() {
            // A store that refuses to remove one object refuses the others too.
            _ = files.iter().chain(&after).try_for_each(|file| bucket.delete(&file.key));
        }
        put
    }

    /// Uploads those of `files`, given as places, that belong to a store, one after the other. Returns the names of all of them.
    ///
    /// # Errors
    /// [`StoreError`] of the first file that was not uploaded; the files before it were.
    pub fn deliver(&mut self, files: &[PathBuf]) -> Result<Vec<PathBuf>, StoreError> {
        let mut names = Vec::with_capacity(files.len());
        for file in files {
            let name = self.copies.name(file);
            if let Address::Remote(remote) = Address::parse(&name)? {
                let bucket = opened(&mut self.buckets, self.stores, &remote)?;
                put(&**bucket, &remote.key, &name, file, &self.options.pauses)?;
            }
            names.push(name);
        }
        Ok(names)
    }

    /// Removes an object, if the address is in a store and the object exists.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn remove(&mut self, typed: &Path) -> Result<(), StoreError> {
        let Address::Remote(remote) = Address::parse(typed)? else { return Ok(()) };
        let bucket = opened(&mut self.buckets, self.stores, &remote)?;
        patiently(&self.options.pauses, &remote.name(), || bucket.delete(&remote.key))
    }

    fn head(&mut self, remote: &Remote) -> Result<Option<Object>, StoreError> {
        if remote.key.is_empty() {
            return Ok(None);
        }
        let bucket = opened(&mut self.buckets, self.stores, remote)?;
        patiently(&self.options.pauses, &remote.name(), || match bucket.head(&remote.key) {
            Ok(object) => Ok(Some(object)),
            Err(Fault::Missing) => Ok(None),
            Err(fault) => Err(fault),
        })
    }

    /// Returns all objects below a prefix, sorted by key. They are listed twice, the second time starting after the first key, so that pages begin at
    /// other keys: an object that one listing lost shows as a difference, which is an error.
    fn list(&mut self, remote: &Remote) -> Result<Vec<Object>, StoreError> {
        let (name, prefix) = (remote.name(), remote.prefix());
        let pauses = &self.options.pauses;
        let bucket = opened(&mut self.buckets, self.stores, remote)?;
        let listed = |after: Option<&str>| {
            let mut objects = Vec::new();
            patiently(pauses, &name, || {
                objects.clear();
                let mut take = |object| {
                    objects.push(object);
                    objects.len() <= MAX_OBJECTS
                };
                match bucket.list(&prefix, after, &mut take) {
                    Err(Fault::Missing) => Ok(()),
                    other => other,
                }
            })?;
            if objects.len() > MAX_OBJECTS {
                let message =
                    format!("more than {MAX_OBJECTS} objects are below it; give the path of one dump");
                return Err(StoreError::unsound(&name, message));
            }
            objects.sort_by(|a: &Object, b| a.key.cmp(&b.key));
            Ok(objects)
        };
        let objects = listed(None)?;
        let Some(first) = objects.first() else { return Ok(objects) };
        let again = listed(Some(&first.key))?;
        let rest = objects.get(1..).unwrap_or(&[]);
        if again != rest {
            let message = format!(
                "its listing changed, from {} objects to {}; wait until nothing writes there, and try again",
                objects.len(),
                again.len() + 1
            );
            return Err(StoreError::unsound(&name, message));
        }
        for object in &objects {
            let fault = if object.key.starts_with(&prefix) {
                key_fault(object.key.trim_end_matches('/'))
            } else {
                Some("was not requested".into())
            };
            if let Some(fault) = fault {
                let message = format!("it holds an object whose key {:?} {fault}; rename it", object.key);
                return Err(StoreError::unsound(&name, message));
            }
        }
        Ok(without_folders(objects))
    }

    /// Returns the manifests of the dump to which the given folder of a step or rank belongs.
    fn manifests_above(&mut self, remote: &Remote) -> Result<Vec<Object>, StoreError> {
        let mut found = Vec::new();
        let mut key = remote.key.as_str();
        for _ in 0..2 {
            let (above, name) = choose::split(key);
            if !choose::is_inner(name) {
                break;
            }
            let manifest = if above.is_empty() { MANIFEST.into() } else { format!("{above}/{MANIFEST}") };
            found.extend(self.head(&Remote { key: manifest, ..remote.clone() })?);
            key = above;
        }
        Ok(found)
    }

    /// Copies the chosen objects that have no copies yet.
    fn take(&mut self, remote: &Remote, chosen: &[(&Object, Choice)]) -> Result<(), StoreError> {
        let mut orders = Vec::new();
        for &(object, choice) in chosen {
            let name = remote.of(&object.key);
            self.make_folder_of(&name)?;
            let file = self.copies.place(&name);
            if self.whole.contains(&file) {
                continue;
            }
            match choice {
                Choice::Copy => orders.push((object, name, file)),
                Choice::Late => {
                    let bucket = Arc::clone(opened(&mut self.buckets, self.stores, remote)?);
                    File::create(&file).map_err(|error| StoreError::scratch(&file, error))?;
                    if let Some((late, _)) = &self.late {
                        late.add(file, object, name, bucket);
                    }
                }
                Choice::Stand { sized } => {
                    let size = if sized { object.size } else { 0 };
                    // A sparse file of this size takes no space.
                    let made = File::create(&file).and_then(|stand| stand.set_len(size));
                    made.map_err(|error| StoreError::scratch(&file, error))?;
                }
                Choice::Leave => {}
            }
        }
        let bytes = orders.iter().map(|(object, _, _)| object.size).fold(0_u64, u64::saturating_add);
        if let Some(scratch) = &self.scratch {
            scratch.budget().take(bytes, &remote.name())?;
        }
        let orders = orders.into_iter().map(|(object, name, file)| Order::whole(object, name, file));
        let orders = orders.collect::<Result<Vec<_>, _>>()?;
        let bucket = opened(&mut self.buckets, self.stores, remote)?;
        fetch(&**bucket, &orders, &self.options.pauses, &*self.watch)?;
        self.whole.extend(orders.into_iter().map(|order| order.file));
        Ok(())
    }

    /// Creates the folder for the copy of the object called `name`.
    fn make_folder_of(&mut self, name: &Path) -> Result<(), StoreError> {
        let Address::Remote(remote) = Address::parse(name)? else { return Ok(()) };
        let scratch = match &mut self.scratch {
            Some(scratch) => scratch,
            none => {
                let parent = self.options.scratch.clone().unwrap_or_else(std::env::temp_dir);
                let scratch = none.insert(Scratch::create(&parent, self.options.bytes)?);
                let folder = scratch.path().join(LATE);
                fs::create_dir(&folder).map_err(|error| StoreError::scratch(&folder, error))?;
                let late =
                    LateObjects::new(folder, Arc::clone(scratch.budget()), self.options.pauses.clone());
                let below = LateFolder::new(scratch.path().into(), Arc::new(late.clone()));
                self.late = Some((late, below));
                scratch
            }
        };
        let place = scratch.path().join(remote.scheme.name()).join(&remote.bucket);
        self.copies.add(remote.root(), place);
        let file = self.copies.place(name);
        let folder = file.parent().unwrap_or(&file);
        fs::create_dir_all(folder).map_err(|error| StoreError::scratch(folder, error))
    }
}

fn opened<'b>(
    buckets: &'b mut Buckets,
    stores: &dyn Stores,
    remote: &Remote,
) -> Result<&'b Arc<dyn Bucket>, StoreError> {
    match buckets.entry((remote.scheme, remote.bucket.clone())) {
        Entry::Occupied(known) => Ok(known.into_mut()),
        Entry::Vacant(new) => {
            let found = stores.open(remote.scheme, &remote.bucket);
            let found = found.map_err(|reason| StoreError::Unreachable { name: remote.name(), reason })?;
            Ok(new.insert(found.into()))
        }
    }
}

/// Removes the empty objects that some tools create for folders.
fn without_folders(objects: Vec<Object>) -> Vec<Object> {
    let folders: BTreeSet<String> = objects
        .iter()
        .flat_map(|object| object.key.match_indices('/').map(|(at, _)| object.key[..at].to_owned()))
        .collect();
    let is_file =
        |object: &Object| object.size > 0 || !(object.key.ends_with('/') || folders.contains(&object.key));
    objects.into_iter().filter(is_file).collect()
}
