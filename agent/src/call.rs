//! Reads the arguments of a foreign call without knowing its signature.
//!
//! The first function of every operator ends with `uint64_t *workspaceSize, aclOpExecutor **executor`. So the
//! arguments end where two adjacent words point to memory and the memory of the second has changed during the call,
//! to something non-null. Words beyond are locals of the caller, which may hold the same handles and must not be
//! taken for arguments.

use std::sync::atomic::Ordering;

use crate::control;
use crate::handles;
use crate::memory::{self, Stack, Words};
use crate::notes::{self, Count};
use crate::plan::{self, Plan};
use crate::roles::Roles;
use crate::stubs::{Function, Slot};
use crate::switches;
#[cfg(not(feature = "record"))]
use crate::watch;

#[cfg(feature = "record")]
use crate::{device::Stream, graph, launch};

/// Words of the caller's stack copied for the call: arguments beyond the registers. The longest known operators take
/// about 40.
const STACK_WORDS: usize = 128;
/// The same for launches, which take four arguments, none of them on the stack.
const LAUNCH_WORDS: usize = 16;

/// Registers that hold integer arguments.
#[cfg(target_arch = "x86_64")]
const INTEGERS: usize = 6;
#[cfg(target_arch = "aarch64")]
const INTEGERS: usize = 8;

/// Position of the executor among the arguments of a launch.
const EXECUTOR: usize = 2;

/// Registers that hold arguments, as stored by the assembly code.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Registers {
    integers: [u64; INTEGERS],
    reals: [[u64; 2]; 8],
}

/// A call under way. The assembly code reads the first word.
#[repr(C)]
pub(crate) struct Call {
    /// Words of the stack to copy; an even number.
    copied: u64,
    stage: Stage,
}

enum Stage {
    Plan(Box<Planned>),
    #[cfg(feature = "record")]
    Launch(&'static Function, Stream, Option<Box<launch::Open>>),
    #[cfg(not(feature = "record"))]
    Launch,
}

/// A first function under way.
struct Planned {
    function: &'static Function,
    integers: Vec<u64>,
    reals: [u64; 8],
    end: End,
    /// True if its launch will end a step.
    ends_step: bool,
}

/// End of the arguments of a first function.
enum End {
    /// Not needed: nothing is kept of the call.
    Unwanted,
    /// After this many words, according to the table, and confirmed by an earlier call.
    Known(usize),
    /// To be found by changes in memory: the word that each argument points to before the call, if it may point to an
    /// executor.
    Sought(Vec<Option<u64>>),
}

/// Runs before a call; returns null if the call needs nothing afterwards.
pub(crate) unsafe extern "C" fn before(
    slot: *const Slot,
    registers: *const Registers,
    stack: *const u64,
) -> *mut Call {
    let look = || {
        // SAFETY: the assembly code passes an entry of the table, and the registers in its own frame.
        let (slot, registers) = unsafe { (&*slot, &*registers) };
        begin(slot, registers, stack.addr())
    };
    let begun = notes::guarded("before a call", look).flatten();
    begun.map_or(std::ptr::null_mut(), |call| Box::into_raw(Box::new(call)))
}

fn begin(slot: &Slot, registers: &Registers, stack: usize) -> Option<Call> {
    let function = slot.function()?;
    let followed = handles::is_followed();
    let ends_step = switches::ends_step("aclnn", &function.operator);
    // If handles are not followed nothing is recorded, and only the ends of steps are counted.
    if !followed && !ends_step {
        return None;
    }
    #[cfg(feature = "record")]
    if !function.plans && !ends_step && !launch::is_looked_at() {
        // It was planned in case a step would begin before it.
        plan::launched(registers.integers[EXECUTOR]);
        return None;
    }
    let thread = Stack::of_thread();
    let known =
        function.roles.map(Roles::words).filter(|_| function.plans && function.fits.load(Ordering::Relaxed));
    let Some(mut words) = words_above(function, thread, stack, known) else {
        notes::count(Count::Unscanned, &format!("aclnn{}: cannot read the stack", function.operator));
        return None;
    };
    let copied = words.len() as u64;
    let mut integers = Vec::with_capacity(INTEGERS + words.len());
    integers.extend_from_slice(&registers.integers);
    integers.append(&mut words);
    let stage = if function.plans {
        let reals = registers.reals.map(|[low, _]| low);
        let end = match known {
            _ if !followed => End::Unwanted,
            Some(end) => End::Known(end),
            None => End::Sought(pointed_to(function, &integers, thread, stack)),
        };
        Stage::Plan(Box::new(Planned { function, integers, reals, end, ends_step }))
    } else {
        #[cfg(feature = "record")]
        {
            let [_, _, executor, stream] = *integers.first_chunk()?;
            let stream = Stream(stream);
            Stage::Launch(function, stream, launch::before(function, executor, stream, stack).map(Box::new))
        }
        #[cfg(not(feature = "record"))]
        {
            let executor = *integers.get(EXECUTOR)?;
            let plan = plan::launched(executor);
            watch::tell(&function.operator, plan.as_deref());
            Stage::Launch
        }
    };
    Some(Call { copied, stage })
}

/// Copies the words of the stack that may be arguments; `None` if it cannot be read.
fn words_above(function: &Function, thread: Stack, stack: usize, known: Option<usize>) -> Option<Vec<u64>> {
    let wanted = match known {
        // An even number, and not zero: that means an unreadable stack.
        Some(end) => (end + 2).saturating_sub(INTEGERS).next_multiple_of(2).clamp(2, STACK_WORDS),
        None if function.plans => STACK_WORDS,
        None => LAUNCH_WORDS,
    };
    let mut words = vec![0; wanted];
    let there = if thread.holds(stack, 8) {
        let count = thread.words_above(stack).min(wanted);
        // SAFETY: this many words of this thread's stack lie above the arguments.
        let above = unsafe { std::slice::from_raw_parts(stack as *const u64, count) };
        words[..count].copy_from_slice(above);
        count
    } else {
        // Not the thread's own stack: a coroutine's, or one for signals.
        memory::read(stack, &mut words)
    };
    words.truncate(there - there % 2);
    (!words.is_empty()).then_some(words)
}

/// Returns the word that each argument points to, if it may point to an executor.
fn pointed_to(function: &Function, integers: &[u64], thread: Stack, stack: usize) -> Vec<Option<u64>> {
    let expected = function.roles.map(Roles::words);
    let pointed = |(index, &word): (usize, &u64)| {
        let address = usize::try_from(word).ok()?;
        // The caller's locals lie above its arguments. A table says which word it is, wherever it points.
        let local = address >= stack && thread.holds(address, 8);
        (local || expected.is_some_and(|words| index == words || index == words + 1))
            .then(|| memory::word(thread, word))
            .flatten()
    };
    integers.iter().enumerate().map(pointed).collect()
}

/// Runs after a call that returned `result`.
pub(crate) unsafe extern "C" fn after(call: *mut Call, result: u64) {
    // SAFETY: `before` created it from a box, and the assembly code hands it back once.
    let call = unsafe { Box::from_raw(call) };
    // The result is a C int: the lower half of the register.
    let succeeded = result.trailing_zeros() >= 32;
    let look = || match call.stage {
        Stage::Plan(planned) => {
            if succeeded {
                planned.finish();
                if planned.ends_step {
                    control::step_end_planned();
                }
            }
        }
        #[cfg(feature = "record")]
        Stage::Launch(function, stream, open) => {
            if let Some(open) = open {
                open.after(succeeded);
            }
            if switches::ends_step("aclnn", &function.operator) && graph::is_run(stream) {
                control::step_end_launched(succeeded);
            }
        }
        #[cfg(not(feature = "record"))]
        Stage::Launch => {}
    };
    notes::guarded("after a call", look);
}

impl Planned {
    /// Stores the arguments of the call under the executor that it created.
    fn finish(&self) {
        // Handles were not followed the whole time.
        if matches!(self.end, End::Unwanted) || !handles::is_followed() {
            return;
        }
        let thread = Stack::of_thread();
        let Some((end, executor)) = self.end(thread) else {
            notes::count(Count::Unscanned, &format!("aclnn{}", self.function.operator));
            return;
        };
        let words = Words { integers: &self.integers, reals: &self.reals };
        plan::keep(executor, Plan::read(self.function, &words, end));
    }

    /// Returns the number of words that are arguments, and the executor.
    fn end(&self, thread: Stack) -> Option<(usize, u64)> {
        let executor =
            |end: usize| memory::word(thread, *self.integers.get(end + 1)?).filter(|&now| now != 0);
        let before = match &self.end {
            End::Unwanted => return None,
            &End::Known(end) => return Some((end, executor(end)?)),
            End::Sought(before) => before,
        };
        let changed = |index: usize| {
            before.get(index).copied().flatten()?;
            let before = before.get(index + 1).copied().flatten()?;
            executor(index).filter(|&now| now != before).map(|now| (index, now))
        };
        let expected = self.function.roles.map(Roles::words);
        let sought = expected.and_then(changed).or_else(|| (0..self.integers.len()).find_map(changed));
        if let Some((end, _)) = sought {
            self.function.words.store(end, Ordering::Relaxed);
        }
        // Nothing changes if an executor lies at the address of the previous one, in the same variable.
        sought.or_else(|| {
            let end = self.function.words.load(Ordering::Relaxed);
            before.get(end.checked_add(1)?).copied().flatten()?;
            Some((end, executor(end)?))
        })
    }
}
