//! Log-probabilities of tokens, written as a table that `probe rollout` reads.

use std::path::PathBuf;

use probe::files::Draft;
use probe::rollout::routes::Route;
use probe::rollout::table::{Builder, NO_ID, Sample, Side, Table, Token};
use probe::rollout::write;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

/// A sample: its name, number of tokens, padding, and version of the weights.
type Described = (String, usize, Option<u32>, Option<i64>);

/// Experts of one side: layers, experts of each, experts of all tokens as 16-bit numbers, margins of all as binary32 or nothing.
type Experts<'a> = (usize, usize, &'a [u8], &'a [u8]);

/// Columns with 4 bytes a token, and one a mask.
struct Columns<'a> {
    positions: &'a [u8],
    ids: &'a [u8],
    rollout: &'a [u8],
    trainer: &'a [u8],
    mask: &'a [u8],
    experts: [Option<Experts<'a>>; 2],
}

impl Columns<'_> {
    /// Checks that each column has a value for each of `count` tokens, or none at all where that is allowed.
    fn check(&self, count: usize) -> PyResult<()> {
        let columns = [
            ("positions", self.positions.len() / 4, false),
            ("ids", self.ids.len() / 4, true),
            ("rollout", self.rollout.len() / 4, true),
            ("trainer", self.trainer.len() / 4, true),
            ("mask", self.mask.len(), false),
        ];
        for (layers, chosen, experts, margins) in self.experts.iter().flatten() {
            let width = layers * chosen;
            if width == 0
                || experts.len() != 2 * width * count
                || ![0, 4 * layers * count].contains(&margins.len())
            {
                return Err(PyValueError::new_err(format!("experts do not fit {count} tokens")));
            }
        }
        match columns.into_iter().find(|(_, has, optional)| *has != count && !(*optional && *has == 0)) {
            Some((name, has, _)) => {
                Err(PyValueError::new_err(format!("{name} has {has} values for {count} tokens")))
            }
            None => Ok(()),
        }
    }

    fn token(&self, at: usize) -> Token {
        let word = |column: &[u8]| column.as_chunks::<4>().0.get(at).copied();
        Token {
            id: word(self.ids).map_or(NO_ID, u32::from_le_bytes),
            position: word(self.positions).map_or(0, u32::from_le_bytes),
            rollout: word(self.rollout).map(f32::from_le_bytes),
            trainer: word(self.trainer).map(f32::from_le_bytes),
            counted: self.mask.get(at).is_some_and(|mask| *mask != 0),
        }
    }

    /// Sets the experts of the token at `at`, the last of the builder.
    fn route(&self, at: usize, builder: &mut Builder) -> Result<(), String> {
        for (side, experts) in [Side::Rollout, Side::Trainer].into_iter().zip(self.experts) {
            let Some((layers, chosen, experts, margins)) = experts else { continue };
            let experts: Vec<u16> = experts.as_chunks::<2>().0
                [at * layers * chosen..(at + 1) * layers * chosen]
                .iter()
                .map(|expert| u16::from_le_bytes(*expert))
                .collect();
            let margins = margins.as_chunks::<4>().0.get(at * layers..(at + 1) * layers).unwrap_or_default();
            let margins: Vec<f32> = margins.iter().map(|margin| f32::from_le_bytes(*margin)).collect();
            builder.route(side, &Route { layers, experts: &experts, margins: &margins })?;
        }
        Ok(())
    }

    fn table(&self, step: u64, samples: Vec<Described>) -> PyResult<Table> {
        self.check(samples.iter().map(|sample| sample.1).fold(0, usize::saturating_add))?;
        let mut builder = Builder::default();
        let mut at = 0;
        for (name, count, padding, version) in samples {
            builder.begin(Sample { step, name: name.into(), named: true, range: 0..0, padding, version });
            for at in at..at + count {
                builder.token(self.token(at));
                self.route(at, &mut builder).map_err(PyValueError::new_err)?;
            }
            at += count;
        }
        builder.finish().map_err(PyValueError::new_err)
    }
}

/// Writes a table of tokens; `probe._core.pyi` describes the arguments.
#[pyfunction]
#[pyo3(signature = (path, step, samples, positions, ids, rollout, trainer, mask, rollout_experts=None, trainer_experts=None))]
#[expect(clippy::too_many_arguments, reason = "a column each")]
pub(crate) fn write_tokens(
    py: Python<'_>,
    path: PathBuf,
    step: u64,
    samples: Vec<Described>,
    positions: &[u8],
    ids: &[u8],
    rollout: &[u8],
    trainer: &[u8],
    mask: &[u8],
    rollout_experts: Option<Experts<'_>>,
    trainer_experts: Option<Experts<'_>>,
) -> PyResult<()> {
    let columns =
        Columns { positions, ids, rollout, trainer, mask, experts: [rollout_experts, trainer_experts] };
    py.detach(|| {
        let table = columns.table(step, samples)?;
        let refused = |error: probe::files::ReportError| PyOSError::new_err(error.to_string());
        let mut draft = Draft::create(&path).map_err(refused)?;
        write::tokens(&mut draft, &table).map_err(refused)?;
        draft.place().map(drop).map_err(refused)
    })
}
