//! Stores of `object_store` in memory, slow ones too: whole comparisons, and what `probe::store` relies on.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;
use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use probe::compare::{CompareOptions, CompareRequest, Quiet, compare};
use probe::judge::{RunVerdict, Summary};
use probe::report::{Format, json};
use probe::shard::{Shard, compare_shard_staged, merge_staged, plan_staged};
use probe::store::{Bucket, Fault, Object, Scheme, Selection, Stage, StageOptions, Stores};

use crate::ObjectStores;

/// One store under every name.
struct One {
    stores: ObjectStores,
    store: Arc<dyn ObjectStore>,
}

impl One {
    fn new(store: impl ObjectStore) -> Self {
        Self { stores: ObjectStores::default(), store: Arc::new(store) }
    }

    fn bucket(&self) -> Box<dyn Bucket> {
        self.stores.bucket(Arc::clone(&self.store)).unwrap()
    }

    fn stage(&self) -> Stage<'_> {
        Stage::new(self, StageOptions::default())
    }
}

impl Stores for One {
    fn open(&self, _: Scheme, _: &str) -> Result<Box<dyn Bucket>, String> {
        self.stores.bucket(Arc::clone(&self.store))
    }
}

fn faults() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/faults/gpt_rank1_linear_L1_statistics")
}

fn put_all(bucket: &dyn Bucket, folder: &Path, prefix: &str) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let key = format!("{prefix}/{}", entry.file_name().to_str().unwrap());
        if entry.path().is_dir() {
            put_all(bucket, &entry.path(), &key);
        } else {
            bucket.put(&key, &entry.path()).unwrap();
        }
    }
}

fn keys(bucket: &dyn Bucket, prefix: &str, after: Option<&str>) -> Vec<String> {
    let mut keys = Vec::new();
    let mut take = |object: Object| {
        keys.push(object.key);
        true
    };
    bucket.list(prefix, after, &mut take).unwrap();
    keys.sort();
    keys
}

#[test]
fn a_bucket_does_what_is_asked_of_it() {
    let one = One::new(InMemory::new());
    let bucket = one.bucket();
    let folder = tempfile::tempdir().unwrap();
    let large = folder.path().join("large");
    // Three parts, the last one short.
    let bytes: Vec<u8> = (0..40_000_001_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
    fs::write(&large, &bytes).unwrap();
    bucket.put("a/large", &large).unwrap();
    let small = folder.path().join("small");
    fs::write(&small, "abc").unwrap();
    for key in ["a/b/small", "ab/small", "a/c d+é"] {
        bucket.put(key, &small).unwrap();
    }
    assert_eq!(bucket.head("a/large").unwrap().size, 40_000_001);
    assert_eq!(keys(&*bucket, "a/", None), ["a/b/small", "a/c d+é", "a/large"]);
    assert_eq!(keys(&*bucket, "a/", Some("a/b/small")), ["a/c d+é", "a/large"]);
    assert_eq!(keys(&*bucket, "", None).len(), 4);
    let mut answer = bucket.get("a/large", 16_000_000..39_000_000).unwrap();
    let mut found = Vec::new();
    answer.body.read_to_end(&mut found).unwrap();
    assert_eq!((answer.size, answer.range.clone()), (40_000_001, 16_000_000..39_000_000));
    assert!(found == bytes[16_000_000..39_000_000]);
    assert_eq!(bucket.head("a/none").unwrap_err(), Fault::Missing);
    assert!(matches!(bucket.get("a/none", 0..1), Err(Fault::Missing)));
    bucket.accepts("a/trial").unwrap();
    assert_eq!(bucket.head("a/trial").unwrap_err(), Fault::Missing);
    for _ in 0..2 {
        bucket.delete("a/large").unwrap();
    }
    assert_eq!(keys(&*bucket, "a/", None).len(), 2);
}

/// The machine-readable report, without what a clock says and with the names of dumps on a disk.
fn report(summary: &Summary) -> String {
    let text = json::text(&Summary { seconds: 0.0, ..summary.clone() }).unwrap();
    text.replace("s3://bucket/runs", faults().to_str().unwrap())
}

fn on_disk() -> Summary {
    let options = CompareOptions::default();
    compare(&faults().join("baseline"), &faults().join("candidate"), &options, &Quiet, &mut |_| Ok(()))
        .unwrap()
}

#[test]
fn slow_stores_give_the_answer_of_a_disk() {
    let slow = Duration::from_millis(20);
    let config = ThrottleConfig {
        wait_get_per_call: slow,
        wait_list_per_call: slow,
        wait_list_per_entry: slow,
        wait_get_per_byte: Duration::from_nanos(100),
        ..ThrottleConfig::default()
    };
    let one = One::new(ThrottledStore::new(InMemory::new(), config));
    put_all(&*one.bucket(), &faults(), "runs");
    let mut stage = one.stage();
    let mut side =
        |name: &str| stage.dump(Path::new(&format!("s3://bucket/runs/{name}")), &Selection::default());
    let (baseline, candidate) = (side("baseline").unwrap(), side("candidate").unwrap());
    let options = CompareRequest::default().options(stage.copies()).unwrap();
    let found = compare(&baseline, &candidate, &options, &Quiet, &mut |_| Ok(())).unwrap();
    assert_eq!(report(&found), report(&on_disk()));
}

#[test]
fn an_answer_that_stands_still_is_given_up() {
    let wait = ThrottleConfig { wait_get_per_byte: Duration::from_millis(200), ..ThrottleConfig::default() };
    let one = One::new(ThrottledStore::new(InMemory::new(), wait));
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), [0; 100]).unwrap();
    one.bucket().put("a", &folder.path().join("a")).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut bucket = crate::bucket::StoreBucket::new(Arc::clone(&one.store), runtime.handle().clone());
    bucket.stalled = Duration::from_millis(300);
    let mut answer = bucket.get("a", 0..100).unwrap();
    let error = answer.body.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.to_string(), "nothing came for 0.3 s");
}

#[test]
fn plan_shards_and_merge_in_a_store_give_the_answer_of_one_process() {
    let one = One::new(InMemory::new());
    let bucket = one.bucket();
    put_all(&*bucket, &faults(), "runs");
    let path = |text: &str| std::path::PathBuf::from(format!("s3://bucket/{text}"));
    let (b, c, run) = (path("runs/baseline"), path("runs/candidate"), path("out/run"));
    let (made, plan) = plan_staged(&mut one.stage(), &b, &c, &run, &CompareRequest::default()).unwrap();
    assert_eq!((made.groups(), plan.clone()), (2, path("out/run/plan.json")));
    let on_disk_plan = tempfile::tempdir().unwrap();
    let sides = ["baseline", "candidate"].map(|side| faults().join(side));
    let weighed = plan_staged(
        &mut one.stage(),
        &sides[0],
        &sides[1],
        &on_disk_plan.path().join("run"),
        &CompareRequest::default(),
    );
    assert_eq!(weighed.unwrap().0.bytes(), made.bytes());
    let merged = merge_staged(&mut one.stage(), &run, Some(&[Format::Json]));
    assert!(
        merged.unwrap_err().to_string().contains("s3://bucket/out/run/plan.json: no shard of it is done")
    );
    for index in [2, 1, 3] {
        let shard = Shard::new(index, 3).unwrap();
        let done = compare_shard_staged(&mut one.stage(), &plan, shard, &Quiet).unwrap();
        assert!(!done.was_done);
        if index == 2 {
            let (merged, _) = merge_staged(&mut one.stage(), &run, Some(&[Format::Json])).unwrap();
            assert_eq!(merged.summary.verdict, RunVerdict::Incomplete);
            let reason = &merged.summary.incomplete[0].reason;
            assert!(reason.contains("--plan s3://bucket/out/run/plan.json --shard 1/3"), "{reason}");
        }
    }
    let again = compare_shard_staged(&mut one.stage(), &plan, Shard::new(1, 3).unwrap(), &Quiet).unwrap();
    assert!(again.was_done);
    let formats = [Format::Text, Format::Xlsx, Format::Json, Format::Html];
    let (merged, written) = merge_staged(&mut one.stage(), &run, Some(&formats)).unwrap();
    assert_eq!(report(&merged.summary), report(&on_disk()));
    assert_eq!(written.len(), 4);
    for report in written {
        let key = report.strip_prefix("s3://bucket").unwrap();
        assert!(bucket.head(key.to_str().unwrap()).unwrap().size > 100);
    }
}
