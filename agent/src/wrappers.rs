//! Every function of CANN that one of ours stands in front of by name.

use crate::acl::Asked;
#[cfg(feature = "record")]
use crate::{aclop, dump, graph::functions};
use crate::{handles, plan};

/// What stands in front of the function of this name.
pub(crate) fn of(name: &str) -> Option<Asked> {
    let found = handles::wrapper(name).or_else(|| plan::wrapper(name));
    #[cfg(feature = "record")]
    let found = found
        .or_else(|| dump::wrapper(name))
        .or_else(|| functions::wrapper(name))
        .or_else(|| aclop::wrapper(name));
    found
}
