//! Raw bytes of a table of slots, and of one of stacks: `ops.parquet` and `stacks.parquet` of a dump. Seeds are the tables
//! of `testdata/native`, which have no seal; a seal would stop every changed one.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    probe_fuzz::read_all_of_part(&[("ops.parquet", bytes)]);
    probe_fuzz::read_all_of_part(&[("ops.parquet", bytes), ("stacks.parquet", bytes)]);
});
