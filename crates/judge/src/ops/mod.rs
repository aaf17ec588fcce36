//! Knowledge of ops by name: how error passes through them. One table covers torch functions, tensor methods,
//! dispatcher ops, modules and fused NPU ops; an op that is not in it is [`Kind::Other`].

mod kind;
mod signatures;
mod table;

pub(super) use kind::Kind;
pub(super) use signatures::{has_defaults, is_default, is_dimension, parameter};
use table::Table;

use probe_dump::{Op, OpKind};
use probe_pair::torch_name;

/// Knowledge of one op.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, none of which implies another")]
pub(super) struct Traits {
    /// The way error passes through it.
    pub(super) kind: Kind,
    /// Chooses between values, so that rounding may flip a choice and the gradient with it.
    pub(super) chooses: bool,
    /// A dispatcher op that computes a gradient.
    pub(super) is_gradient: bool,
    /// Changes parameters or optimizer state.
    pub(super) optimizes: bool,
    /// Copies all elements, in another type, shape or order.
    pub(super) rearranges: bool,
}

/// Operators with reflected and in-place forms: `__radd__`, `__iadd__`.
const REFLECTED: [&str; 9] = ["add", "sub", "mul", "truediv", "div", "matmul", "pow", "floordiv", "mod"];

/// Returns an op's name without the parts that do not change the computation: the underscores of methods and
/// in-place forms, the side of the operand, the overload.
pub(super) fn base(op: &Op) -> &str {
    let api = op.name.api();
    let bare = api.trim_matches('_');
    if !api.starts_with("__") {
        return bare;
    }
    let turned = bare.strip_prefix(['i', 'r']).filter(|rest| REFLECTED.contains(rest));
    turned.unwrap_or(bare)
}

/// Returns true for matrix products, convolutions, recurrent layers and attention, and for their gradients: sums of products, whose operands a
/// device may round.
pub fn multiplies(op: &Op) -> bool {
    matches!(Traits::of(op).kind, Kind::Product | Kind::Recurrent | Kind::Attention)
}

impl Traits {
    /// Looks an op up in the table.
    pub(super) fn of(op: &Op) -> Self {
        let base = base(op);
        let is_module = op.name.kind() == OpKind::Module;
        let forward = base
            .strip_suffix("_backward")
            .or_else(|| base.strip_suffix("_backward_data"))
            .or_else(|| base.strip_suffix("_dense_backward"))
            .filter(|_| !is_module);
        let name = forward.unwrap_or(base);
        let table = Table::get();
        let known = |name: &str| if is_module { table.module(name) } else { table.function(name) };
        let name = match torch_name(&op.name) {
            Some(torch) if known(name) == Kind::Other => torch,
            _ => name,
        };
        let kind = known(name);
        Self {
            kind,
            chooses: table.chooses(name, is_module),
            is_gradient: forward.is_some(),
            optimizes: matches!(kind, Kind::Update | Kind::Optimizer)
                || op.name.stem().starts_with("Optimizer.")
                || table.optimizes(name),
            rearranges: !is_module && table.rearranges(name),
        }
    }
}
