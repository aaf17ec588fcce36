//! Functions of CANN whose signatures are public and that this library stands in front of by name.
//!
//! They are exported, so that programs that are linked to CANN find them, and given out by `dlsym` where CANN has them. Types are
//! written down here as far as calls need them; handles stay opaque.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::notes::{self, Count};
use crate::symbols::{self, Address};
#[cfg(feature = "record")]
use crate::{aclop, dump, graph::functions};
use crate::{handles, plan};

/// Result of a function of CANN; 0 is success.
pub(crate) type Status = i32;
/// What the exported functions answer where CANN does not have the function behind them: the runtime's code for "not supported".
pub(crate) const UNSUPPORTED: Status = 200_001;

/// A function that stands in front of one of CANN's.
pub(crate) struct Wrapper {
    name: &'static CStr,
    our: fn() -> Address,
    real: AtomicPtr<c_void>,
}

/// A wrapper that `dlsym` was asked for.
pub(crate) struct Asked {
    /// Address of ours.
    pub(crate) ours: Address,
    wrapper: &'static Wrapper,
}

impl Wrapper {
    /// The function of CANN; `None` where there is none.
    pub(crate) fn real(&self) -> Option<Address> {
        let known = self.real.load(Ordering::Acquire);
        if !known.is_null() {
            return Some(known);
        }
        let found = symbols::of_cann(self.name)?;
        self.real.store(found, Ordering::Release);
        Some(found)
    }
}

impl Asked {
    /// What stands in front of `real`. Of two libraries that have the function, the one that is met first counts.
    pub(crate) fn in_front_of(&self, real: Address) -> Address {
        let ours = self.ours;
        match self.wrapper.real.compare_exchange(
            std::ptr::null_mut(),
            real,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => ours,
            Err(before) if before == real => ours,
            Err(_) => {
                notes::count(Count::OtherProvider, &self.wrapper.name.to_string_lossy());
                real
            }
        }
    }

    /// Ours, where CANN has the function as well.
    pub(crate) fn if_there(&self) -> Address {
        if self.wrapper.real().is_some() { self.ours } else { std::ptr::null_mut() }
    }
}

macro_rules! wrappers {
    ($($(#[$on:meta])* $constant:ident $name:ident $module:ident;)*) => {
        $($(#[$on])*
        pub(crate) static $constant: Wrapper = Wrapper {
            name: match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            },
            our: || $module::$name as *const () as Address,
            real: AtomicPtr::new(std::ptr::null_mut()),
        };)*

        /// What stands in front of the function of this name.
        pub(crate) fn wrapper(name: &str) -> Option<Asked> {
            let wrapper = match name {
                $($(#[$on])* stringify!($name) => &$constant,)*
                _ => return None,
            };
            Some(Asked { ours: (wrapper.our)(), wrapper })
        }
    };
}

wrappers! {
    CREATE_TENSOR aclCreateTensor handles;
    DESTROY_TENSOR aclDestroyTensor handles;
    CREATE_TENSOR_LIST aclCreateTensorList handles;
    DESTROY_TENSOR_LIST aclDestroyTensorList handles;
    CREATE_SCALAR aclCreateScalar handles;
    DESTROY_SCALAR aclDestroyScalar handles;
    CREATE_SCALAR_LIST aclCreateScalarList handles;
    DESTROY_SCALAR_LIST aclDestroyScalarList handles;
    CREATE_INT_ARRAY aclCreateIntArray handles;
    DESTROY_INT_ARRAY aclDestroyIntArray handles;
    CREATE_FLOAT_ARRAY aclCreateFloatArray handles;
    DESTROY_FLOAT_ARRAY aclDestroyFloatArray handles;
    CREATE_BOOL_ARRAY aclCreateBoolArray handles;
    DESTROY_BOOL_ARRAY aclDestroyBoolArray handles;
    CAN_USE_CACHE CanUsePTACache plan;
    GET_CACHED PTAGetExecCache plan;
    FIND_CACHED PTAFindExecCache plan;
    DESTROY_EXECUTOR aclDestroyAclOpExecutor plan;
    SET_REPEATABLE aclSetAclOpExecutorRepeatable plan;
    SET_TENSOR aclSetTensorAddr plan;
    SET_INPUT aclSetInputTensorAddr plan;
    SET_OUTPUT aclSetOutputTensorAddr plan;
    #[cfg(feature = "record")]
    INITIALISE aclInit dump;
    #[cfg(feature = "record")]
    FINALISE aclFinalize dump;
    #[cfg(feature = "record")]
    CAPTURE_BEGIN aclmdlRICaptureBegin functions;
    #[cfg(feature = "record")]
    CAPTURE_END aclmdlRICaptureEnd functions;
    #[cfg(feature = "record")]
    EXECUTE_ASYNC aclmdlRIExecuteAsync functions;
    #[cfg(feature = "record")]
    EXECUTE aclmdlRIExecute functions;
    #[cfg(feature = "record")]
    DESTROY aclmdlRIDestroy functions;
    #[cfg(feature = "record")]
    GROUP_BEGIN aclmdlRICaptureTaskGrpBegin functions;
    #[cfg(feature = "record")]
    GROUP_END aclmdlRICaptureTaskGrpEnd functions;
    #[cfg(feature = "record")]
    UPDATE_BEGIN aclmdlRICaptureTaskUpdateBegin functions;
    #[cfg(feature = "record")]
    UPDATE_END aclmdlRICaptureTaskUpdateEnd functions;
    #[cfg(feature = "record")]
    OP_COMPILE_AND_EXECUTE aclopCompileAndExecute aclop;
    #[cfg(feature = "record")]
    OP_COMPILE_AND_EXECUTE_V2 aclopCompileAndExecuteV2 aclop;
    #[cfg(feature = "record")]
    OP_EXECUTE aclopExecuteV2 aclop;
}

/// The function behind a wrapper, of its type. Expects that `$wrapper` is that of a function of this signature, as CANN's headers
/// have it.
macro_rules! real {
    ($wrapper:ident as $kind:ty) => {
        $crate::acl::$wrapper.real().map(|real| {
            // SAFETY: the address of CANN's function of this name, whose signature is public.
            unsafe { std::mem::transmute::<$crate::symbols::Address, $kind>(real) }
        })
    };
}
pub(crate) use real;
