//! Raw bytes of a dump file of CANN, and of a piece of one.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| probe_fuzz::read_all_of_cann(bytes));
