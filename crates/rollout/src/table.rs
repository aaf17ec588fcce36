//! Tokens of samples, in flat columns: 17 bytes a token, so that ten million of them fit in 170 MB.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::routes::{Route, Routes};

/// The token is in the loss: neither prompt, nor padding, nor the output of a tool.
pub const COUNTED: u8 = 1;
/// The rollout engine recorded a log-probability of the token.
pub const ROLLOUT: u8 = 2;
/// The trainer recorded a log-probability of the token.
pub const TRAINER: u8 = 4;

/// Stands for a token whose id was not recorded.
pub const NO_ID: u32 = u32::MAX;

/// A side of the pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The engine that sampled the tokens.
    Rollout,
    /// The framework that trains on them.
    Trainer,
}

impl Side {
    /// Returns the word for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rollout => "rollout",
            Self::Trainer => "trainer",
        }
    }

    /// Returns the values of rollout and trainer of a token in a file of this side. Where the file holds one list of the two (`held`), it is
    /// of this side, whichever name it has.
    pub(crate) fn of_file<T>(self, held: [bool; 2], [rollout, trainer]: [Option<T>; 2]) -> [Option<T>; 2] {
        match (self, held) {
            (Self::Trainer, [true, false]) => [None, rollout],
            (Self::Rollout, [false, true]) => [trainer, None],
            _ => [rollout, trainer],
        }
    }

    /// Returns the flag of a token that the side has a log-probability of.
    pub const fn flag(self) -> u8 {
        match self {
            Self::Rollout => ROLLOUT,
            Self::Trainer => TRAINER,
        }
    }
}

/// One sequence: a prompt, or its end, and a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Training step.
    pub step: u64,
    /// Name in the file, such as its index.
    pub name: Box<str>,
    /// True if the file names its samples; otherwise the name is the place in the file.
    pub named: bool,
    /// Places of its tokens in the columns, by ascending position.
    pub range: Range<usize>,
    /// Padding in front of it in the trainer's batch, in tokens, where the file tells.
    pub padding: Option<u32>,
    /// Version of the weights that the engine sampled the last token with.
    pub version: Option<i64>,
}

/// One token, as a reader delivers it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Token {
    /// Id in the vocabulary, or [`NO_ID`].
    pub id: u32,
    /// Place in the sequence, from 0.
    pub position: u32,
    /// Natural logarithm of the probability in the engine.
    pub rollout: Option<f32>,
    /// The same in the trainer.
    pub trainer: Option<f32>,
    /// True if it is in the loss.
    pub counted: bool,
}

/// Columns of all tokens.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tokens {
    /// Ids in the vocabulary, or [`NO_ID`].
    pub ids: Vec<u32>,
    /// Places in their sequence, from 0.
    pub positions: Vec<u32>,
    /// Log-probabilities in the engine; 0 where none was recorded.
    pub rollout: Vec<f32>,
    /// Log-probabilities in the trainer; 0 where none was recorded.
    pub trainer: Vec<f32>,
    /// [`COUNTED`], [`ROLLOUT`] and [`TRAINER`].
    pub flags: Vec<u8>,
    /// Experts that the engine sent the tokens to.
    pub rollout_routes: Routes,
    /// Experts that the trainer sent them to.
    pub trainer_routes: Routes,
}

impl Tokens {
    /// Returns the number of tokens.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Adds a token.
    pub fn push(&mut self, token: Token) {
        let flag = |recorded: bool, flag: u8| if recorded { flag } else { 0 };
        self.ids.push(token.id);
        self.positions.push(token.position);
        self.rollout.push(token.rollout.unwrap_or(0.0));
        self.trainer.push(token.trainer.unwrap_or(0.0));
        self.flags.push(
            flag(token.counted, COUNTED)
                | flag(token.rollout.is_some(), ROLLOUT)
                | flag(token.trainer.is_some(), TRAINER),
        );
    }

    /// Returns the token at `index`.
    pub fn get(&self, index: usize) -> Token {
        let flags = self.flags[index];
        let value = |column: &[f32], flag: u8| (flags & flag != 0).then(|| column[index]);
        Token {
            id: self.ids[index],
            position: self.positions[index],
            rollout: value(&self.rollout, ROLLOUT),
            trainer: value(&self.trainer, TRAINER),
            counted: flags & COUNTED != 0,
        }
    }
}

/// Samples with their tokens.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// The samples, by step, then in the order of the files.
    pub samples: Vec<Sample>,
    /// Their tokens.
    pub tokens: Tokens,
}

impl Table {
    /// Returns true if some token has a log-probability of this side.
    pub fn has(&self, side: Side) -> bool {
        self.tokens.flags.iter().any(|flags| flags & side.flag() != 0)
    }

    /// Returns the steps, with the places of their samples.
    pub(crate) fn steps(&self) -> Vec<(u64, Range<usize>)> {
        let mut steps: Vec<(u64, Range<usize>)> = Vec::new();
        for (place, sample) in self.samples.iter().enumerate() {
            match steps.last_mut() {
                Some((step, range)) if *step == sample.step => range.end = place + 1,
                _ => steps.push((sample.step, place..place + 1)),
            }
        }
        steps
    }

    /// Returns the ids of a sample's tokens.
    pub fn ids(&self, sample: &Sample) -> &[u32] {
        self.tokens.ids.get(sample.range.clone()).unwrap_or_default()
    }
}

/// Collects tokens into a table. Tokens of one sample may come in several pieces, as ranks or shards of the context deliver
/// them.
#[derive(Debug, Default)]
pub struct Builder {
    samples: Vec<Sample>,
    tokens: Tokens,
    /// Sample and first token of each piece.
    pieces: Vec<(usize, usize)>,
    by_name: HashMap<(u64, Box<str>), usize>,
}

impl Builder {
    /// Makes room for as many more tokens.
    pub fn reserve(&mut self, tokens: usize) {
        let Tokens { ids, positions, rollout, trainer, flags, .. } = &mut self.tokens;
        ids.reserve(tokens);
        positions.reserve(tokens);
        rollout.reserve(tokens);
        trainer.reserve(tokens);
        flags.reserve(tokens);
    }

    /// Begins a piece of the sample that `sample` describes; its range is ignored.
    pub fn begin(&mut self, sample: Sample) {
        self.begin_at(sample, self.len());
    }

    /// Begins a piece whose first token comes to `place` of the columns.
    pub(crate) fn begin_at(&mut self, sample: Sample, place: usize) {
        let key = (sample.step, sample.name.clone());
        let next = self.samples.len();
        let at = *self.by_name.entry(key).or_insert(next);
        if at == next {
            self.samples.push(sample);
        }
        self.pieces.push((at, place));
    }

    /// Returns the number of tokens so far.
    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Adds tokens without experts.
    pub(crate) fn extend(&mut self, tokens: &Tokens) {
        self.tokens.ids.extend_from_slice(&tokens.ids);
        self.tokens.positions.extend_from_slice(&tokens.positions);
        self.tokens.rollout.extend_from_slice(&tokens.rollout);
        self.tokens.trainer.extend_from_slice(&tokens.trainer);
        self.tokens.flags.extend_from_slice(&tokens.flags);
    }

    /// Adds a token to the current piece.
    pub fn token(&mut self, token: Token) {
        self.tokens.push(token);
    }

    /// Sets the experts of the last token on one side.
    ///
    /// # Errors
    /// The reason why they are not those of a token of this table.
    pub fn route(&mut self, side: Side, route: &Route<'_>) -> Result<(), String> {
        let last = self.tokens.len().checked_sub(1).ok_or("there is no token")?;
        match side {
            Side::Rollout => self.tokens.rollout_routes.set(last, route),
            Side::Trainer => self.tokens.trainer_routes.set(last, route),
        }
    }

    /// Returns true if the sample of this name has one of `positions`.
    pub fn overlaps(&self, step: u64, name: &str, positions: &HashSet<u32>) -> bool {
        let Some(&sample) = self.by_name.get(&(step, name.into())) else { return false };
        let ends = self.pieces.iter().skip(1).map(|piece| piece.1).chain([self.tokens.len()]);
        self.pieces.iter().zip(ends).filter(|((of, _), _)| *of == sample).any(|((_, start), end)| {
            self.tokens.positions[*start..end].iter().any(|at| positions.contains(at))
        })
    }

    /// Returns the table.
    ///
    /// # Errors
    /// The description of a token that occurs twice.
    pub fn finish(mut self) -> Result<Table, String> {
        if !self.in_order() {
            self.gather()?;
        } else {
            let ends = self.pieces.iter().skip(1).map(|piece| piece.1).chain([self.tokens.len()]);
            for (&(sample, start), end) in self.pieces.iter().zip(ends) {
                self.samples[sample].range = start..end;
            }
        }
        self.samples.sort_by_key(|sample| sample.step);
        Ok(Table { samples: self.samples, tokens: self.tokens })
    }

    /// Returns true if every sample is one piece of ascending positions.
    fn in_order(&self) -> bool {
        let ends = self.pieces.iter().skip(1).map(|piece| piece.1).chain([self.tokens.len()]);
        self.pieces.len() == self.samples.len()
            && self.pieces.iter().zip(ends).all(|(&(_, start), end)| {
                self.tokens.positions[start..end].windows(2).all(|pair| pair[0] < pair[1])
            })
    }

    /// Puts the pieces of each sample together, and its tokens in order.
    fn gather(&mut self) -> Result<(), String> {
        let mut of: Vec<Vec<usize>> = vec![Vec::new(); self.samples.len()];
        let ends = self.pieces.iter().skip(1).map(|piece| piece.1).chain([self.tokens.len()]);
        for (&(sample, start), end) in self.pieces.iter().zip(ends) {
            of[sample].extend(start..end);
        }
        let (mut tokens, mut order) = (Tokens::default(), Vec::new());
        for (sample, mut places) in self.samples.iter_mut().zip(of) {
            let position = |place: &usize| self.tokens.positions[*place];
            places.sort_by_key(position);
            let twice = |pair: &&[usize]| pair.first().map(position) == pair.last().map(position);
            if let Some(place) = places.windows(2).find(twice).and_then(<[usize]>::first) {
                return Err(format!(
                    "sample {} of step {} has position {} twice; give each sequence a name of its own",
                    sample.name,
                    sample.step,
                    position(place)
                ));
            }
            let start = tokens.len();
            for place in places {
                tokens.push(self.tokens.get(place));
                order.push(place);
            }
            sample.range = start..tokens.len();
        }
        for (new, old) in [
            (&mut tokens.rollout_routes, &mut self.tokens.rollout_routes),
            (&mut tokens.trainer_routes, &mut self.tokens.trainer_routes),
        ] {
            *new = std::mem::take(old);
            new.reorder(order.iter().copied().map(Some));
        }
        self.tokens = tokens;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(name: &str) -> Sample {
        Sample { step: 0, name: name.into(), named: true, range: 0..0, padding: None, version: None }
    }

    fn token(position: u32) -> Token {
        Token { id: position + 10, position, rollout: Some(-1.0), trainer: None, counted: true }
    }

    #[test]
    fn pieces_of_a_sample_come_together_in_order() {
        let mut builder = Builder::default();
        for (name, positions) in [("a", [3, 4]), ("b", [0, 1]), ("a", [1, 2])] {
            builder.begin(sample(name));
            for position in positions {
                builder.token(token(position));
            }
        }
        let table = builder.finish().unwrap();
        let positions = |at: usize| table.tokens.positions[table.samples[at].range.clone()].to_vec();
        assert_eq!((positions(0), positions(1)), (vec![1, 2, 3, 4], vec![0, 1]));
        assert_eq!(table.ids(&table.samples[0]), [11, 12, 13, 14]);
    }

    #[test]
    fn a_token_that_occurs_twice_is_refused() {
        let mut builder = Builder::default();
        for _ in 0..2 {
            builder.begin(sample("a"));
            builder.token(token(5));
        }
        assert!(builder.finish().unwrap_err().contains("position 5 twice"));
    }
}
