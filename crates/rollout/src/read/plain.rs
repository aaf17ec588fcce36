//! Tables with a row a token: `sample`, `position`, `token_id` and `logprob`; with both sides in one file `rollout_logprob` and
//! `trainer_logprob`. `step`, `mask`, `padding` and `version` may be left out, and so may `position` where rows are in order.
//!
//! `routed_experts` are the experts of the token, a list for each layer, and `router_margins` a number for each layer; with both sides
//! in one file the names begin with `rollout_` and `trainer_`. Columns of CSV hold single numbers, so they have none.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::fields::{Real, Whole, expert, id, narrow};
use super::{Collected, step_of, text};
use crate::routes::Route;
use crate::table::{NO_ID, Sample, Side, Token, Tokens};
use probe_files::limits::MAX_ROLLOUT_TOKENS;
use probe_read::ReadError;

/// Name of a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Name<'a> {
    Number(i64),
    Text(&'a str),
}

/// A row.
#[derive(Debug, Clone, Default)]
pub(super) struct Row {
    /// Step that the row states; the file's name says it of the others.
    pub(super) step: Option<u64>,
    pub(super) position: Option<u64>,
    pub(super) id: Option<f64>,
    pub(super) logprob: Option<f32>,
    pub(super) rollout: Option<f32>,
    pub(super) trainer: Option<f32>,
    pub(super) mask: Option<bool>,
    pub(super) padding: Option<u32>,
    pub(super) version: Option<i64>,
}

/// Experts of one token, as a row tells them.
#[derive(Debug, Clone, Default)]
pub(super) struct Experts {
    /// Of all layers, those of one together.
    pub(super) chosen: Vec<u16>,
    pub(super) layers: usize,
    pub(super) margins: Vec<f32>,
}

impl Experts {
    /// Adds the experts of the next layer.
    pub(super) fn layer(&mut self, experts: impl Iterator<Item = f64>) -> Result<(), String> {
        let before = self.chosen.len();
        for value in experts {
            self.chosen.push(expert(value)?);
        }
        self.layers += 1;
        if self.chosen.len() != before * self.layers / (self.layers - 1).max(1) && before > 0 {
            return Err("has layers with other numbers of experts".into());
        }
        Ok(())
    }
}

/// Sides that a column may be of: that of the file, or the one it names.
pub(super) const SIDES: [(Option<Side>, &str); 3] =
    [(None, ""), (Some(Side::Rollout), "rollout_"), (Some(Side::Trainer), "trainer_")];

/// Takes rows one after another.
pub(super) struct Rows<'a> {
    into: &'a mut Collected,
    /// Step of rows that state none.
    named: u64,
    step: u64,
    last: Last,
    next: u64,
    count: u64,
}

#[derive(PartialEq)]
enum Last {
    None,
    Number(i64),
    Text(Box<str>),
}

impl<'a> Rows<'a> {
    pub(super) fn new(path: &Path, into: &'a mut Collected) -> Self {
        Self { into, named: step_of(path), step: 0, last: Last::None, next: 0, count: 0 }
    }

    /// Adds a row.
    ///
    /// # Errors
    /// The reason why it is not one.
    #[inline]
    pub(super) fn add(&mut self, name: &Name<'_>, row: &Row) -> Result<(), String> {
        if !self.continues(name, row) {
            self.begin(name, row, self.into.builder.len());
        }
        self.count += 1;
        if self.count > MAX_ROLLOUT_TOKENS {
            return Err(format!("there are more than {MAX_ROLLOUT_TOKENS} tokens, the limit of one side"));
        }
        let position = row.position.unwrap_or(self.next);
        let position = u32::try_from(position)
            .map_err(|_| format!("position {position} is not a place in a sequence"))?;
        self.next = u64::from(position) + 1;
        let (rollout, trainer) = match (row.logprob, self.into.side) {
            (Some(_), Side::Rollout) => (row.logprob, row.trainer),
            (Some(_), Side::Trainer) => (row.rollout, row.logprob),
            (None, _) => (row.rollout, row.trainer),
        };
        self.into.builder.token(Token {
            id: row.id.map_or(Ok(NO_ID), id)?,
            position,
            rollout,
            trainer,
            counted: row.mask.unwrap_or(rollout.is_some() || trainer.is_some()),
        });
        Ok(())
    }

    /// Returns true if a row of this sample belongs to the sample of the row before.
    fn continues(&self, name: &Name<'_>, row: &Row) -> bool {
        let same = match (&self.last, name) {
            (Last::Number(last), Name::Number(name)) => last == name,
            (Last::Text(last), Name::Text(name)) => **last == **name,
            _ => false,
        };
        same && self.step == row.step.unwrap_or(self.named)
    }

    /// Returns the side that the file is of.
    pub(super) const fn side(&self) -> Side {
        self.into.side
    }

    /// Adds many rows, whose samples begin at the rows of `heads`; the first of these is row 0. Without `positions`, those of `tokens` are
    /// counted. Returns `None`, with nothing added, where it would be an error.
    pub(super) fn extend(
        &mut self,
        heads: &[(usize, Name<'_>, Row)],
        tokens: &mut Tokens,
        positions: bool,
    ) -> Option<()> {
        let count = tokens.len();
        let (all, start) = (self.count + count as u64, self.into.builder.len());
        if all > MAX_ROLLOUT_TOKENS {
            return None;
        }
        let ends = heads.iter().skip(1).map(|(row, ..)| *row).chain([count]);
        for ((row, name, head), end) in heads.iter().zip(ends) {
            if !self.continues(name, head) {
                self.begin(name, head, start + row);
            }
            if !positions {
                let first = u32::try_from(self.next).ok()?;
                tokens.positions.extend((first..).take(end - row));
            }
            self.next = u64::from(tokens.positions[end - 1]) + 1;
        }
        self.count = all;
        self.into.builder.extend(tokens);
        Some(())
    }

    /// Sets the experts of the last row; those of no named side are of the file's.
    pub(super) fn route(&mut self, side: Option<Side>, experts: &Experts) -> Result<(), String> {
        if experts.chosen.is_empty() {
            return Ok(());
        }
        let Experts { chosen: experts, layers, margins } = experts;
        let route = Route { layers: *layers, experts, margins };
        self.into.builder.route(side.unwrap_or(self.into.side), &route)
    }

    /// Begins the sample of a row whose token comes to `place`.
    fn begin(&mut self, name: &Name<'_>, row: &Row, place: usize) {
        let text: Box<str> = match name {
            Name::Number(number) => number.to_string().into(),
            Name::Text(text) => (*text).into(),
        };
        self.last = match name {
            Name::Number(number) => Last::Number(*number),
            Name::Text(_) => Last::Text(text.clone()),
        };
        (self.step, self.next) = (row.step.unwrap_or(self.named), 0);
        let (step, padding, version) = (self.step, row.padding, row.version);
        let sample = Sample { step, name: text, named: true, range: 0..0, padding, version };
        self.into.builder.begin_at(sample, place);
    }
}

/// A row in JSON.
#[derive(Deserialize)]
struct Line {
    sample: Value,
    step: Option<Whole>,
    position: Option<Whole>,
    token_id: Option<Real>,
    logprob: Option<Real>,
    rollout_logprob: Option<Real>,
    trainer_logprob: Option<Real>,
    mask: Option<Real>,
    padding: Option<u32>,
    version: Option<i64>,
    routed_experts: Option<Vec<Vec<Real>>>,
    rollout_routed_experts: Option<Vec<Vec<Real>>>,
    trainer_routed_experts: Option<Vec<Vec<Real>>>,
    router_margins: Option<Vec<Real>>,
    rollout_router_margins: Option<Vec<Real>>,
    trainer_router_margins: Option<Vec<Real>>,
}

/// Returns the experts of a line.
fn experts(experts: Option<&Vec<Vec<Real>>>, margins: Option<&Vec<Real>>) -> Result<Experts, String> {
    let mut route = Experts::default();
    for layer in experts.into_iter().flatten() {
        route.layer(layer.iter().map(|real| real.0))?;
    }
    route.margins = margins.into_iter().flatten().map(|real| narrow(real.0)).collect();
    Ok(route)
}

/// Reads JSON Lines.
pub(super) fn lines(path: &Path, into: &mut Collected) -> Result<(), ReadError> {
    let mut rows = Rows::new(path, into);
    text::each_line(path, |line| {
        let line: Line = text::parsed(line)?;
        let value = |real: &Option<Real>| real.map(|real| narrow(real.0));
        let row = Row {
            step: line.step.map(|step| step.0),
            position: line.position.map(|position| position.0),
            id: line.token_id.map(|real| real.0),
            logprob: value(&line.logprob),
            rollout: value(&line.rollout_logprob),
            trainer: value(&line.trainer_logprob),
            mask: line.mask.map(|real| real.0 > 0.0),
            padding: line.padding,
            version: line.version,
        };
        match &line.sample {
            Value::String(text) => rows.add(&Name::Text(text), &row)?,
            other => {
                let name = other.as_i64().ok_or("sample is neither a whole number nor a text")?;
                rows.add(&Name::Number(name), &row)?;
            }
        }
        for (side, routed, margins) in [
            (None, &line.routed_experts, &line.router_margins),
            (Some(Side::Rollout), &line.rollout_routed_experts, &line.rollout_router_margins),
            (Some(Side::Trainer), &line.trainer_routed_experts, &line.trainer_router_margins),
        ] {
            rows.route(side, &experts(routed.as_ref(), margins.as_ref())?)?;
        }
        Ok(())
    })
}
