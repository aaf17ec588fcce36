//! Tensors of a batch of verl, `[batch, length]`: `responses`, `response_mask`, `rollout_log_probs`, `old_log_probs`, and where they
//! are there `attention_mask`, `prompts`, and experts `[batch, prompt and response, layer, choice]`: `routed_experts` of the engine,
//! `trainer_routed_experts` and, without choices, `trainer_router_margins` of the trainer.
//!
//! Prompts are padded on the left, responses on the right. Where a file has one of the two log-probabilities, it holds one side.

use std::collections::HashMap;
use std::path::Path;

use super::fields::{id, narrow, place};
use super::{Collected, EXPECTED, Origin, step_of};
use crate::routes::Route;
use crate::table::{NO_ID, Sample, Side, Token};
use probe_dump::{TensorData, Value};
use probe_files::limits::MAX_ROLLOUT_TOKENS;
use probe_read::ReadError;
use probe_read::tensor_file::TensorFile;

/// Names of the trainer's log-probabilities, the likelier first.
const TRAINER: [&str; 3] = ["old_log_probs", "old_log_prob", "log_probs"];
/// Names of the engine's.
const ROLLOUT: [&str; 2] = ["rollout_log_probs", "rollout_log_prob"];
/// Names of the mask of tokens in the loss.
const MASK: [&str; 2] = ["response_mask", "loss_mask"];

/// Names of experts and of margins, with their side.
const EXPERTS: [(Side, &str, &str); 3] = [
    (Side::Rollout, "routed_experts", "router_margins"),
    (Side::Rollout, "rollout_routed_experts", "rollout_router_margins"),
    (Side::Trainer, "trainer_routed_experts", "trainer_router_margins"),
];

/// Experts of all tokens of the batch on one side.
struct Experts {
    side: Side,
    /// Rows, tokens of each, layers, experts of each.
    sizes: [usize; 4],
    values: Vec<u16>,
    margins: Vec<f32>,
}

impl Experts {
    fn load(
        path: &Path,
        file: &dyn TensorFile,
        places: &HashMap<&str, usize>,
        rows: usize,
    ) -> Result<Vec<Self>, ReadError> {
        let mut all = Vec::new();
        for (side, experts, margins) in EXPERTS {
            let Some(&at) = places.get(experts) else { continue };
            let refused = |message: String| ReadError::format(path, format!("{experts} {message}"));
            let tensor = file.load(at)?;
            let &[of, tokens, layers, chosen] = tensor.shape() else {
                return Err(refused(format!(
                    "has shape {:?}, expected [batch, length, layers, chosen]",
                    tensor.shape()
                )));
            };
            if of != rows {
                return Err(refused(format!("has {of} rows, but the log-probabilities {rows}")));
            }
            // Padding is -1 in some programs.
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "the conversion saturates"
            )]
            let values = numbers(&tensor, path)?.into_iter().map(|value| value as u16).collect();
            let margins = match places.get(margins) {
                Some(&at) => {
                    let tensor = file.load(at)?;
                    if tensor.shape() != [rows, tokens, layers] {
                        return Err(refused(format!("has margins of shape {:?}", tensor.shape())));
                    }
                    numbers(&tensor, path)?.into_iter().map(narrow).collect()
                }
                None => Vec::new(),
            };
            all.push(Self { side, sizes: [rows, tokens, layers, chosen], values, margins });
        }
        Ok(all)
    }

    /// Sets the experts of the token at `place` of prompt and response, which have `length` places.
    fn route(&self, row: usize, place: usize, length: usize, into: &mut Collected) -> Result<(), String> {
        let [_, tokens, layers, chosen] = self.sizes;
        // Experts of the response alone.
        let Some(place) = (place + tokens).checked_sub(length).filter(|place| *place < tokens) else {
            return Ok(());
        };
        let at = (row * tokens + place) * layers;
        let experts = self.values.get(at * chosen..(at + layers) * chosen).unwrap_or_default();
        let margins = self.margins.get(at..at + layers).unwrap_or_default();
        into.builder.route(self.side, &Route { layers, experts, margins })
    }
}

/// A matrix of the file.
struct Matrix {
    columns: usize,
    values: Vec<f64>,
}

impl Matrix {
    fn row(&self, row: usize) -> &[f64] {
        self.values.get(row * self.columns..(row + 1) * self.columns).unwrap_or_default()
    }
}

/// Reads the file.
pub(super) fn read(origin: Origin<'_>, file: &dyn TensorFile, into: &mut Collected) -> Result<(), ReadError> {
    let batch = Batch::load(origin.path, file)?;
    let step = step_of(origin.path);
    for row in 0..batch.rows {
        batch
            .sample(row, step, origin, into)
            .map_err(|message| ReadError::format(origin.path, format!("row {row}: {message}")))?;
    }
    Ok(())
}

struct Batch {
    rows: usize,
    width: usize,
    tensors: HashMap<&'static str, Matrix>,
    experts: Vec<Experts>,
    trainer: Option<&'static str>,
    rollout: Option<&'static str>,
}

impl Batch {
    fn load(path: &Path, file: &dyn TensorFile) -> Result<Self, ReadError> {
        let wanted =
            ["responses", "attention_mask", "prompts"].into_iter().chain(MASK).chain(TRAINER).chain(ROLLOUT);
        let places: HashMap<&str, usize> = file
            .entries()
            .iter()
            .enumerate()
            .map(|(at, entry)| (entry.name.rsplit('.').next().unwrap_or_default(), at))
            .collect();
        let mut tensors = HashMap::new();
        for name in wanted {
            let Some(&at) = places.get(name) else { continue };
            if !matches!(file.entries()[at].value, Value::Tensor(_)) {
                let message = format!("{name} is no tensor; save it as one, [batch, length]");
                return Err(ReadError::format(path, message));
            }
            let tensor = file.load(at)?;
            let &[rows, columns] = tensor.shape() else {
                return Err(ReadError::format(
                    path,
                    format!("{name} has shape {:?}, expected two dimensions", tensor.shape()),
                ));
            };
            let values = numbers(&tensor, path)?;
            tensors.insert(name, (rows, Matrix { columns, values }));
        }
        let first = |names: &[&'static str]| names.iter().copied().find(|name| tensors.contains_key(name));
        let (trainer, rollout) = (first(&TRAINER), first(&ROLLOUT));
        let Some((rows, width)) = rollout
            .or(trainer)
            .and_then(|name| tensors.get(name))
            .map(|(rows, matrix)| (*rows, matrix.columns))
        else {
            return Err(ReadError::format(path, format!("holds no log-probabilities; {EXPECTED}")));
        };
        for (name, (has, matrix)) in &tensors {
            let free = ["attention_mask", "prompts"].contains(name);
            if *has != rows || (!free && matrix.columns != width) {
                return Err(ReadError::format(
                    path,
                    format!(
                        "{name} is [{has}, {}], but the log-probabilities are [{rows}, {width}]",
                        matrix.columns
                    ),
                ));
            }
        }
        let tensors = tensors.into_iter().map(|(name, (_, matrix))| (name, matrix)).collect();
        let experts = Experts::load(path, file, &places, rows)?;
        Ok(Self { rows, width, tensors, experts, trainer, rollout })
    }

    fn of(&self, name: &str, row: usize) -> Option<&[f64]> {
        self.tensors.get(name).map(|matrix| matrix.row(row))
    }

    fn sample(&self, row: usize, step: u64, origin: Origin<'_>, into: &mut Collected) -> Result<(), String> {
        let attention = self.of("attention_mask", row);
        // The prompt is what the attention mask has in front of the response.
        let prompt = attention.map_or(0, |mask| mask.len().saturating_sub(self.width));
        let valid =
            |place: usize| attention.is_none_or(|mask| mask.get(place).is_some_and(|value| *value > 0.0));
        let padding = (0..prompt).find(|&place| valid(place)).unwrap_or(prompt);
        into.builder.begin(Sample {
            step,
            name: origin.name(row),
            named: false,
            range: 0..0,
            padding: attention.map(|_| self::place(padding)),
            version: None,
        });
        let prompts = self.of("prompts", row).filter(|prompts| prompts.len() == prompt);
        for at in padding..prompt {
            let id = prompts.map_or(Ok(NO_ID), |prompts| token("prompts", prompts[at]))?;
            let position = self::place(at - padding);
            into.builder.token(Token { id, position, rollout: None, trainer: None, counted: false });
            self.experts.iter().try_for_each(|experts| experts.route(row, at, prompt + self.width, into))?;
        }
        let ids = self.of("responses", row);
        let mask = MASK.iter().find_map(|name| self.of(name, row));
        for t in 0..self.width {
            let counted = mask.map_or(valid(prompt + t), |mask| mask[t] > 0.0);
            let values = [self.rollout, self.trainer].map(|name| self.of(name?, row).map(|values| values[t]));
            // The engine's values of padding are -1, the trainer's 0.
            let said = values[0].is_some_and(|value| value != 0.0 && value + 1.0 != 0.0);
            if !(counted || (attention.is_some() && valid(prompt + t)) || (attention.is_none() && said)) {
                continue;
            }
            let recorded = |value: f64| (counted || value != 0.0).then(|| narrow(value));
            let held = [self.rollout.is_some(), self.trainer.is_some()];
            let [rollout, trainer] = into.side.of_file(held, values.map(|value| value.and_then(recorded)));
            let id = ids.map_or(Ok(NO_ID), |ids| token("responses", ids[t]))?;
            let position = self::place(prompt - padding + t);
            into.builder.token(Token { id, position, rollout, trainer, counted });
            self.experts
                .iter()
                .try_for_each(|experts| experts.route(row, prompt + t, prompt + self.width, into))?;
        }
        Ok(())
    }
}

/// Returns the id that a tensor holds.
fn token(name: &str, value: f64) -> Result<u32, String> {
    id(value).map_err(|message| format!("{name}: {message}"))
}

/// Returns the elements of a tensor of numbers.
pub(super) fn numbers(tensor: &TensorData, path: &Path) -> Result<Vec<f64>, ReadError> {
    if let Some(fault) = tensor.fault() {
        return Err(ReadError::format(path, fault));
    }
    let view = tensor.view();
    if view.len() as u64 > MAX_ROLLOUT_TOKENS {
        return Err(ReadError::Limit {
            path: path.into(),
            what: "the number of tokens",
            found: view.len() as u64,
            limit: MAX_ROLLOUT_TOKENS,
        });
    }
    let dtype = tensor.dtype();
    if dtype.is_complex() {
        return Err(ReadError::format(path, format!("holds {dtype}, expected real numbers")));
    }
    Ok(probe_measure::numbers(dtype, &view.to_bytes()))
}
