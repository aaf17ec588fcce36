//! Kinds of ops.

use serde::Deserialize;

/// The computation of an op, as far as error is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Sums of products: matrix products, convolutions.
    Product,
    /// Recurrent layers: products and functions, one after the other.
    Recurrent,
    /// Attention in one op: two products with a softmax between them.
    Attention,
    /// Looks up rows; its gradient is a sum.
    Embedding,
    /// Reads a value between its elements, at places that another one gives.
    Sampled,
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
    /// Splits a matrix into vectors of its own, each of which may have either sign, and numbers.
    Basis,
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
    /// Makes a constant in the shape of its input, and reads none of its elements.
    Shaped,
    /// Returns memory without writing to it.
    Uninitialised,
    /// Draws random numbers.
    Random,
    /// Nothing is known.
    Other,
}
