//! Operators executed through the older interface (`aclopCompileAndExecute`), whose C signature distinguishes inputs
//! from outputs.

use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

use crate::acl::{Status, UNSUPPORTED, real, wrappers};
use crate::control;
use crate::device::Stream;
use crate::graph;
use crate::handles::{Sizes, Tensor};
use crate::launch::{self, Open};
use crate::notes;
use crate::plan::{Argument, Basis, Parameter, Plan};
use crate::roles::Role;
use crate::symbols::{self, Address};
use crate::{scope, switches};

wrappers! {
    OP_COMPILE_AND_EXECUTE aclopCompileAndExecute;
    OP_COMPILE_AND_EXECUTE_V2 aclopCompileAndExecuteV2;
    OP_EXECUTE aclopExecuteV2;
}

/// Functions that read the contents of a description.
struct Descriptions {
    dtype: unsafe extern "C" fn(*const c_void) -> i32,
    format: unsafe extern "C" fn(*const c_void) -> i32,
    dims: unsafe extern "C" fn(*const c_void) -> usize,
    dim: unsafe extern "C" fn(*const c_void, usize, *mut i64) -> Status,
    address: unsafe extern "C" fn(*const c_void) -> *mut c_void,
}

impl Descriptions {
    fn find() -> Option<Self> {
        macro_rules! function {
            ($name:literal as $kind:ty) => {{
                let found = symbols::of_cann($name)?;
                // SAFETY: the address of CANN's function of this name, whose signature is public.
                unsafe { std::mem::transmute::<Address, $kind>(found) }
            }};
        }
        Some(Self {
            dtype: function!(c"aclGetTensorDescType" as unsafe extern "C" fn(*const c_void) -> i32),
            format: function!(c"aclGetTensorDescFormat" as unsafe extern "C" fn(*const c_void) -> i32),
            dims: function!(c"aclGetTensorDescNumDims" as unsafe extern "C" fn(*const c_void) -> usize),
            dim: function!(
                c"aclGetTensorDescDimV2" as unsafe extern "C" fn(*const c_void, usize, *mut i64) -> Status
            ),
            address: function!(c"aclGetDataBufferAddr" as unsafe extern "C" fn(*const c_void) -> *mut c_void),
        })
    }

    /// Returns a tensor of the older kind: its elements lie in row-major order from the start of its buffer.
    ///
    /// # Safety
    /// Both are handles of CANN.
    unsafe fn tensor(&self, description: *const c_void, buffer: *const c_void) -> Tensor {
        // SAFETY: as the caller vouches.
        let dims = unsafe { (self.dims)(description) };
        let mut shape = vec![0_i64; dims.min(64)];
        for (at, size) in shape.iter_mut().enumerate() {
            // SAFETY: as above; it writes a number.
            unsafe { (self.dim)(description, at, &raw mut *size) };
        }
        Tensor {
            sizes: Sizes::new(&shape, None, &[]),
            // SAFETY: as above.
            dtype: unsafe { (self.dtype)(description) },
            // SAFETY: as above.
            format: unsafe { (self.format)(description) },
            // SAFETY: as above.
            data: unsafe { (self.address)(buffer) }.addr(),
            ..Tensor::default()
        }
    }
}

/// Arguments of a call: the kind of operator, and its tensors.
struct Call {
    kind: *const c_char,
    inputs: (i32, *const *const c_void, *const *const c_void),
    outputs: (i32, *const *const c_void, *const *const c_void),
    stream: *mut c_void,
}

impl Call {
    /// Begins to record the call, if a step is being recorded.
    ///
    /// # Safety
    /// The same conditions as for the call itself in CANN.
    unsafe fn begin(&self) -> Option<Open> {
        let recorded = switches::is_recording() || graph::is_any_captured();
        if !recorded || !scope::is_on_in_this_thread() || self.kind.is_null() {
            return None;
        }
        let told = Descriptions::find()?;
        // SAFETY: as the caller vouches.
        let kind = unsafe { name_of(self.kind) };
        let mut plan = Plan::bare(kind, Basis::Signature);
        for ((count, descriptions, buffers), role) in
            [(self.inputs, Role::Input), (self.outputs, Role::Output)]
        {
            for at in 0..usize::try_from(count).unwrap_or(0) {
                // SAFETY: the caller vouches for this many of both.
                let (description, buffer) = unsafe { (descriptions.add(at).read(), buffers.add(at).read()) };
                let argument = if description.is_null() || buffer.is_null() {
                    Argument::Absent
                } else {
                    // SAFETY: as above.
                    Argument::Tensor(Arc::new(unsafe { told.tensor(description, buffer) }))
                };
                plan.parameters.push(Parameter { argument, role });
            }
        }
        launch::begin(Arc::new(plan), Stream(self.stream.addr() as u64), (&raw const *self).addr())
    }
}

/// Returns the kind of an operator.
///
/// # Safety
/// It is null, or a zero-terminated text.
unsafe fn name_of(kind: *const c_char) -> String {
    if kind.is_null() {
        return String::new();
    }
    // SAFETY: as the caller vouches.
    unsafe { CStr::from_ptr(kind) }.to_string_lossy().into_owned()
}

/// Functions that execute an operator of the older kind; they differ in the parameters between outputs and stream.
macro_rules! execute {
    ($($name:ident $wrapper:ident ($($rest:ident: $kind:ty),*);)*) => {
        $(#[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            kind: *const c_char,
            inputs: i32,
            input_descriptions: *const *const c_void,
            input_buffers: *const *const c_void,
            outputs: i32,
            output_descriptions: *const *const c_void,
            output_buffers: *const *const c_void,
            $($rest: $kind,)*
            stream: *mut c_void,
        ) -> Status {
            type Execute = unsafe extern "C" fn(
                *const c_char, i32, *const *const c_void, *const *const c_void,
                i32, *const *const c_void, *const *const c_void, $($kind,)* *mut c_void,
            ) -> Status;
            let Some(real) = real!($wrapper as Execute) else { return UNSUPPORTED };
            let call = Call {
                kind,
                inputs: (inputs, input_descriptions, input_buffers),
                outputs: (outputs, output_descriptions, output_buffers),
                stream,
            };
            // SAFETY: the program's own call, as it made it.
            let open = notes::guarded(stringify!($name), || unsafe { call.begin() }).flatten();
            // SAFETY: as above.
            let status = unsafe {
                real(
                    kind, inputs, input_descriptions, input_buffers,
                    outputs, output_descriptions, output_buffers, $($rest,)* stream,
                )
            };
            if let Some(open) = open {
                notes::guarded(stringify!($name), || open.after(status == 0));
            }
            if status == 0 && switches::counts_launches() {
                notes::guarded(stringify!($name), || {
                    // SAFETY: CANN has just read it.
                    if switches::ends_step("aclop", &unsafe { name_of(kind) })
                        && graph::is_run(Stream(stream.addr() as u64))
                    {
                        control::step_end_launched(true);
                    }
                });
            }
            status
        })*
    };
}

execute! {
    aclopCompileAndExecute OP_COMPILE_AND_EXECUTE (attributes: *const c_void, engine: i32, compile: i32, path: *const c_char);
    aclopCompileAndExecuteV2 OP_COMPILE_AND_EXECUTE_V2 (attributes: *mut c_void, engine: i32, compile: i32, path: *const c_char);
    aclopExecuteV2 OP_EXECUTE (attributes: *mut c_void);
}
