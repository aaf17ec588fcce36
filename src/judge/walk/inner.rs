//! What is known of the ops inside each module call, gathered on the way: a module comes after the ops inside it.

use std::collections::HashMap;

use crate::dump::Op;
use crate::judge::nesting::Nesting;

/// One fact for each module call and module path: what `join` makes of the facts of the ops inside.
#[derive(Debug)]
pub(super) struct Inner<'a, T> {
    join: fn(T, T) -> T,
    /// By the name of the enclosing call, where the nesting was recorded.
    by_call: HashMap<&'a str, T>,
    /// By the path of the enclosing module.
    by_path: HashMap<&'a str, T>,
}

impl<'a, T: Copy> Inner<'a, T> {
    pub(super) fn new(join: fn(T, T) -> T) -> Self {
        Self { join, by_call: HashMap::new(), by_path: HashMap::new() }
    }

    /// Notes a fact of `op` for all modules around it.
    pub(super) fn add(&mut self, nesting: &Nesting<'a>, op: &'a Op, fact: T) {
        let join = self.join;
        let note = |known: &mut HashMap<&'a str, T>, name| {
            known.entry(name).and_modify(|known| *known = join(*known, fact)).or_insert(fact);
        };
        for call in nesting.ancestors(op.name.as_str()) {
            note(&mut self.by_call, call);
        }
        let path = op.name.module_path().unwrap_or_default();
        for (dot, _) in path.match_indices('.') {
            note(&mut self.by_path, &path[..dot]);
        }
    }

    /// What holds inside the module call `op`; `None` where nothing was noted.
    pub(super) fn inside(&self, op: &Op) -> Option<T> {
        let by_call = self.by_call.get(op.name.as_str());
        let by_path = op.name.module_path().and_then(|path| self.by_path.get(path));
        by_call.into_iter().chain(by_path).copied().reduce(self.join)
    }
}
