//! Raw bytes of the journal of an interrupted capture.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    probe_fuzz::read_all_of_part(&[("journal.arrows", bytes), ("stacks.arrows", bytes)]);
});
