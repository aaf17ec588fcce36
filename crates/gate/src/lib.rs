//! The gate for CI: did this change move the numbers of the model, where, and was the cause the code or the
//! environment?
//!
//! A baseline ([`baseline`]) and a candidate are compared with each other: scalars by step, values of modules, sketches of every op, as far
//! as both sides have them. Values go through the same pipeline as in `probe compare`; the policy ([`policy`]) states the requirements; the
//! outcome ([`outcome`]) has a state, culprits and cases, from which `report::gate` writes files.

pub mod baseline;
pub mod calibrate;
pub mod cases;
mod compared;
pub mod environment;
mod error;
mod hexadecimal;
pub mod history;
pub mod import;
mod make;
mod options;
pub mod outcome;
pub mod past;
pub mod policy;
mod run;
mod scalars;
mod side;
pub mod sketches;
mod state;
mod values;

pub use error::GateError;
pub use hexadecimal::hexadecimal;
pub use make::{Made, make};
pub use options::GateOptions;
pub use outcome::{Case, Culprit, GateOutcome, Kind, MovedBy, State, Status};
pub use policy::Policy;
pub use run::gate;

#[cfg(test)]
mod tests;
