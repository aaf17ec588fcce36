//! Files of scalars from arbitrary bytes, in every form.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use probe_gate::import::{ScalarFormat, import_bytes};

fuzz_target!(|bytes: &[u8]| {
    let forms = ScalarFormat::ALL.into_iter().map(Some).chain([None]);
    for form in forms {
        if let Ok(found) = import_bytes(Path::new("fuzz"), bytes, form) {
            assert!(found.scalars.values().all(|series| !series.is_empty()));
        }
    }
});
