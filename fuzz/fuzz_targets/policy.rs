//! Policies of a gate from arbitrary text: an error, or a policy that holds against itself.

#![no_main]

use libfuzzer_sys::fuzz_target;
use probe_gate::policy::{Date, Policy, growth};

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Policy::parse(text, Date::FIRST) {
        Ok(policy) => assert!(growth(&policy, &policy).is_empty(), "a policy is no looser than itself"),
        Err(message) => assert!(!message.contains('\n'), "{message}"),
    }
});
