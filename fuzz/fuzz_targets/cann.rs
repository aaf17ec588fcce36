//! Raw bytes of a dump file of CANN, whole and in pieces; the first byte is the size of a piece.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some((&size, file)) = bytes.split_first() {
        probe_fuzz::read_all_of_cann(file, size.into());
    }
});
