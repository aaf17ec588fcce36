//! Description of the run and of the recording in the dump.

use probe_capture::{CaptureLevel, Device, RunManifest, Software};

use crate::device;
use crate::settings::{self, Settings};

/// Returns the current manifest of a recording with these settings.
pub(super) fn of(settings: &Settings) -> RunManifest {
    let patterns = |patterns: &[String]| serde_json::Value::from(patterns.to_vec());
    RunManifest {
        framework: Software { name: "cann".into(), version: String::new() },
        device: Device { kind: "npu".into(), name: device::name(), count: device::count() },
        world_size: settings::world_size(),
        run: settings.run.clone(),
        level: CaptureLevel::Runtime,
        task: settings.task,
        config: serde_json::json!({
            "runtime": "acl",
            "step_on": settings.step_on,
            "include": patterns(&settings.include),
            "exclude": patterns(&settings.exclude),
            "max_tensor": settings.max_tensor,
            "ring": settings.ring,
            "graph_memory": settings.graph_memory,
        }),
        started: now(),
        ..RunManifest::default()
    }
}

/// Returns the current time as RFC 3339.
fn now() -> String {
    // SAFETY: a plain structure of numbers.
    #[expect(unsafe_code, reason = "a structure of the C library")]
    let mut parts = unsafe { std::mem::zeroed::<libc::tm>() };
    let seconds =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seconds = libc::time_t::try_from(seconds).unwrap_or(0);
    // SAFETY: it reads a number and fills in the structure.
    #[expect(unsafe_code, reason = "the C library knows the calendar")]
    unsafe {
        libc::gmtime_r(&raw const seconds, &raw mut parts);
    }
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}+00:00",
        parts.tm_year + 1900,
        parts.tm_mon + 1,
        parts.tm_mday,
        parts.tm_hour,
        parts.tm_min,
        parts.tm_sec
    )
}
