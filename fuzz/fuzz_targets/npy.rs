//! Raw bytes of a file as `.npy`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| probe_fuzz::read_all("fuzz.npy", bytes.to_vec()));
