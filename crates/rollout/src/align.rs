//! Which token of the trainer is which of the rollout: samples by name, else by their tokens; tokens by their ids.

use std::collections::{HashMap, HashSet, VecDeque};

pub use crate::sequence::GapKind;
use crate::sequence::{Gap, matched};
use crate::table::{COUNTED, NO_ID, ROLLOUT, Sample, Side, TRAINER, Table, Token, Tokens};

/// How samples of two files were joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinedBy {
    /// One file holds both sides.
    File,
    /// The names of the samples.
    Names,
    /// The ids of their tokens.
    Tokens,
    /// Their place in the files: no name and no response is in both.
    Places,
}

impl JoinedBy {
    /// Returns the words for people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::File => "both sides are in one file",
            Self::Names => "samples were joined by name",
            Self::Tokens => "samples were joined by their tokens",
            Self::Places => {
                "samples were joined by their place, as the sides share neither a name nor the tokens of a response"
            }
        }
    }
}

/// Tokens that one side has and the other has not, or has others in place of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenGap {
    /// The sample's place in the joined table.
    pub sample: usize,
    /// Position of the first of them, in the rollout.
    pub position: u32,
    /// Kind of difference.
    pub kind: GapKind,
    /// The rollout's ids, the first few.
    pub rollout: Vec<u32>,
    /// The trainer's ids, the first few.
    pub trainer: Vec<u32>,
    /// Name of the sample whose tokens these are, of [`GapKind::Sample`].
    pub belongs_to: Option<Box<str>>,
}

/// Ids that are kept of a gap.
const SHOWN: usize = 6;

/// Both sides in one table.
#[derive(Debug)]
pub struct Joined {
    /// The rollout's tokens, with the trainer's log-probabilities where it has the token.
    pub table: Table,
    /// How samples were joined.
    pub by: JoinedBy,
    /// Differences of tokens, in order.
    pub gaps: Vec<TokenGap>,
    /// Names of samples that the trainer lacks.
    pub only_rollout: Vec<String>,
    /// Names of samples that the rollout lacks.
    pub only_trainer: Vec<String>,
    /// Steps of which no sample was joined, with the side that lacks them.
    pub alone: Vec<(u64, Side)>,
}

impl Joined {
    /// Takes a table that holds both sides.
    pub fn of_one(table: Table) -> Self {
        Self {
            table,
            by: JoinedBy::File,
            gaps: Vec::new(),
            only_rollout: Vec::new(),
            only_trainer: Vec::new(),
            alone: Vec::new(),
        }
    }

    /// Joins two tables.
    pub fn of_two(mut rollout: Table, mut trainer: Table) -> Self {
        if same_layout(&rollout, &trainer) {
            return Self::side_by_side(rollout, trainer);
        }
        let steps = Steps::of(&rollout, &trainer);
        let (partners, by) = partners(&rollout, &trainer, steps);
        let mut joined = Self::of_one(Table::default());
        joined.by = by;
        let mut used = HashSet::new();
        let by_tokens = by_tokens(&trainer, steps);
        let mut origins = Vec::new();
        for (sample, partner) in rollout.samples.iter().zip(&partners) {
            let Some(partner) = *partner else {
                joined.only_rollout.push(sample.name.to_string());
                continue;
            };
            used.insert(partner);
            let other = &trainer.samples[partner];
            joined.add(&rollout, sample, &trainer, other, &mut origins);
            if let Some(gap) = joined.gaps.last_mut().filter(|gap| gap.kind == GapKind::Sample) {
                let owner = by_tokens
                    .get(&(steps.key(sample), response(&rollout, sample, Side::Rollout)))
                    .and_then(|places| places.front());
                gap.belongs_to = owner.map(|place| trainer.samples[*place].name.clone());
            }
        }
        let lone = trainer.samples.iter().enumerate().filter(|(place, _)| !used.contains(place));
        joined.only_trainer = lone.map(|(_, sample)| sample.name.to_string()).collect();
        let partnered: Vec<bool> = partners.iter().map(Option::is_some).collect();
        let used: Vec<bool> = (0..trainer.samples.len()).map(|place| used.contains(&place)).collect();
        joined.alone = alone(&rollout, &partnered, Side::Trainer);
        joined.alone.extend(alone(&trainer, &used, Side::Rollout));
        let tokens = &mut joined.table.tokens;
        tokens.rollout_routes = std::mem::take(&mut rollout.tokens.rollout_routes);
        tokens.rollout_routes.reorder(origins.iter().map(|origin| Some(origin.0)));
        tokens.trainer_routes = std::mem::take(&mut trainer.tokens.trainer_routes);
        tokens.trainer_routes.reorder(origins.iter().map(|origin| origin.1));
        joined
    }

    /// Joins tables with the same samples and the same tokens.
    fn side_by_side(mut rollout: Table, trainer: Table) -> Self {
        for (flags, theirs) in rollout.tokens.flags.iter_mut().zip(&trainer.tokens.flags) {
            *flags = (*flags & ROLLOUT) | (theirs & (TRAINER | COUNTED));
        }
        rollout.tokens.trainer = trainer.tokens.trainer;
        rollout.tokens.trainer_routes = trainer.tokens.trainer_routes;
        for (sample, theirs) in rollout.samples.iter_mut().zip(&trainer.samples) {
            sample.padding = sample.padding.or(theirs.padding);
        }
        Self { by: JoinedBy::Names, ..Self::of_one(rollout) }
    }

    /// Adds the tokens of a sample that both sides have, and to `origins` where each side has them.
    fn add(
        &mut self,
        rollout: &Table,
        sample: &Sample,
        trainer: &Table,
        other: &Sample,
        origins: &mut Vec<(usize, Option<usize>)>,
    ) {
        let place = self.table.samples.len();
        let start = self.table.tokens.len();
        let (pairs, gaps) = tokens(rollout, sample, trainer, other);
        let mut partner: Vec<Option<usize>> = vec![None; sample.range.len()];
        for (ours, theirs) in pairs {
            partner[ours] = Some(theirs);
        }
        for (ours, theirs) in partner.into_iter().enumerate() {
            let token = rollout.tokens.get(sample.range.start + ours);
            let place = theirs.map(|theirs| other.range.start + theirs);
            origins.push((sample.range.start + ours, place));
            let theirs = place.map(|place| trainer.tokens.get(place));
            self.table.tokens.push(Token {
                trainer: theirs.and_then(|theirs| theirs.trainer),
                counted: theirs.is_some_and(|theirs| theirs.counted),
                ..token
            });
        }
        let range = start..self.table.tokens.len();
        let padding = other.padding.or(sample.padding);
        self.table.samples.push(Sample { range, padding, ..sample.clone() });
        let scored = |table: &Table, of: &Sample, range: &std::ops::Range<usize>, side: Side| {
            let (start, end) = (of.range.start + range.start, of.range.start + range.end);
            table.tokens.flags[start..end].iter().any(|flags| flags & (side.flag() | COUNTED) != 0)
        };
        for Gap { mut left, mut right, kind } in gaps {
            // A prompt that one file holds and the other does not is no difference.
            let theirs = scored(trainer, other, &right, Side::Trainer);
            if !scored(rollout, sample, &left, Side::Rollout) && !theirs && kind != GapKind::Sample {
                continue;
            }
            if kind == GapKind::Sample {
                // Other responses to the same prompt begin alike, and what is shown has to differ.
                let alike = rollout.ids(sample).iter().zip(trainer.ids(other));
                let alike = alike.take_while(|(ours, theirs)| ours == theirs).count();
                (left.start, right.start) = (left.start + alike, right.start + alike);
            }
            let first = |ids: &[u32], range: &std::ops::Range<usize>| {
                ids[range.clone()].iter().take(SHOWN).copied().collect()
            };
            let at = sample.range.start + left.start.min(sample.range.len().saturating_sub(1));
            self.gaps.push(TokenGap {
                sample: place,
                position: rollout.tokens.positions.get(at).copied().unwrap_or(0),
                kind,
                rollout: first(rollout.ids(sample), &left),
                trainer: first(trainer.ids(other), &right),
                belongs_to: None,
            });
        }
    }
}

/// Returns the steps without a sample that was joined, which `side` lacks.
fn alone(table: &Table, joined: &[bool], side: Side) -> Vec<(u64, Side)> {
    let steps = table.steps().into_iter();
    steps
        .filter(|(_, samples)| !joined[samples.clone()].contains(&true))
        .map(|(step, _)| (step, side))
        .collect()
}

/// Returns true if both tables have the same samples with the same tokens.
fn same_layout(rollout: &Table, trainer: &Table) -> bool {
    let alike = |(ours, theirs): (&Sample, &Sample)| {
        (ours.step, &ours.name, &ours.range) == (theirs.step, &theirs.name, &theirs.range)
    };
    rollout.samples.len() == trainer.samples.len()
        && rollout.samples.iter().zip(&trainer.samples).all(alike)
        && rollout.tokens.positions == trainer.tokens.positions
        && rollout.tokens.ids == trainer.tokens.ids
}

/// Returns the ids of a sample's response: of the tokens that the side scored. A file may hold both sides, and its trainer
/// the prompt as well.
fn response(table: &Table, sample: &Sample, side: Side) -> Vec<u32> {
    let Tokens { ids, flags, .. } = &table.tokens;
    let scored = |place: &usize| flags[*place] & side.flag() != 0;
    sample.range.clone().filter(scored).map(|place| ids[place]).collect()
}

/// Scope in which samples are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Steps {
    /// Samples of one step belong to samples of that step.
    Same,
    /// Two files of one step are of the same, however each numbers it; and so are files that share no step.
    Any,
}

impl Steps {
    fn of(rollout: &Table, trainer: &Table) -> Self {
        let steps = |table: &Table| table.samples.iter().map(|sample| sample.step).collect::<HashSet<_>>();
        let (ours, theirs) = (steps(rollout), steps(trainer));
        let one = ours.len() == 1 && theirs.len() == 1;
        if one || ours.is_disjoint(&theirs) { Self::Any } else { Self::Same }
    }

    const fn key(self, sample: &Sample) -> u64 {
        match self {
            Self::Same => sample.step,
            Self::Any => 0,
        }
    }
}

/// Returns the places of the trainer's samples by the ids of their response.
fn by_tokens(table: &Table, steps: Steps) -> HashMap<(u64, Vec<u32>), VecDeque<usize>> {
    let mut places: HashMap<(u64, Vec<u32>), VecDeque<usize>> = HashMap::new();
    for (place, sample) in table.samples.iter().enumerate() {
        let ids = response(table, sample, Side::Trainer);
        if !ids.is_empty() && !ids.contains(&NO_ID) {
            places.entry((steps.key(sample), ids)).or_default().push_back(place);
        }
    }
    places
}

/// Returns the trainer's sample of each of the rollout's.
fn partners(rollout: &Table, trainer: &Table, steps: Steps) -> (Vec<Option<usize>>, JoinedBy) {
    let key = |sample: &Sample| (steps.key(sample), sample.name.clone());
    let names: HashMap<_, usize> =
        trainer.samples.iter().enumerate().map(|(place, sample)| (key(sample), place)).collect();
    let by_name: Vec<Option<usize>> =
        rollout.samples.iter().map(|sample| names.get(&key(sample)).copied()).collect();
    let named = |table: &Table| table.samples.iter().all(|sample| sample.named);
    // Files that share no step may use a name in each of them: it then says nothing about which sample is meant.
    let distinct: HashSet<_> = rollout.samples.iter().map(key).collect();
    let telling = named(rollout) && named(trainer) && distinct.len() == rollout.samples.len();
    if telling && by_name.iter().any(Option::is_some) {
        return (by_name, JoinedBy::Names);
    }
    let mut places = by_tokens(trainer, steps);
    let mut found: Vec<Option<usize>> = rollout
        .samples
        .iter()
        .map(|sample| {
            places
                .get_mut(&(steps.key(sample), response(rollout, sample, Side::Rollout)))
                .and_then(VecDeque::pop_front)
        })
        .collect();
    let by = if found.iter().any(Option::is_some) { JoinedBy::Tokens } else { JoinedBy::Places };
    // Samples with other tokens are paired by their place.
    let mut taken: HashSet<usize> = found.iter().flatten().copied().collect();
    for (mine, theirs) in found.iter_mut().zip(by_name) {
        if mine.is_none() && theirs.is_some_and(|theirs| taken.insert(theirs)) {
            *mine = theirs;
        }
    }
    (found, by)
}

/// Returns which tokens of the two sequences are the same, and what is between them.
fn tokens(
    rollout: &Table,
    ours: &Sample,
    trainer: &Table,
    theirs: &Sample,
) -> (Vec<(usize, usize)>, Vec<Gap>) {
    let (left, right) = (rollout.ids(ours), trainer.ids(theirs));
    if !left.contains(&NO_ID) && !right.contains(&NO_ID) {
        return matched(left, right);
    }
    // Without ids, the n-th token of one response is the n-th of the other.
    let scored = |table: &Table, sample: &Sample, side: Side| -> Vec<usize> {
        let flags = &table.tokens.flags[sample.range.clone()];
        flags
            .iter()
            .enumerate()
            .filter(|(_, flags)| **flags & side.flag() != 0)
            .map(|(place, _)| place)
            .collect()
    };
    let (left, right) = (scored(rollout, ours, Side::Rollout), scored(trainer, theirs, Side::Trainer));
    (left.into_iter().zip(right).collect(), Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One sample for each list of ids, all of which `side` scored.
    fn table(side: Side, samples: &[&[u32]]) -> Table {
        let mut table = Table::default();
        for ids in samples {
            let start = table.tokens.len();
            for (position, id) in (0_u32..).zip(*ids) {
                let (rollout, trainer) = match side {
                    Side::Rollout => (Some(-1.0), None),
                    Side::Trainer => (None, Some(-1.0)),
                };
                table.tokens.push(Token { position, id: *id, rollout, trainer, counted: true });
            }
            let (name, range) = (table.samples.len().to_string().into(), start..table.tokens.len());
            table.samples.push(Sample { step: 0, name, named: false, range, padding: None, version: None });
        }
        table
    }

    #[test]
    fn a_sample_of_the_trainer_has_one_partner() {
        let in_step = |side, steps: &[u64]| {
            let ids: Vec<Vec<u32>> = steps
                .iter()
                .map(|step| (0..9).map(|id| if step % 2 == 1 { id } else { 10 + id }).collect())
                .collect();
            let mut table = table(side, &ids.iter().map(|ids| &ids[..]).collect::<Vec<_>>());
            for (sample, step) in table.samples.iter_mut().zip(steps) {
                (sample.step, sample.name, sample.named) = (*step, "0".into(), true);
            }
            table
        };
        // Step 3 of the trainer has the tokens of the rollout's step 1.
        let joined = Joined::of_two(in_step(Side::Rollout, &[1, 2]), in_step(Side::Trainer, &[3]));
        let steps: Vec<u64> = joined.table.samples.iter().map(|sample| sample.step).collect();
        assert_eq!((joined.by, steps, joined.only_rollout.len()), (JoinedBy::Tokens, vec![1], 1));
    }

    #[test]
    fn another_sample_is_shown_from_where_it_differs() {
        let prompt = [7, 8, 9];
        let ids = |from: u32| [&prompt[..], &(from..from + 20).collect::<Vec<_>>()].concat();
        let joined = Joined::of_two(table(Side::Rollout, &[&ids(100)]), table(Side::Trainer, &[&ids(500)]));
        assert_eq!(joined.by, JoinedBy::Places);
        let [gap] = &joined.gaps[..] else { panic!("{:?}", joined.gaps) };
        assert_eq!((gap.kind, gap.position), (GapKind::Sample, 3));
        assert_eq!((gap.rollout[0], gap.trainer[0]), (100, 500));
    }

    #[test]
    fn a_prompt_that_the_rollouts_file_has_scored_is_no_part_of_its_response() {
        let mut rollout = table(Side::Rollout, &[&[7, 8, 1, 2, 3], &[7, 8, 4, 5, 6]]);
        for prompt in [0, 1, 5, 6] {
            rollout.tokens.flags[prompt] = TRAINER;
        }
        let joined = Joined::of_two(rollout, table(Side::Trainer, &[&[4, 5, 6], &[1, 2, 3]]));
        assert_eq!((joined.by, joined.gaps.len()), (JoinedBy::Tokens, 0));
        let both = |flags: &&u8| **flags & (ROLLOUT | TRAINER) == ROLLOUT | TRAINER;
        assert_eq!(joined.table.tokens.flags.iter().filter(both).count(), 6);
    }
}
