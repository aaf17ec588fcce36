//! Arguments of a call of `aclnnXGetWorkspaceSize`, kept until the executor that it created is launched.

use std::borrow::Cow;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::acl::{Status, UNSUPPORTED, real, wrappers};
use crate::handles::{self, ByAddress, Handle, Scalar, Tensor};
use crate::memory;
use crate::memory::Words;
use crate::notes::{self, Count};
use crate::roles::{Kind, Role, Roles};
use crate::scope::{self, Scope};
use crate::stubs::Function;
use crate::{control, switches};

wrappers! {
    CAN_USE_CACHE CanUsePTACache;
    GET_CACHED PTAGetExecCache;
    FIND_CACHED PTAFindExecCache;
    DESTROY_EXECUTOR aclDestroyAclOpExecutor;
    SET_REPEATABLE aclSetAclOpExecutorRepeatable;
    SET_TENSOR aclSetTensorAddr;
    SET_INPUT aclSetInputTensorAddr;
    SET_OUTPUT aclSetOutputTensorAddr;
}

/// Most bytes of a text that are kept.
const TEXT: usize = 64;

/// An argument of an operator.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Argument {
    Tensor(Arc<Tensor>),
    Tensors(Vec<Option<Arc<Tensor>>>),
    Scalar(Scalar),
    Scalars(Vec<Scalar>),
    Integers(Vec<i64>),
    Reals(Vec<f32>),
    Truths(Vec<bool>),
    Integer(i64),
    Real(f64),
    Truth(bool),
    Text(String),
    /// A null pointer.
    Absent,
}

/// An argument and its role.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Parameter {
    pub(crate) argument: Argument,
    pub(crate) role: Role,
}

/// Basis on which inputs and outputs are distinguished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Basis {
    /// The table of parameters fits the call.
    Table,
    /// Parameters that change are outputs.
    Difference,
    /// By its C signature.
    Signature,
    /// The arguments could not be read.
    Unscanned,
}

/// A call to be launched.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) operator: Cow<'static, str>,
    /// The function that was called; `None` for operators that are not looked up.
    pub(crate) function: Option<&'static Function>,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) basis: Basis,
    /// Place in the program from which it was called.
    pub(crate) scope: Option<Arc<Scope>>,
    /// True if it is not the program's own: a recorder in it uses it to measure.
    pub(crate) muted: bool,
    /// True if it may be launched more than once.
    repeatable: bool,
}

static PLANS: Mutex<Option<ByAddress<Arc<Plan>>>> = Mutex::new(None);

fn plans() -> MutexGuard<'static, Option<ByAddress<Arc<Plan>>>> {
    PLANS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Plan {
    /// Returns a plan without arguments.
    pub(crate) fn bare(operator: impl Into<Cow<'static, str>>, basis: Basis) -> Self {
        Self {
            operator: operator.into(),
            function: None,
            parameters: Vec::new(),
            basis,
            scope: scope::scope(),
            muted: !scope::is_on_in_this_thread(),
            repeatable: false,
        }
    }

    /// Returns the plan of a call with these words before its executor.
    pub(crate) fn read(function: &'static Function, words: &Words<'_>, end: usize) -> Self {
        let trusted = function.roles.filter(|_| !function.distrusted.load(Ordering::Relaxed));
        let in_table = trusted.and_then(|roles| by_table(roles, words, end));
        if in_table.is_some() {
            function.fits.store(true, Ordering::Relaxed);
        }
        let fitting = in_table.or_else(|| by_tensors(trusted?, words, end));
        let (parameters, basis) = match (fitting, function.roles) {
            (Some(parameters), _) => (parameters, Basis::Table),
            (None, roles) => {
                let why = if roles.is_some() { Count::OtherLayout } else { Count::ByDifference };
                notes::count(why, &format!("aclnn{}", function.operator));
                (by_handles(words, end), Basis::Difference)
            }
        };
        Self { parameters, function: Some(function), ..Self::bare(&*function.operator, basis) }
    }
}

/// Returns the arguments in the order of the table; `None` if it does not match what was passed.
fn by_table(roles: &Roles, words: &Words<'_>, end: usize) -> Option<Vec<Parameter>> {
    if roles.words() != end {
        return None;
    }
    let (mut next, mut next_real) = (0, 0);
    let mut parameters = Vec::with_capacity(roles.kinds.len());
    for &kind in &roles.kinds {
        let mut role = Role::Input;
        let argument = if kind.is_real() {
            let bits = *words.reals.get(next_real)?;
            next_real += 1;
            Argument::Real(match kind {
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "the lower half of the register holds it"
                )]
                Kind::Float => f64::from(f32::from_bits(bits as u32)),
                _ => f64::from_bits(bits),
            })
        } else {
            let word = *words.integers.get(next)?;
            next += 1;
            let handle = handles::find(word);
            match (kind, handle) {
                (Kind::Tensor(of), Some(Handle::Tensor(tensor))) => {
                    role = of;
                    Argument::Tensor(tensor)
                }
                (Kind::Tensors(of), Some(Handle::Tensors(tensors))) => {
                    role = of;
                    Argument::Tensors(tensors)
                }
                (Kind::Tensor(of) | Kind::Tensors(of), None) if word == 0 => {
                    role = of;
                    Argument::Absent
                }
                (Kind::Scalar, Some(Handle::Scalar(scalar))) => Argument::Scalar(scalar),
                (Kind::Scalars, Some(Handle::Scalars(scalars))) => Argument::Scalars(scalars),
                (Kind::Integers, Some(Handle::Integers(values))) => Argument::Integers(values),
                (Kind::Truths, Some(Handle::Truths(values))) => Argument::Truths(values),
                (Kind::Reals, Some(Handle::Reals(values))) => Argument::Reals(values),
                (Kind::Scalar | Kind::Scalars | Kind::Integers | Kind::Truths | Kind::Reals, None)
                    if word == 0 =>
                {
                    Argument::Absent
                }
                (Kind::Integer(bits), None) => Argument::Integer(narrow(word, bits)),
                // Only the lowest byte of a bool is defined.
                (Kind::Truth, None) => Argument::Truth(word & 0xff != 0),
                (Kind::Text, None) if word == 0 => Argument::Absent,
                (Kind::Text, None) => Argument::Text(memory::text(word, TEXT)?),
                _ => return None,
            }
        };
        parameters.push(Parameter { argument, role });
    }
    Some(parameters)
}

/// Returns the arguments with the table's roles for the tensors, if it has as many as were passed: for an operator
/// whose other arguments differ from those of the function that it is named after.
fn by_tensors(roles: &Roles, words: &Words<'_>, end: usize) -> Option<Vec<Parameter>> {
    let mut told = roles.kinds.iter().filter(|kind| matches!(kind, Kind::Tensor(_) | Kind::Tensors(_)));
    let mut parameters = by_handles(words, end);
    for parameter in &mut parameters {
        match (&parameter.argument, parameter.role) {
            (Argument::Tensor(_), Role::Unknown) => {
                let Some(Kind::Tensor(role)) = told.next() else { return None };
                parameter.role = *role;
            }
            (Argument::Tensors(_), Role::Unknown) => {
                let Some(Kind::Tensors(role)) = told.next() else { return None };
                parameter.role = *role;
            }
            _ => {}
        }
    }
    told.next().is_none().then_some(parameters)
}

/// Returns an integer of this many bits; higher bits are undefined.
#[expect(clippy::cast_possible_truncation, reason = "the lower bits are the number")]
fn narrow(word: u64, bits: u8) -> i64 {
    match bits {
        8 => i64::from((word as u8).cast_signed()),
        32 => i64::from((word as u32).cast_signed()),
        _ => word.cast_signed(),
    }
}

/// Returns the handles among the words. The other arguments cannot be identified.
fn by_handles(words: &Words<'_>, end: usize) -> Vec<Parameter> {
    let argument = |&word: &u64| {
        Some(match handles::find(word)? {
            Handle::Tensor(tensor) => (Argument::Tensor(tensor), Role::Unknown),
            Handle::Tensors(tensors) => (Argument::Tensors(tensors), Role::Unknown),
            Handle::Scalar(scalar) => (Argument::Scalar(scalar), Role::Input),
            Handle::Scalars(scalars) => (Argument::Scalars(scalars), Role::Input),
            Handle::Integers(values) => (Argument::Integers(values), Role::Input),
            Handle::Truths(values) => (Argument::Truths(values), Role::Input),
            Handle::Reals(values) => (Argument::Reals(values), Role::Input),
        })
    };
    let found = words.integers.iter().take(end).filter_map(argument);
    found.map(|(argument, role)| Parameter { argument, role }).collect()
}

/// Keeps a plan until its executor is launched.
pub(crate) fn keep(executor: u64, plan: Plan) {
    if let Ok(executor) = usize::try_from(executor) {
        plans().get_or_insert_default().insert(executor, Arc::new(plan));
    }
}

/// Returns the plan of an executor that is being launched.
pub(crate) fn launched(executor: u64) -> Option<Arc<Plan>> {
    let executor = usize::try_from(executor).ok()?;
    let mut plans = plans();
    let plans = plans.as_mut()?;
    if plans.get(&executor)?.repeatable { plans.get(&executor).cloned() } else { plans.remove(&executor) }
}

/// Forgets all plans except those of repeatable executors.
pub(crate) fn forget_single() {
    if let Some(plans) = plans().as_mut() {
        plans.retain(|_, plan| plan.repeatable);
    }
}

/// Forgets everything.
pub(crate) fn forget_all() {
    *plans() = None;
}

/// Tells `torch_npu` whether to keep executors in CANN's cache. Not while something is recorded: an executor from
/// there is launched without its arguments being seen. The computed results are the same.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn CanUsePTACache(name: *const c_char) -> bool {
    type Can = unsafe extern "C" fn(*const c_char) -> bool;
    if !TORCH_NPU.load(Ordering::Relaxed) {
        TORCH_NPU.store(true, Ordering::Relaxed);
        // From here on nothing has to be followed until a step is recorded.
        notes::guarded("torch_npu", control::resettle);
    }
    if switches::is_planning() {
        return false;
    }
    if switches::counts_launches() && !name.is_null() {
        // SAFETY: the name of the function, a zero-terminated text.
        let name = unsafe { CStr::from_ptr(name) }.to_bytes();
        let operator = name.strip_prefix(b"aclnn").and_then(|operator| std::str::from_utf8(operator).ok());
        LOOKED_FOR.set(operator.is_some_and(|operator| switches::ends_step("aclnn", operator)));
    }
    // SAFETY: the program's own call, as it made it.
    real!(CAN_USE_CACHE as Can).is_some_and(|real| unsafe { real(name) })
}

thread_local! {
    /// True if the launch of the executor that this thread looks for in the cache ends a step.
    static LOOKED_FOR: Cell<bool> = const { Cell::new(false) };
}

/// Handles the cache's answer: an executor from there is launched without being planned.
fn from_cache(executor: *mut c_void) -> *mut c_void {
    if !executor.is_null() && LOOKED_FOR.take() {
        notes::guarded("the cache of executors", control::step_end_planned);
    }
    executor
}

/// True if the program runs on `torch_npu`, which creates handles for each call.
static TORCH_NPU: AtomicBool = AtomicBool::new(false);

pub(crate) fn is_torch_npu() -> bool {
    TORCH_NPU.load(Ordering::Relaxed)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn PTAGetExecCache(hash: u64, workspace: *mut u64) -> *mut c_void {
    type Get = unsafe extern "C" fn(u64, *mut u64) -> *mut c_void;
    if switches::is_planning() {
        return std::ptr::null_mut();
    }
    let Some(real) = real!(GET_CACHED as Get) else { return std::ptr::null_mut() };
    // SAFETY: the program's own call, as it made it.
    from_cache(unsafe { real(hash, workspace) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn PTAFindExecCache(
    key: *mut u8,
    size: usize,
    workspace: *mut u64,
) -> *mut c_void {
    type Find = unsafe extern "C" fn(*mut u8, usize, *mut u64) -> *mut c_void;
    if switches::is_planning() {
        return std::ptr::null_mut();
    }
    let Some(real) = real!(FIND_CACHED as Find) else { return std::ptr::null_mut() };
    // SAFETY: the program's own call, as it made it.
    from_cache(unsafe { real(key, size, workspace) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn aclDestroyAclOpExecutor(executor: *mut c_void) -> Status {
    type Destroy = unsafe extern "C" fn(*mut c_void) -> Status;
    if handles::is_followed()
        && let Some(plans) = plans().as_mut()
    {
        plans.remove(&executor.addr());
    }
    let Some(real) = real!(DESTROY_EXECUTOR as Destroy) else { return UNSUPPORTED };
    // SAFETY: the program's own call, as it made it.
    unsafe { real(executor) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn aclSetAclOpExecutorRepeatable(executor: *mut c_void) -> Status {
    type Set = unsafe extern "C" fn(*mut c_void) -> Status;
    if handles::is_followed()
        && let Some(plans) = plans().as_mut()
        && let Some(plan) = plans.get_mut(&executor.addr())
    {
        Arc::make_mut(plan).repeatable = true;
    }
    let Some(real) = real!(SET_REPEATABLE as Set) else { return UNSUPPORTED };
    // SAFETY: the program's own call, as it made it.
    unsafe { real(executor) }
}

/// Updates the address of a tensor of a repeatable executor.
fn moved(executor: *mut c_void, tensor: *mut c_void, data: *mut c_void) {
    if !handles::is_followed() {
        return;
    }
    let mut plans = plans();
    let Some(plan) = plans.as_mut().and_then(|plans| plans.get_mut(&executor.addr())) else { return };
    for parameter in &mut Arc::make_mut(plan).parameters {
        if let Argument::Tensor(known) = &mut parameter.argument
            && known.handle == tensor.addr()
        {
            Arc::make_mut(known).data = data.addr();
        }
    }
}

/// Functions that give a tensor of an executor a new address.
macro_rules! set_address {
    ($($name:ident $wrapper:ident;)*) => {
        $(#[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            executor: *mut c_void,
            index: usize,
            tensor: *mut c_void,
            data: *mut c_void,
        ) -> Status {
            type Set = unsafe extern "C" fn(*mut c_void, usize, *mut c_void, *mut c_void) -> Status;
            moved(executor, tensor, data);
            let Some(real) = real!($wrapper as Set) else { return UNSUPPORTED };
            // SAFETY: the program's own call, as it made it.
            unsafe { real(executor, index, tensor, data) }
        })*
    };
}

set_address! {
    aclSetTensorAddr SET_TENSOR;
    aclSetInputTensorAddr SET_INPUT;
    aclSetOutputTensorAddr SET_OUTPUT;
}
