//! Raw bytes of a pickle program, in a sound archive.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    probe_fuzz::read_all("fuzz.pt", probe_fuzz::torch_archive(bytes));
});
