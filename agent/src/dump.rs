//! CANN's own dumps, received in the process: the runtime passes pieces of files to a callback instead of writing
//! them.
//!
//! A recorded step begins with `aclmdlInitDump`, `acldumpRegCallback` and `aclmdlSetDump`, and ends with
//! `acldumpUnregCallback` and `aclmdlFinalizeDump`, once the device is idle. The configured path is the folder of the
//! part, so each piece tells its step, however late it comes, and files that the runtime writes itself end up in the
//! same place.

use std::ffi::{CString, c_char};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use probe_capture::{CannFiles, CaptureError, Fate};
use probe_read::cann::Chunk;

use crate::acl::{Status, UNSUPPORTED, real, wrappers};
use crate::notes::{self, Count};
use crate::settings::{self, Settings};
use crate::symbols::{self, Address};
use crate::{control, device};

wrappers! {
    INITIALISE aclInit;
    FINALISE aclFinalize;
}

/// Longest wait at the end of a step for unfinished files that receive no more pieces.
const PATIENCE: Duration = Duration::from_secs(1);
/// Interval between checks.
const LOOK: Duration = Duration::from_millis(5);

type Callback = unsafe extern "C" fn(*const u8, i32) -> i32;

/// Functions of the runtime needed for dumps.
#[derive(Debug, Clone, Copy)]
struct Functions {
    initialise: unsafe extern "C" fn() -> Status,
    configure: unsafe extern "C" fn(*const c_char) -> Status,
    finalise: unsafe extern "C" fn() -> Status,
    register: unsafe extern "C" fn(Callback, i32) -> Status,
    unregister: unsafe extern "C" fn(),
    synchronise: unsafe extern "C" fn() -> Status,
}

impl Functions {
    fn find() -> Result<Self, String> {
        macro_rules! function {
            ($name:literal as $kind:ty) => {{
                let found = symbols::of_cann($name)
                    .ok_or_else(|| format!("CANN has no {}", $name.to_string_lossy()))?;
                // SAFETY: the address of CANN's function of this name, whose signature is public.
                unsafe { std::mem::transmute::<Address, $kind>(found) }
            }};
        }
        type Plain = unsafe extern "C" fn() -> Status;
        Ok(Self {
            initialise: function!(c"aclmdlInitDump" as Plain),
            configure: function!(c"aclmdlSetDump" as unsafe extern "C" fn(*const c_char) -> Status),
            finalise: function!(c"aclmdlFinalizeDump" as Plain),
            register: function!(c"acldumpRegCallback" as unsafe extern "C" fn(Callback, i32) -> Status),
            unregister: function!(c"acldumpUnregCallback" as unsafe extern "C" fn()),
            synchronise: function!(c"aclrtSynchronizeDevice" as Plain),
        })
    }
}

/// State of this process's dumps.
struct State {
    /// True if the program has initialised CANN and not finalised it.
    ready: bool,
    /// Step to be dumped.
    wanted: Option<u64>,
    /// Step being dumped.
    running: Option<(u64, Functions)>,
    /// Number of files of each step.
    steps: Vec<(u64, u64)>,
}

static STATE: Mutex<State> =
    Mutex::new(State { ready: false, wanted: None, running: None, steps: Vec::new() });
static FILES: Mutex<Option<CannFiles>> = Mutex::new(None);
static BEGUN: AtomicBool = AtomicBool::new(false);
/// True if the program has finalised CANN, and with it a recording that had steps to come.
static CUT_SHORT: AtomicBool = AtomicBool::new(false);
/// True once no more pieces are accepted; the reason was reported.
static STOPPED: AtomicBool = AtomicBool::new(false);
/// Number of pieces received, which shows whether more are still coming.
static PIECES: AtomicU64 = AtomicU64::new(0);
/// Number of complete files.
static COMPLETE: AtomicU64 = AtomicU64::new(0);

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn files() -> MutexGuard<'static, Option<CannFiles>> {
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the step to dump from now on, or none.
pub(crate) fn want(step: Option<u64>) {
    let mut state = state();
    state.wanted = step;
    state.settle();
}

/// Notes that the runtime is initialised, or is about to be finalised.
fn ready(ready: bool) {
    let mut state = state();
    state.ready = ready;
    state.settle();
}

/// Reports the received dumps, once no more will arrive.
pub(crate) fn close() {
    let mut state = state();
    state.wanted = None;
    state.settle();
    if let Some(files) = files().as_mut() {
        _ = files.finish();
    }
    let Some(settings) = Settings::get() else { return };
    if settings.quiet {
        return;
    }
    let steps: Vec<String> =
        state.steps.iter().map(|(step, count)| format!("{count} files of step {step}")).collect();
    let steps = if steps.is_empty() { "nothing was".to_owned() } else { steps.join(", ") };
    notes::say(&format!("{steps} received from CANN in {}", settings.output.display()));
    for (what, tally) in notes::all() {
        notes::say(&format!("{} {} (first: {})", tally.count, what.line(), tally.first));
    }
}

/// Returns true if the program has initialised CANN: a forked process has no device of its own.
pub(crate) fn has_begun() -> bool {
    BEGUN.load(Ordering::Acquire)
}

impl State {
    fn settle(&mut self) {
        let wanted = self.wanted.filter(|_| self.ready && !STOPPED.load(Ordering::Acquire));
        if let Some((step, functions)) = self.running
            && wanted != Some(step)
        {
            self.end(step, functions);
        }
        if let (Some(step), None) = (wanted, self.running)
            && let Err(why) = self.begin(step)
        {
            stop(&why);
        }
    }

    fn begin(&mut self, step: u64) -> Result<(), String> {
        let settings = Settings::get().ok_or("it was not asked for")?;
        let functions = Functions::find()?;
        let folder = begin_part(&settings.output, step).map_err(|error| error.to_string())?;
        // SAFETY: the runtime is initialised, and the order is the documented one.
        let status = unsafe { (functions.initialise)() };
        if status != 0 {
            return Err(format!(
                "aclmdlInitDump returns {status}: does the program dump by itself, or through the file given to aclInit?"
            ));
        }
        // SAFETY: the callback is never unloaded.
        let mut status = ("acldumpRegCallback", unsafe { (functions.register)(receive, 0) });
        if status.1 == 0 {
            let configuration = configure(&folder)?;
            let path = CString::new(configuration.as_os_str().as_encoded_bytes())
                .map_err(|error| error.to_string())?;
            // SAFETY: the path of a file, a zero-terminated text.
            status = ("aclmdlSetDump", unsafe { (functions.configure)(path.as_ptr()) });
            _ = std::fs::remove_file(configuration);
        }
        self.running = Some((step, functions));
        COMPLETE.store(0, Ordering::Release);
        if self.steps.is_empty() && !settings.quiet {
            notes::say(&format!("receiving the dumps of CANN on {}", device::named()));
        }
        if status.1 != 0 {
            self.end(step, functions);
            return Err(format!("{} returns {} (folder {})", status.0, status.1, folder.display()));
        }
        Ok(())
    }

    fn end(&mut self, step: u64, functions: Functions) {
        // SAFETY: as at the beginning; a device that fails reports that to the program as well.
        unsafe { (functions.synchronise)() };
        wait_for_files();
        // SAFETY: as above.
        unsafe { (functions.unregister)() };
        // SAFETY: as above.
        unsafe { (functions.finalise)() };
        self.running = None;
        let mut files = files();
        if let Some(files) = files.as_mut() {
            for name in files.unfinished() {
                notes::count(Count::Unfinished, name.rsplit('/').next().unwrap_or(name));
            }
            if let Err(error) = files.finish() {
                stop(&error.to_string());
            }
        }
        self.steps.push((step, COMPLETE.load(Ordering::Acquire)));
    }
}

fn begin_part(output: &Path, step: u64) -> Result<std::path::PathBuf, CaptureError> {
    let mut files = files();
    if files.is_none() {
        std::fs::create_dir_all(output)
            .map_err(|source| CaptureError::Io { path: output.to_path_buf(), source })?;
        *files = Some(CannFiles::new(output)?);
    }
    files.as_mut().map_or_else(|| Ok(output.to_path_buf()), |files| files.begin(step, settings::rank()))
}

/// Writes the runtime's dump configuration, and returns its path.
fn configure(folder: &Path) -> Result<std::path::PathBuf, String> {
    let path = folder.join(".acl_dump.json");
    let dump = serde_json::json!({"dump": {"dump_list": [], "dump_path": folder, "dump_mode": "all", "dump_op_switch": "on"}});
    std::fs::write(&path, dump.to_string()).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

/// Waits for pieces that may still come when the device is idle: threads of the runtime send them.
fn wait_for_files() {
    let (mut seen, mut since) = (PIECES.load(Ordering::Acquire), Instant::now());
    while since.elapsed() < PATIENCE && files().as_ref().is_some_and(|files| !files.unfinished().is_empty()) {
        std::thread::sleep(LOOK);
        let now = PIECES.load(Ordering::Acquire);
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
    }
}

/// Stops accepting pieces. Called by threads of the runtime, which cannot end its dumps.
fn stop(why: &str) {
    if !STOPPED.swap(true, Ordering::AcqRel) {
        notes::say(&format!("recording has stopped: {why}"));
    }
}

/// Callback of the runtime, which passes a piece of a file.
unsafe extern "C" fn receive(chunk: *const u8, length: i32) -> i32 {
    PIECES.fetch_add(1, Ordering::AcqRel);
    notes::guarded("a piece of a dump", || {
        let Some(length) = usize::try_from(length).ok().filter(|_| !chunk.is_null()) else { return };
        // SAFETY: the runtime vouches for this many bytes for the duration of the call.
        take(unsafe { std::slice::from_raw_parts(chunk, length) });
    });
    // Failures here must not affect the program.
    0
}

fn take(bytes: &[u8]) {
    if STOPPED.load(Ordering::Acquire) {
        return;
    }
    let chunk = match Chunk::read(bytes) {
        Ok(chunk) => chunk,
        Err(error) => return notes::count(Count::Refused, &error.to_string()),
    };
    let file = chunk.name.rsplit('/').next().unwrap_or_default();
    let operator = file.split('.').next().unwrap_or_default();
    if Settings::get().is_some_and(|settings| !settings.wants(operator)) {
        return;
    }
    let mut files = files();
    let Some(files) = files.as_mut() else { return };
    match files.receive(chunk) {
        Ok(Fate::Taken | Fate::Ignored) => {}
        Ok(fate @ (Fate::Complete | Fate::Damaged(_))) => {
            COMPLETE.fetch_add(1, Ordering::AcqRel);
            if let Fate::Damaged(why) = fate {
                notes::count(Count::Damaged, &why);
            }
        }
        Ok(Fate::Refused(why)) => notes::count(Count::Refused, &format!("{file} {why}")),
        Err(error) => {
            let why = error.to_string();
            files.give_up(&why);
            stop(&why);
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn aclInit(configuration: *const c_char) -> Status {
    type Initialise = unsafe extern "C" fn(*const c_char) -> Status;
    let Some(real) = real!(INITIALISE as Initialise) else { return UNSUPPORTED };
    // SAFETY: the program's own call, as it made it.
    let status = unsafe { real(configuration) };
    if status == 0 && CUT_SHORT.load(Ordering::Acquire) {
        notes::guarded("aclInit", || {
            notes::say(
                "the program initialises CANN again after aclFinalize, with which the recording ended: what follows is NOT RECORDED",
            );
        });
        return status;
    }
    if status == 0 && Settings::dumps() {
        notes::guarded("aclInit", || {
            // Functions registered later run earlier: CANN, which registered before, is still there.
            // SAFETY: a function without preconditions, in a library that is never unloaded.
            unsafe { libc::atexit(control::process_ends) };
            BEGUN.store(true, Ordering::Release);
            ready(true);
        });
    }
    status
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn aclFinalize() -> Status {
    type Finalise = unsafe extern "C" fn() -> Status;
    // Recorded data is still on its way to the host.
    notes::guarded("aclFinalize", || {
        if control::has_steps_to_come() {
            CUT_SHORT.store(true, Ordering::Release);
        }
        control::process_ends();
        if Settings::dumps() {
            ready(false);
        }
    });
    let Some(real) = real!(FINALISE as Finalise) else { return UNSUPPORTED };
    // SAFETY: the program's own call, as it made it.
    unsafe { real() }
}
