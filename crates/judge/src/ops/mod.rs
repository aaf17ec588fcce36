//! Knowledge of ops by name: how error passes through them. One table covers torch functions, tensor methods,
//! dispatcher ops, modules and fused NPU ops; an op that is not in it is [`Kind::Other`].

mod signatures;
mod table;

use serde::Deserialize;
pub(super) use signatures::{is_default, parameter};
use table::Table;

use probe_dump::{Op, OpKind};
use probe_pair::torch_name;

/// The computation of an op, as far as error is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// Sums of products: matrix products, convolutions.
    Product,
    /// Recurrent layers: products and functions, one after the other.
    Recurrent,
    /// Attention in one op: two products with a softmax between them.
    Attention,
    /// Looks up rows; its gradient is a sum.
    Embedding,
    /// Passes elements on unchanged.
    Copy,
    /// Adds or subtracts.
    Add,
    /// Multiplies element by element.
    Multiply,
    /// Divides, or raises to a power below 1; the divisor is the last tensor.
    Divide,
    /// Square root.
    Root,
    /// Element-wise functions whose slope is at most about 1.
    Lipschitz,
    /// Sums along dimensions.
    Sum,
    /// Averages along dimensions.
    Mean,
    /// Turns absolute error into relative: exponentials, softmax.
    Exponential,
    /// Averages the squared distance of two values.
    Distance,
    /// Functions of one number with a known slope: see `slope`.
    Sloped,
    /// Rounds to whole numbers: an element that noise carries over a threshold changes by 1.
    Stepped,
    /// A power; below 1 it magnifies error as a root does.
    Power,
    /// Takes logarithms or differences of them: absolute error stays absolute.
    Logarithm,
    /// Logarithm of a softmax, and elements picked from it: an input minus a mean of inputs.
    LogSoftmax,
    /// Centres and scales by statistics of its input.
    Normalisation,
    /// A parameter changed by a quotient of running means.
    Update,
    /// A whole optimizer step.
    Optimizer,
    /// Returns memory without writing to it.
    Uninitialised,
    /// Draws random numbers.
    Random,
    /// Nothing is known.
    Other,
}

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
