//! Raw bytes of a file as a checkpoint of MindSpore.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| probe_fuzz::read_all("fuzz.ckpt", bytes.to_vec()));
