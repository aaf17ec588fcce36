//! Raw bytes of a file as a configuration pack, held against itself when it opens.
#![no_main]

use std::path::Path;
use std::sync::{Arc, LazyLock};

use probe_config_check::pack::open_bytes;
use probe_config_check::{Expectations, check_packs};

static TABLE: LazyLock<Expectations> = LazyLock::new(|| Expectations::of(None).expect("the table of this build"));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(pack) = open_bytes(Path::new("fuzz.zip"), Arc::new(bytes.to_vec()), &*TABLE) {
        _ = check_packs(&pack, &pack, &TABLE, true);
    }
});
