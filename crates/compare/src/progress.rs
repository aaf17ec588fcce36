//! Progress of the measuring, for whoever shows it.

/// Receives progress, from any thread.
pub trait Progress: Sync {
    /// Another `pairs` pairs of tensors will be measured.
    fn expect(&self, pairs: u64);
    /// `pairs` pairs of tensors have been measured.
    fn advance(&self, pairs: u64);
}

/// No progress display.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quiet;

impl Progress for Quiet {
    fn expect(&self, _pairs: u64) {}
    fn advance(&self, _pairs: u64) {}
}
