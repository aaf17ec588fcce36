//! Raw bytes of a `result.parquet`, made into a page. Seeds have no seal, which would stop every changed one.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| probe_fuzz::page_of(bytes));
