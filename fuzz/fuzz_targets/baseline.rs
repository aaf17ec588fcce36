//! Baselines from arbitrary bytes: an error, or a baseline whose text reads back as the same one.

#![no_main]

use libfuzzer_sys::fuzz_target;
use probe_gate::baseline::{Baseline, Comparison};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(baseline) = Baseline::parse(bytes) {
        let text = baseline.to_text();
        let back = Baseline::parse(text.as_bytes()).expect("what was written is read");
        assert_eq!(back.to_text(), text);
        assert_eq!(Comparison::of(&baseline, &back).different, 0);
    }
});
