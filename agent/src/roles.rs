//! Table of the parameters that an operator reads and writes, made from public signatures (`roles.txt` lists the
//! sources).

use std::collections::HashMap;
use std::sync::LazyLock;

/// Role of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Input,
    Output,
    /// Read and written.
    Updated,
    /// Not in the table.
    Unknown,
}

/// Kind of value passed for a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Tensor(Role),
    Tensors(Role),
    Scalar,
    Scalars,
    Integers,
    Truths,
    Reals,
    /// An integer of 64, 32 or 8 bits.
    Integer(u8),
    Truth,
    /// Passed in a floating-point register.
    Double,
    Float,
    Text,
}

impl Kind {
    const fn of(letter: u8) -> Option<Self> {
        Some(match letter {
            b't' => Self::Tensor(Role::Input),
            b'o' => Self::Tensor(Role::Output),
            b'u' => Self::Tensor(Role::Updated),
            b'l' => Self::Tensors(Role::Input),
            b'p' => Self::Tensors(Role::Output),
            b'w' => Self::Tensors(Role::Updated),
            b's' => Self::Scalar,
            b'S' => Self::Scalars,
            b'a' => Self::Integers,
            b'B' => Self::Truths,
            b'F' => Self::Reals,
            b'i' => Self::Integer(64),
            b'y' => Self::Integer(32),
            b'n' => Self::Integer(8),
            b'b' => Self::Truth,
            b'd' => Self::Double,
            b'f' => Self::Float,
            b'c' => Self::Text,
            _ => return None,
        })
    }

    /// Returns true if it is passed in a floating-point register.
    pub(crate) const fn is_real(self) -> bool {
        matches!(self, Self::Double | Self::Float)
    }
}

/// The parameters of an operator, except the two that every operator ends with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Roles {
    pub(crate) kinds: Box<[Kind]>,
}

impl Roles {
    /// Returns the number of parameters passed as words, in registers or on the stack.
    pub(crate) fn words(&self) -> usize {
        self.kinds.iter().filter(|kind| !kind.is_real()).count()
    }
}

static TABLE: LazyLock<HashMap<&'static str, Roles>> = LazyLock::new(|| {
    let lines = include_str!("roles.txt").lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .filter_map(|line| {
            let (name, kinds) = line.split_once(' ').unwrap_or((line, ""));
            let kinds: Option<Box<[Kind]>> = kinds.bytes().map(Kind::of).collect();
            Some((name, Roles { kinds: kinds? }))
        })
        .collect()
});

/// Returns the roles of an operator; `None` if the table does not have it.
pub(crate) fn of(operator: &str) -> Option<&'static Roles> {
    TABLE.get(operator)
}

/// Returns the number of operators in the table.
pub(crate) fn known() -> usize {
    TABLE.len()
}
