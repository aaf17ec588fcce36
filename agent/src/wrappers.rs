//! All CANN functions that this library intercepts by name.

use crate::acl::Asked;
#[cfg(feature = "record")]
use crate::{aclop, dump, graph::functions};
use crate::{handles, plan};

/// Returns the wrapper of the function of this name.
pub(crate) fn of(name: &str) -> Option<Asked> {
    let found = handles::wrapper(name).or_else(|| plan::wrapper(name));
    #[cfg(feature = "record")]
    let found = found
        .or_else(|| dump::wrapper(name))
        .or_else(|| functions::wrapper(name))
        .or_else(|| aclop::wrapper(name));
    found
}
