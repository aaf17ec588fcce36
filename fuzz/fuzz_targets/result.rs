//! Raw bytes of a `result.parquet`, made into a page.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| probe_fuzz::page_of(bytes));
