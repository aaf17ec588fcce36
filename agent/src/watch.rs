//! Reports every launch to a callback as a line of text: for tests of the entry code, and for `probe doctor
//! --runtime`.

use std::ffi::{CString, c_char};
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::PoisonError;

use crate::handles::Tensor;
use crate::plan::{Argument, Basis, Plan};
use crate::roles::Role;

/// Callback for every launch: receives its operator, and its arguments with their roles.
pub(crate) type Watcher = extern "C" fn(*const c_char);

static WATCHER: Mutex<Option<Watcher>> = Mutex::new(None);

/// Sets or removes the callback.
pub(crate) fn set(watcher: Option<Watcher>) {
    *WATCHER.lock().unwrap_or_else(PoisonError::into_inner) = watcher;
}

/// Returns true if a callback is set.
pub(crate) fn is_set() -> bool {
    WATCHER.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// Reports a launch; without a plan its arguments are unknown.
pub(crate) fn tell(operator: &str, plan: Option<&Plan>) {
    let watcher = *WATCHER.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(watcher) = watcher else { return };
    let text = plan.map_or_else(|| format!("{operator} ?"), line);
    if let Ok(text) = CString::new(text) {
        watcher(text.as_ptr());
    }
}

fn line(plan: &Plan) -> String {
    let mut text = plan.operator.to_string();
    if plan.basis == Basis::Difference {
        text.push_str(" (no table)");
    }
    for parameter in &plan.parameters {
        let role = match parameter.role {
            Role::Input => "",
            Role::Output => ">",
            Role::Updated => "=",
            Role::Unknown => "?",
        };
        // Writing to a string cannot fail.
        _ = match &parameter.argument {
            Argument::Tensor(tensor) => write!(text, " {role}{}", shape(tensor)),
            Argument::Tensors(tensors) => {
                let all: Vec<String> = tensors
                    .iter()
                    .map(|tensor| tensor.as_ref().map_or_else(|| "null".to_owned(), |tensor| shape(tensor)))
                    .collect();
                write!(text, " {role}({})", all.join(" "))
            }
            Argument::Scalar(scalar) => write!(text, " scalar:{}", scalar.dtype),
            Argument::Scalars(scalars) => write!(text, " scalars:{}", scalars.len()),
            Argument::Integers(values) => write!(text, " {values:?}"),
            Argument::Reals(values) => write!(text, " {values:?}"),
            Argument::Truths(values) => write!(text, " {values:?}"),
            Argument::Integer(value) => write!(text, " {value}"),
            Argument::Real(value) => write!(text, " {value:?}"),
            Argument::Truth(value) => write!(text, " {value}"),
            Argument::Text(value) => write!(text, " {value:?}"),
            Argument::Absent => write!(text, " null"),
        };
    }
    text
}

fn shape(tensor: &Tensor) -> String {
    format!("{:?}", tensor.sizes.shape())
}
