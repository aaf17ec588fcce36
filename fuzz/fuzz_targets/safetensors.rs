//! Raw bytes of a file as `.safetensors`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| probe_fuzz::read_all("fuzz.safetensors", bytes.to_vec()));
