//! A plan in words: which tensors, in which arrangement, with which order of lines.

use std::fmt;

use crate::index::Hashed;
use crate::lines::Axis;
use crate::plan::Plan;

/// How a tensor is made of tensors of the other side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Direction of the tensor's lines.
    pub axis: Axis,
    /// Its sources, in order of appearance.
    pub sources: Vec<Source>,
    /// How lines of several sources follow one another.
    pub arrangement: Arrangement,
    /// Lines that no source has: padding.
    pub padding: usize,
}

/// Lines of one tensor of the other side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Position in the other checkpoint.
    pub tensor: usize,
    /// Direction of its lines; another one than the layout's means that it is transposed.
    pub axis: Axis,
    /// The first line in use, from 0.
    pub first: usize,
    /// The number of lines in use.
    pub count: usize,
    /// The number of lines it has.
    pub of: usize,
    /// Their order.
    pub order: Order,
}

impl Source {
    /// Returns true if all its lines are used.
    pub const fn is_whole(&self) -> bool {
        self.count == self.of
    }
}

/// How lines of sources follow one another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Arrangement {
    /// One source after the other.
    Joined,
    /// Groups, each with so many lines of each source, as Q, K and V of groups of heads.
    Groups {
        /// The number of groups.
        groups: usize,
        /// Lines of each source in a group.
        counts: Vec<usize>,
    },
    /// No rule was found.
    Mixed,
}

/// Order of the lines of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Order {
    /// As in the source.
    Kept,
    /// Rows of rotary heads: the source has the two halves of a head one after the other, the tensor takes from them in turns; or the
    /// reverse.
    Rotary {
        /// Rows of a head.
        head: usize,
        /// True if the tensor is the one that takes turns.
        interleaved: bool,
    },
    /// The lines as a matrix of so many rows, transposed.
    Transposed {
        /// Rows of that matrix.
        rows: usize,
    },
    /// The second half before the first: scale before shift, or the reverse.
    Halves,
    /// Moved on in a circle.
    Shifted {
        /// By so many lines.
        by: usize,
    },
    /// Blocks of so many lines in another order.
    Blocks {
        /// Lines of a block.
        size: usize,
        /// The first block that is elsewhere, and the one in its place.
        first: (usize, usize),
        /// Blocks that are elsewhere.
        moved: usize,
    },
    /// No rule was found.
    Mixed,
}

/// Names of sources without numbers, whether their direction is the layout's, their order; whether they are joined.
pub(crate) type Kind<'a> = (Vec<(&'a str, bool, Order)>, bool);

impl Order {
    /// Finds the rule of an order: `lines[i]` is the line of the source at place i.
    pub(crate) fn of(lines: &[u32]) -> Self {
        if lines.windows(2).all(|pair| pair[1] > pair[0]) {
            return Self::Kept;
        }
        let mut sorted = lines.to_vec();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            return Self::Mixed;
        }
        // Lines of other tensors may lie between them: only their order counts.
        let order: Vec<usize> =
            lines.iter().map(|line| sorted.partition_point(|other| other < line)).collect();
        let count = order.len();
        let divisors = || (2..=count).filter(|size| count.is_multiple_of(*size));
        for head in divisors().filter(|head| head.is_multiple_of(2) && *head >= 4) {
            let turns = |at: usize| at / head * head + at % head / 2 + at % 2 * (head / 2);
            if (0..count).all(|at| order[at] == turns(at)) {
                return Self::Rotary { head, interleaved: true };
            }
            if (0..count).all(|at| order[turns(at)] == at) {
                return Self::Rotary { head, interleaved: false };
            }
        }
        for rows in divisors().filter(|rows| *rows < count) {
            if (0..count).all(|at| order[at] == at % rows * (count / rows) + at / rows) {
                return Self::Transposed { rows };
            }
        }
        if (0..count).all(|at| order[at] == (at + order[0]) % count) {
            return if 2 * order[0] == count { Self::Halves } else { Self::Shifted { by: order[0] } };
        }
        Self::blocks(&order)
    }

    fn blocks(order: &[usize]) -> Self {
        let kept = |size: usize| {
            order.chunks(size).all(|block| {
                block[0].is_multiple_of(size) && block.windows(2).all(|pair| pair[1] == pair[0] + 1)
            })
        };
        let count = order.len();
        let size = (1..count).rev().find(|&size| count.is_multiple_of(size) && kept(size)).unwrap_or(1);
        let moved = order.chunks(size).enumerate().filter(|(at, block)| block[0] / size != *at);
        let mut moved = moved.map(|(at, block)| (at, block[0] / size)).peekable();
        match moved.peek().copied() {
            Some(first) if size > 1 || count <= 64 => Self::Blocks { size, first, moved: moved.count() },
            _ => Self::Mixed,
        }
    }

    /// Returns true for an order that somebody meant.
    pub(crate) const fn is_regular(self) -> bool {
        matches!(self, Self::Kept | Self::Rotary { .. } | Self::Transposed { .. } | Self::Halves)
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Kept => f.write_str("in order"),
            Self::Rotary { head, interleaved: true } => {
                write!(f, "heads of {head} permuted (interleaved rotary against halves)")
            }
            Self::Rotary { head, interleaved: false } => {
                write!(f, "heads of {head} permuted (rotary halves against interleaved)")
            }
            Self::Transposed { rows } => write!(f, "taken in turns from {rows} blocks"),
            Self::Halves => f.write_str("halves exchanged"),
            Self::Shifted { by } => write!(f, "shifted by {by}"),
            Self::Blocks { size, first: (at, from), moved: 2 } => match size {
                1 => write!(f, "lines {at} and {from} swapped"),
                _ => write!(f, "blocks {at} and {from} of {size} swapped (heads?)"),
            },
            Self::Blocks { size, moved, .. } => write!(f, "{moved} blocks of {size} permuted"),
            Self::Mixed => f.write_str("permuted"),
        }
    }
}

impl Layout {
    /// Describes a plan.
    pub(crate) fn of(plan: &Plan, side: &Hashed<'_>) -> Self {
        let mut parts: Vec<((u32, Axis), Vec<u32>)> = Vec::new();
        let mut turns: Vec<(usize, usize)> = Vec::new();
        for place in plan.places.iter().flatten() {
            let key = (place.tensor, place.axis);
            let last = turns.last().map(|(at, _)| *at).filter(|&at| parts[at].0 == key);
            let at = last.or_else(|| parts.iter().position(|(other, _)| *other == key));
            let at = at.unwrap_or_else(|| {
                parts.push((key, Vec::new()));
                parts.len() - 1
            });
            parts[at].1.push(place.line);
            match turns.last_mut() {
                Some((last, count)) if *last == at => *count += 1,
                _ => turns.push((at, 1)),
            }
        }
        let source = |((tensor, axis), lines): &((u32, Axis), Vec<u32>)| {
            let all = side.lines_of(*tensor).map_or(0, |of| of.form.lines(*axis));
            Source {
                tensor: *tensor as usize,
                axis: *axis,
                first: lines.iter().copied().min().unwrap_or(0) as usize,
                count: lines.len(),
                of: all,
                order: Order::of(lines),
            }
        };
        let sources: Vec<Source> = parts.iter().map(source).collect();
        let padding = plan.places.iter().filter(|place| place.is_none()).count();
        Self { axis: plan.axis, arrangement: Arrangement::of(&turns, sources.len()), sources, padding }
    }

    /// Returns true if every order and the arrangement follow a rule.
    pub(crate) fn is_regular(&self) -> bool {
        self.arrangement != Arrangement::Mixed && self.sources.iter().all(|source| source.order.is_regular())
    }

    /// Returns the names of two sources that do not follow one another as their numbers do, such as experts of a stack; the former first.
    pub(crate) fn out_of_order<'a>(&self, side: &Hashed<'a>) -> Option<(&'a str, &'a str)> {
        let names: Vec<_> =
            self.sources.iter().map(|source| &side.checkpoint.tensors[source.tensor].name).collect();
        names.iter().enumerate().find_map(|(at, name)| {
            let before = names[..at].iter().rev().find(|other| other.template == name.template)?;
            (before.numbers > name.numbers).then_some((&*before.text, &*name.text))
        })
    }

    /// Returns what layouts of tensors of one kind have in common: the kinds of sources in order, their directions and orders.
    pub(crate) fn kind<'a>(&self, side: &Hashed<'a>) -> Kind<'a> {
        let mut sources: Vec<(&str, bool, Order)> = Vec::new();
        for source in &self.sources {
            let name = u32::try_from(source.tensor).map_or("", |tensor| &*side.name(tensor).template);
            let entry = (name, source.axis == self.axis, source.order);
            if !sources.contains(&entry) {
                sources.push(entry);
            }
        }
        (sources, self.arrangement == Arrangement::Joined)
    }

    /// Returns true if the tensor is the whole of one other.
    pub fn is_renamed(&self) -> bool {
        matches!(self.sources.as_slice(), [one] if one.is_whole() && one.axis == self.axis && one.order == Order::Kept)
            && self.padding == 0
    }

    /// Returns the operation on the sources, without their names: `joined rows`, `32 of 64 rows`. Empty for one that is only renamed.
    pub fn text(&self) -> String {
        let mut words: Vec<String> = Vec::new();
        match (&self.arrangement, self.sources.as_slice()) {
            (_, [one]) if !one.is_whole() => {
                words.push(format!("{} of {} {}", one.count, one.of, one.axis.word(one.of)));
            }
            (Arrangement::Joined, [_, _, ..]) => words.push(format!("joined {}", self.axis.word(2))),
            (Arrangement::Groups { groups, counts }, _) => {
                let counts: Vec<String> = counts.iter().map(ToString::to_string).collect();
                words.push(format!("{groups} groups of {} {}", counts.join("+"), self.axis.word(2)));
            }
            (Arrangement::Mixed, _) => words.push(format!("{} mixed", self.axis.word(2))),
            _ => {}
        }
        if self.sources.len() > 1 && self.sources.iter().any(|source| !source.is_whole()) {
            words.push("shards".to_owned());
        }
        if self.sources.iter().any(|source| source.axis != self.axis) {
            words.push("transposed".to_owned());
        }
        let mut orders: Vec<Order> =
            self.sources.iter().map(|source| source.order).filter(|order| *order != Order::Kept).collect();
        orders.dedup();
        words.extend(orders.iter().map(ToString::to_string));
        if self.padding > 0 {
            words.push(format!("{} {} of padding", self.padding, self.axis.word(self.padding)));
        }
        words.join(", ")
    }
}

impl Arrangement {
    /// Finds the rule of turns: source and number of lines of each.
    fn of(turns: &[(usize, usize)], sources: usize) -> Self {
        if turns.len() <= sources {
            return Self::Joined;
        }
        // In a stack of layers, each has groups of its own sources.
        let regular = |each: &usize| {
            let (groups, layers) = (turns.len() / each, sources / each);
            let of_layer = groups / layers;
            turns.len().is_multiple_of(*each)
                && groups.is_multiple_of(layers)
                && turns.chunks(*each).enumerate().all(|(group, round)| {
                    let due = group / of_layer * each;
                    round.iter().zip(turns).zip(due..).all(|((turn, first), due)| *turn == (due, first.1))
                })
        };
        let mut divisors = (2..=sources).rev().filter(|each| sources.is_multiple_of(*each));
        divisors.find(regular).map_or(Self::Mixed, |each| Self::Groups {
            groups: turns.len() / each,
            counts: turns[..each].iter().map(|(_, count)| *count).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_named() {
        let order = |lines: &[u32]| Order::of(lines);
        assert_eq!(order(&[4, 5, 8, 9]), Order::Kept);
        let turns = [0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15];
        assert_eq!(order(&turns), Order::Rotary { head: 8, interleaved: true });
        let halves = [0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15];
        assert_eq!(order(&halves), Order::Rotary { head: 8, interleaved: false });
        assert_eq!(order(&[0, 3, 6, 1, 4, 7, 2, 5, 8]), Order::Transposed { rows: 3 });
        assert_eq!(order(&[1, 2, 3, 4, 5, 0]), Order::Shifted { by: 1 });
        assert_eq!(order(&[3, 4, 5, 0, 1, 2]), Order::Halves);
        assert_eq!(order(&[0, 1, 6, 7, 4, 5, 2, 3]), Order::Blocks { size: 2, first: (1, 3), moved: 2 });
        assert_eq!(order(&[0, 0, 1, 1]), Order::Mixed);
    }

    #[test]
    fn groups_of_a_stack_are_those_of_its_layers() {
        let groups = |groups| Arrangement::Groups { groups, counts: vec![4, 2, 2] };
        let round = |first: usize| [(first, 4), (first + 1, 2), (first + 2, 2)];
        assert_eq!(Arrangement::of(&[round(0), round(0)].concat(), 3), groups(2));
        let stack = [round(0), round(0), round(3), round(3)].concat();
        assert_eq!(Arrangement::of(&stack, 6), groups(4));
        let odd = [round(0), round(3), round(3), round(0)].concat();
        assert_eq!(Arrangement::of(&odd, 6), Arrangement::Mixed);
    }
}
