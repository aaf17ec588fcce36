//! Raw bytes of a file as `.npz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| probe_fuzz::read_all("fuzz.npz", bytes.to_vec()));
