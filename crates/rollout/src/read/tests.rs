//! Damaged files: whatever bytes are wrong, reading ends with a table or an error.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/rollout").join(name)
}

/// A table of three tokens, as this crate writes it.
fn parquet(folder: &Path) -> PathBuf {
    let path = folder.join("tokens.parquet");
    let csv = folder.join("tokens.csv");
    fs::write(&csv, "sample,position,token_id,rollout_logprob,trainer_logprob\na,0,5,-1,-1.5\na,1,6,-2,nan\nb,0,7,,-0.5\n").unwrap();
    let table = open(&csv, Side::Rollout).unwrap().table;
    let mut draft = probe_files::Draft::create(&path).unwrap();
    crate::write::tokens(&mut draft, &table).unwrap();
    draft.place().unwrap();
    path
}

#[test]
fn a_table_that_was_written_is_read_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let table = open(&parquet(folder.path()), Side::Rollout).unwrap().table;
    let names: Vec<&str> = table.samples.iter().map(|sample| &*sample.name).collect();
    assert_eq!((names, &table.tokens.ids[..]), (vec!["a", "b"], &[5, 6, 7][..]));
    assert!(table.tokens.trainer[1].is_nan() && table.tokens.flags[1] & crate::table::TRAINER != 0);
    assert_eq!(table.tokens.get(2).rollout, None);
}

#[test]
fn a_table_of_pandas_is_read_as_the_one_it_was_made_of() {
    // Written by pandas.DataFrame.to_parquet: snappy, integers of 64 bits, numbers of binary64, missing values.
    let ours = open(&data("bf16_soft_cap.parquet"), Side::Rollout).unwrap().table;
    let theirs = open(&data("bf16_soft_cap_pandas.parquet"), Side::Rollout).unwrap().table;
    assert_eq!(ours.samples, theirs.samples);
    assert_eq!(ours.tokens, theirs.tokens);
    assert!(ours.tokens.flags.iter().any(|flags| flags & crate::table::TRAINER == 0));
}

#[test]
fn a_page_that_claims_more_than_it_holds_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("claims.parquet");
    let mut bytes = fs::read(data("bf16_soft_cap_pandas.parquet")).unwrap();
    // The header of the first page begins behind the magic: type, size before compression.
    assert_eq!((&bytes[..4], bytes[4], bytes[6]), (&b"PAR1"[..], 0x15, 0x15));
    assert!(bytes[7] < 0x80);
    bytes.splice(7..8, [0xfe, 0xff, 0xff, 0xff, 0x0f]);
    fs::write(&path, bytes).unwrap();
    let error = open(&path, Side::Rollout).unwrap_err().to_string();
    assert!(error.contains("claims 2147483647 bytes, more than snappy makes of"), "{error}");
}

#[test]
fn damaged_files_end_in_a_table_or_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut originals = vec![parquet(folder.path())];
    originals.extend(
        ["bf16_soft_cap_pandas.parquet", "slime_train_0_0.pt", "bf16_good.jsonl", "prob_diff_step_1.npy"]
            .map(data),
    );
    fs::copy(data("prob_mask_step_1.npy"), folder.path().join("prob_mask_step_1.npy")).unwrap();
    let mut state = 7_u64;
    let mut random = |end: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % end
    };
    for original in originals {
        let bytes = fs::read(&original).unwrap();
        let path = folder.path().join(original.file_name().unwrap());
        let (mut read, mut refused) = (0, 0);
        for round in 0..60 {
            let mut damaged = bytes.clone();
            if round % 3 == 0 {
                damaged.truncate(random(bytes.len()));
            }
            for _ in 0..=round % 4 {
                let at = random(damaged.len().max(1));
                if let Some(byte) = damaged.get_mut(at) {
                    *byte = u8::try_from(random(256)).unwrap();
                }
            }
            fs::write(&path, damaged).unwrap();
            match open(&path, Side::Rollout) {
                Ok(_) => read += 1,
                Err(error) => {
                    refused += 1;
                    assert!(!error.to_string().contains('\n'), "{error}");
                }
            }
        }
        assert!(
            read + refused == 60 && refused >= 10,
            "{}: {read} read, {refused} refused",
            original.display()
        );
    }
}
