//! Raw bytes of a file as `.pt`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| probe_fuzz::read_all("fuzz.pt", bytes.to_vec()));
