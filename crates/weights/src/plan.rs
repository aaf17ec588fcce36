//! A plan: for every line of a tensor, the line of the other side that it is.

use crate::index::{Index, Place};
use crate::lines::{Axis, Lines};
use probe_dump::DType;

/// Where the lines of a tensor come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Direction of the tensor's own lines.
    pub(crate) axis: Axis,
    /// Per line; `None` where nothing is known.
    pub(crate) places: Vec<Option<Place>>,
}

/// Adjacent lines of a tensor that come from lines in order, `step` apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Run {
    pub(crate) at: usize,
    pub(crate) count: usize,
    pub(crate) first: Place,
    pub(crate) step: i64,
}

/// A tensor to be placed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sought<'a> {
    pub(crate) tensor: u32,
    pub(crate) dtype: DType,
    pub(crate) lines: &'a Lines,
    pub(crate) name: &'a crate::checkpoint::Name,
}

/// How lines are recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// Equal in the common type.
    Value,
    /// The same signs: what rounding and scaling leave.
    Sign,
}

/// Lines that are looked at beyond one that several places could be.
const AHEAD: usize = 32;

impl Plan {
    /// Finds the places of a tensor's lines, in the direction in which more are found.
    pub(crate) fn find(index: &Index<'_>, sought: Sought<'_>, by: By) -> Option<Self> {
        let [rows, columns] = Axis::ALL.map(|axis| Self::along(index, sought, axis, by));
        let [of_rows, of_columns] = [&rows, &columns].map(Self::share);
        let plan = if of_columns > of_rows { columns } else { rows };
        (plan.share() > 0.0 && plan.is_plausible(sought.lines)).then_some(plan)
    }

    fn along(index: &Index<'_>, sought: Sought<'_>, axis: Axis, by: By) -> Self {
        let count = sought.lines.form.lines(axis);
        let alike = |line| match by {
            By::Value => index.equal(sought.dtype, sought.lines, axis, line),
            By::Sign => index.alike(sought.lines, axis, line),
        };
        let mut places: Vec<Option<Place>> = Vec::with_capacity(count);
        for line in 0..count {
            let next = places.last().copied().flatten().and_then(|place| place.after(1));
            let next = next.filter(|&place| {
                by == By::Value && index.is_equal(sought.dtype, sought.lines, axis, line, place)
            });
            places.push(next.or_else(|| {
                let found = alike(line);
                match found.as_slice() {
                    [] => None,
                    [one] => Some(*one),
                    several => best(index, sought, axis, line, several),
                }
            }));
        }
        Self { axis, places }
    }

    /// Returns the share of lines that have a place.
    pub(crate) fn share(&self) -> f64 {
        let found = self.places.iter().flatten().count();
        if found == 0 { 0.0 } else { found as f64 / self.places.len() as f64 }
    }

    /// Returns true if every line has a place.
    pub(crate) fn is_whole(&self) -> bool {
        !self.places.is_empty() && self.places.iter().all(Option::is_some)
    }

    /// Elements of vectors are found somewhere by chance. They count if all are found in long runs.
    fn is_plausible(&self, lines: &Lines) -> bool {
        let length = lines.form.length(self.axis);
        length > 4
            || self.places.len() == 1
            || self.is_whole() && self.runs().len() * 8 <= self.places.len().max(8)
    }

    /// Returns the places as runs.
    pub(crate) fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (at, place) in self.places.iter().enumerate() {
            let Some(place) = *place else { continue };
            if let Some(run) = runs.last_mut()
                && run.at + run.count == at
                && run.first.tensor == place.tensor
                && run.first.axis == place.axis
            {
                let gone = i64::from(place.line) - i64::from(run.first.line);
                if run.count == 1 && gone != 0 {
                    (run.step, run.count) = (gone, 2);
                    continue;
                }
                if run.count > 1 && i64::try_from(run.count).is_ok_and(|count| gone == run.step * count) {
                    run.count += 1;
                    continue;
                }
            }
            runs.push(Run { at, count: 1, first: place, step: 1 });
        }
        runs
    }

    /// Returns the plan of a tensor that is the whole of another, of `rows` rows.
    pub(crate) fn whole(tensor: u32, rows: usize) -> Self {
        let places = (0..).map(|line| Some(Place { tensor, axis: Axis::Row, line })).take(rows).collect();
        Self { axis: Axis::Row, places }
    }

    /// Makes a plan of runs.
    pub(crate) fn of_runs(axis: Axis, count: usize, runs: &[Run]) -> Self {
        let mut places = vec![None; count];
        for run in runs {
            for (place, step) in places.iter_mut().skip(run.at).take(run.count).zip(0..) {
                *place = run.first.after(run.step * step);
            }
        }
        Self { axis, places }
    }

    /// Returns which lines equal those at their places.
    pub(crate) fn equal_lines(&self, index: &Index<'_>, sought: Sought<'_>) -> Vec<bool> {
        let equal = |(line, place): (usize, &Option<Place>)| {
            place.is_some_and(|place| index.is_equal(sought.dtype, sought.lines, self.axis, line, place))
        };
        self.places.iter().enumerate().map(equal).collect()
    }

    /// Gives lines without a place between two others of one run the places between, and those at the ends the places that follow.
    pub(crate) fn filled(mut self, index: &Index<'_>) -> Self {
        for forward in [true, false] {
            let count = self.places.len();
            for step in 1..count {
                let (at, from, by) =
                    if forward { (step, step - 1, 1) } else { (count - 1 - step, count - step, -1) };
                if self.places[at].is_none() {
                    let next = self.places[from].and_then(|place| place.after(by));
                    self.places[at] = next.filter(|&place| index.of.holds(place));
                }
            }
        }
        self
    }
}

/// Returns the place among `several` equal ones from which most of the following lines follow; if that does not decide, the one whose name is
/// most alike.
fn best(index: &Index<'_>, sought: Sought<'_>, axis: Axis, line: usize, several: &[Place]) -> Option<Place> {
    let follows = |place: Place| {
        let end = sought.lines.form.lines(axis).min(line + AHEAD);
        let same = (line + 1..end).zip(1..).take_while(|&(line, step)| {
            let next = place.after(step);
            next.is_some_and(|next| index.is_equal(sought.dtype, sought.lines, axis, line, next))
        });
        same.count()
    };
    let fit = |place: &Place| {
        let likeness = sought.name.likeness(index.of.name(place.tensor));
        (follows(*place), likeness, place.axis == axis, std::cmp::Reverse(*place))
    };
    several.iter().copied().max_by_key(fit)
}
