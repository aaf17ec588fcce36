//! Counts the numbers that a Mersenne twister has produced between two of its states.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Words of a state.
const WORDS: usize = 624;

/// Distance of the word that is mixed in.
const SHIFT: usize = 397;

/// Returns the 32-bit words drawn between a state and a later one; `None` if the later one is not reached within
/// `limit` words.
///
/// A state is its 624 words (little endian) and the position of the next one, 624 if the words are used up.
#[pyfunction]
pub(crate) fn mersenne_draws(
    py: Python<'_>,
    start: &[u8],
    start_position: usize,
    end: &[u8],
    end_position: usize,
    limit: usize,
) -> PyResult<Option<u64>> {
    let (mut state, wanted) = (words(start)?, words(end)?);
    Ok(py.detach(|| {
        let mut words = 0_usize;
        while state != wanted {
            words += WORDS;
            if words > limit {
                return None;
            }
            twist(&mut state);
        }
        (words + end_position).checked_sub(start_position).map(|draws| draws as u64)
    }))
}

fn words(bytes: &[u8]) -> PyResult<[u32; WORDS]> {
    let mut state = [0; WORDS];
    if bytes.len() != 4 * WORDS {
        return Err(PyValueError::new_err("a state has 2496 bytes"));
    }
    for (word, bytes) in state.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    Ok(state)
}

/// The next 624 words.
fn twist(state: &mut [u32; WORDS]) {
    for index in 0..WORDS {
        let joined = (state[index] & 0x8000_0000) | (state[(index + 1) % WORDS] & 0x7fff_ffff);
        let odd = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
        state[index] = state[(index + SHIFT) % WORDS] ^ (joined >> 1) ^ odd;
    }
}
