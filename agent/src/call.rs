//! Reads what a foreign call was given, without knowing its signature.
//!
//! Every first function of an operator ends with `uint64_t *workspaceSize, aclOpExecutor **executor`. So the arguments end where
//! two words next to one another point to memory of which the second has changed during the call, to something that is not null. What
//! lies beyond are locals of the caller, which may hold the same handles and must not be taken for arguments.

use std::sync::atomic::Ordering;

use crate::control;
use crate::entry::{Function, INTEGERS, Slot};
use crate::handles;
use crate::memory::{self, Stack};
use crate::notes::{self, Count};
use crate::plan::{self, Plan};
use crate::roles::Roles;
#[cfg(not(feature = "record"))]
use crate::watch;

#[cfg(feature = "record")]
use crate::{device::Stream, graph, launch};

/// Words of the caller's stack that are copied for the call: arguments beyond the registers. The longest operators known take about 40.
const STACK_WORDS: usize = 128;
/// The same for launches, which take four arguments, none of them on the stack.
const LAUNCH_WORDS: usize = 16;

/// Place of the executor among the arguments of a launch.
const EXECUTOR: usize = 2;

/// The registers that hold arguments, as the assembly has put them down.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Registers {
    integers: [u64; INTEGERS],
    reals: [[u64; 2]; 8],
}

/// Arguments as they were passed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Words<'a> {
    /// Whole numbers and pointers, from registers and then from the stack.
    pub(crate) integers: &'a [u64],
    /// The lower halves of the floating-point registers.
    pub(crate) reals: &'a [u64],
}

/// A call that is under way. The assembly reads the first word.
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

/// A first function that is under way.
struct Planned {
    function: &'static Function,
    integers: Vec<u64>,
    reals: [u64; 8],
    end: End,
    /// Whether its launch will end a step.
    ends_step: bool,
}

/// Where the arguments of a first function end.
enum End {
    /// Nothing is kept of the call.
    Unwanted,
    /// Behind so many words, as the table says and a call before has shown.
    Known(usize),
    /// Where what words point to changes: what each points to before the call, if it may point to an executor.
    Sought(Vec<Option<u64>>),
}

/// What is done before a call: null where it is to go on by itself.
pub(crate) unsafe extern "C" fn before(
    slot: *const Slot,
    registers: *const Registers,
    stack: *const u64,
) -> *mut Call {
    let look = || {
        // SAFETY: the assembly passes an entry of the table, and the registers in its own frame.
        let (slot, registers) = unsafe { (&*slot, &*registers) };
        begin(slot, registers, stack.addr())
    };
    let begun = notes::guarded("before a call", look).flatten();
    begun.map_or(std::ptr::null_mut(), |call| Box::into_raw(Box::new(call)))
}

fn begin(slot: &Slot, registers: &Registers, stack: usize) -> Option<Call> {
    let function = slot.function()?;
    let followed = handles::is_followed();
    let ends_step = control::ends_step("aclnn", &function.operator);
    // Where nothing is followed nothing is recorded, and the ends of steps alone are counted.
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
    let wanted = match known {
        // An even number, and not none: that is a stack that cannot be read.
        Some(end) => (end + 2).saturating_sub(INTEGERS).next_multiple_of(2).clamp(2, STACK_WORDS),
        None if function.plans => STACK_WORDS,
        None => LAUNCH_WORDS,
    };
    let mut words = vec![0; wanted];
    let there = if thread.holds(stack, 8) {
        let count = thread.words_above(stack).min(wanted);
        // SAFETY: so many words of the stack of this thread lie above the arguments.
        let above = unsafe { std::slice::from_raw_parts(stack as *const u64, count) };
        words[..count].copy_from_slice(above);
        count
    } else {
        // Another stack than the thread's: a coroutine, or one for signals.
        memory::read(stack, &mut words)
    };
    words.truncate(there - there % 2);
    if words.is_empty() {
        notes::count(Count::Unscanned, &format!("aclnn{}: cannot read the stack", function.operator));
        return None;
    }
    let copied = words.len() as u64;
    let mut integers = Vec::with_capacity(INTEGERS + words.len());
    integers.extend_from_slice(&registers.integers);
    integers.append(&mut words);
    let stage = if function.plans {
        let reals = registers.reals.map(|[low, _]| low);
        let expected = function.roles.map(Roles::words);
        let may_point = |(index, &word): (usize, &u64)| {
            let address = usize::try_from(word).ok()?;
            // The caller's locals lie above its arguments. A table says which word it is, wherever it points.
            let local = address >= stack && thread.holds(address, 8);
            (local || expected.is_some_and(|words| index == words || index == words + 1))
                .then(|| memory::word(thread, word))
                .flatten()
        };
        let end = match known {
            _ if !followed => End::Unwanted,
            Some(end) => End::Known(end),
            None => End::Sought(integers.iter().enumerate().map(may_point).collect()),
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

/// What is done after a call that returned `result`.
pub(crate) unsafe extern "C" fn after(call: *mut Call, result: u64) {
    // SAFETY: `before` made it from a box, and the assembly hands it back once.
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
            if control::ends_step("aclnn", &function.operator) && graph::is_run(stream) {
                control::step_end_launched(succeeded);
            }
        }
        #[cfg(not(feature = "record"))]
        Stage::Launch => {}
    };
    notes::guarded("after a call", look);
}

impl Planned {
    /// Keeps what the call was given under the executor that it made.
    fn finish(&self) {
        // Handles were not followed all the time.
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

    /// Number of the words that are arguments, and the executor.
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
        // Nothing changes where an executor lies at the address of the one before, in the same variable.
        sought.or_else(|| {
            let end = self.function.words.load(Ordering::Relaxed);
            before.get(end.checked_add(1)?).copied().flatten()?;
            Some((end, executor(end)?))
        })
    }
}
