//! Plans, shards and merges in a store.

use super::*;
use probe::shard::{Shard, compare_shard_staged, merge_staged, plan_staged};

/// Plans in the store.
fn planned(lying: &Lying, request: &CompareRequest) -> PathBuf {
    let path = |text: &str| PathBuf::from(format!("s3://bucket/{text}"));
    let (b, c) = (path("runs/baseline"), path("runs/candidate"));
    plan_staged(&mut stage(lying), &b, &c, &path("run"), request).unwrap().1
}

fn shard(lying: &Lying, plan: &Path, index: u32) -> Result<bool, String> {
    let shard = Shard::new(index, 3).unwrap();
    let done = compare_shard_staged(&mut stage(lying), plan, shard, &Quiet);
    done.map(|done| !done.was_done).map_err(|error| error.to_string())
}

fn merged(lying: &Lying) -> (Summary, Vec<u32>, Vec<String>) {
    let (found, _) = merge_staged(&mut stage(lying), Path::new("s3://bucket/run"), Some(&[])).unwrap();
    (found.summary, found.missing, found.notes)
}

/// Objects put and removed since the last time.
fn changed(lying: &Lying) -> Vec<String> {
    let changed = std::mem::take(&mut *lying.0.changed.lock().unwrap());
    let last = |key: &String| {
        let name = key.rsplit('/').next().unwrap().to_owned();
        if key.starts_with('-') { format!("-{name}") } else { name }
    };
    changed.iter().map(last).collect()
}

#[test]
fn a_plan_reads_no_part_and_a_shard_its_own_ranks_alone() {
    let (folder, lying) = case();
    let plan = planned(&lying, &CompareRequest::default());
    assert!(lying.0.read.lock().unwrap().is_empty());
    assert_eq!(changed(&lying), ["plan.json"]);
    for index in 1..=3 {
        lying.0.read.lock().unwrap().clear();
        assert!(shard(&lying, &plan, index).unwrap());
        // Eight of 24 ranks, of both sides, and the plan.
        let mut read = lying.0.read.lock().unwrap().clone();
        read.sort();
        read.dedup();
        assert_eq!(read.len(), 17, "{read:?}");
        assert_eq!(changed(&lying), ["result.parquet", "part.json"]);
        assert!(!shard(&lying, &plan, index).unwrap());
        assert!(changed(&lying).is_empty());
    }
    let (found, missing, notes) = merged(&lying);
    assert_eq!((missing.len(), notes.len()), (0, 0));
    let single = on_disk(folder.path(), &CompareOptions::default());
    assert_eq!(
        report(&found, "s3://bucket/runs", folder.path()),
        report(&single, "s3://bucket/runs", folder.path())
    );
    // Shards of another plan are told and not counted.
    planned(&lying, &CompareRequest { ranks: Some("0-1".parse().unwrap()), ..CompareRequest::default() });
    let error =
        merge_staged(&mut stage(&lying), Path::new("s3://bucket/run"), Some(&[])).unwrap_err().to_string();
    assert!(error.starts_with("s3://bucket/run/plan.json: no shard of it is done; run: "), "{error}");
    shard(&lying, &plan, 1).unwrap();
    let (found, _, notes) = merged(&lying);
    assert!(
        found.counts.parts < 3 && notes[0].starts_with("s3://bucket/run: shards of other plans"),
        "{notes:?}"
    );
}

#[test]
fn a_shard_whose_rows_did_not_arrive_is_not_done() {
    let (_folder, lying) = case();
    let plan = planned(&lying, &CompareRequest::default());
    for index in 2..=3 {
        shard(&lying, &plan, index).unwrap();
    }
    lying.lies(Lie::PutsHalf);
    let error = shard(&lying, &plan, 1).unwrap_err();
    assert!(
        error.contains("/3/1/result.parquet: ") && error.contains(" bytes were uploaded, but it has "),
        "{error}"
    );
    lying.lies(Lie::None);
    let (found, missing, _) = merged(&lying);
    assert_eq!((missing, found.verdict), (vec![1], RunVerdict::Incomplete));
    let reason = &found.incomplete[0].reason;
    assert_eq!(reason, "not done; run: probe compare --plan s3://bucket/run/plan.json --shard 1/3");
    assert!(shard(&lying, &plan, 1).unwrap());
    assert_eq!(merged(&lying).0.verdict, RunVerdict::Diverged);
    // One that was poisoned by a part that could not be read is tried again: what it said goes before its rows do.
    let key = "runs/candidate/step0/rank5/dump.json";
    let whole = lying.0.objects.lock().unwrap().insert(key.into(), b"{".to_vec()).unwrap();
    let plan =
        planned(&lying, &CompareRequest { ranks: Some("3-5".parse().unwrap()), ..CompareRequest::default() });
    for index in 1..=3 {
        shard(&lying, &plan, index).unwrap();
    }
    assert_eq!(merged(&lying).0.verdict, RunVerdict::Incomplete);
    lying.0.objects.lock().unwrap().insert(key.into(), whole);
    changed(&lying);
    let done: Vec<bool> = (1..=3).map(|index| shard(&lying, &plan, index).unwrap()).collect();
    assert_eq!(done.iter().filter(|done| **done).count(), 1);
    assert_eq!(changed(&lying), ["-part.json", "result.parquet", "part.json"]);
    assert_eq!(merged(&lying).0.verdict, RunVerdict::Diverged);
}
