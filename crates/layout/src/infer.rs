//! Infers the layout of a value from its pieces and the baseline's value: shapes first, then hashes, then content.
//!
//! Nothing is believed that content contradicts. A sum is told from replicas by its distance to the baseline: that of the sum of all ranks
//! must be well below that of each rank alone.

use probe_dump::{Checksum, Content, DType, TensorData, TensorRecord, TensorRef, TensorStore};
use probe_measure as measure;

use super::cuts::{MOST_CELLS, cuts, gathered_zigzag, tiles};
use super::layout::{Among, Cell, Layout};
use super::parts::part_distance;
use super::{pieces, record};

/// A combination must be nearer to the baseline than any other explanation by this factor. Between sound runs in bfloat16 the ratio is
/// below 0.1; ranks that share an error without being terms of a sum have ratios near 1.
pub(crate) const NEARER: f64 = 0.3;

/// Distance, relative to the norm, up to which a piece is the baseline's part without further comparison. Beyond the rounding of bfloat16
/// over some layers, far below the distance of two different parts (1.4 for independent ones).
pub(crate) const NEAR: f64 = 0.05;

/// Distance below which no other cut is tried: more than the rounding of binary32 over some layers. Shorter types have four units.
const EXACT: f64 = 1e-4;

/// The same where statistics only bound the distance from below: a bound this small says nothing.
const NEAR_STATISTICS: f64 = 1e-3;

/// One tensor of a part, and the store of its data.
pub(crate) type Held<'a> = (&'a TensorRecord, &'a dyn TensorStore);

/// An explanation of the pieces.
#[derive(Debug, Clone)]
pub(crate) struct Inferred {
    pub(crate) layout: Layout,
    /// Pieces that make the value, by place among those given; in the order of the layout's cells.
    pub(crate) picks: Vec<usize>,
    /// Pieces that differ from what the others, and the baseline, hold.
    pub(crate) odd: Vec<usize>,
    /// Distance to the baseline; `None` without one.
    pub(crate) distance: Option<f64>,
    /// True if content told which cell each piece is.
    pub(crate) by_content: bool,
    /// True for gradients of a term of a mean, which the layout's share makes those of the mean.
    pub(crate) of_term: bool,
}

/// Infers the layout of a value that all of `pieces` hold; there is at least one.
pub(crate) fn infer(pieces: &[Held<'_>], baseline: Option<Held<'_>>) -> Inferred {
    let value = Value::new(pieces, baseline);
    let locals: Vec<Vec<usize>> = pieces.iter().map(|(record, _)| sizes(record)).collect();
    let shape = baseline.map_or_else(|| locals[0].clone(), |(record, _)| sizes(record));
    if locals.iter().all(|local| *local == shape) {
        return value.of_one_shape(&shape);
    }
    let fits = |local: &Vec<usize>| local.len() == shape.len();
    if shape.contains(&0) && locals.iter().all(|local| fits(local) && local.contains(&0)) {
        // Shards of nothing make nothing, of whatever sizes.
        let layout = Layout::same(&shape, 1, Among::Replicas);
        return Inferred { layout, distance: Some(0.0), ..value.alone() };
    }
    if locals.iter().all(fits) {
        return value.sharded(&shape, &locals).unwrap_or_else(|| value.alone());
    }
    value.alone()
}

pub(crate) fn sizes(record: &TensorRecord) -> Vec<usize> {
    record.shape.iter().map(|&size| usize::try_from(size).unwrap_or(usize::MAX)).collect()
}

/// The pieces of a value, as far as they are loaded.
struct Value<'a> {
    pieces: &'a [Held<'a>],
    baseline: Option<Held<'a>>,
    /// Data of all pieces and of the baseline, if all of them have some.
    data: Option<(Vec<TensorData>, TensorData)>,
}

impl<'a> Value<'a> {
    fn new(pieces: &'a [Held<'a>], baseline: Option<Held<'a>>) -> Self {
        let load = |(record, store): &Held<'_>| store.load(record.data.as_deref()?).ok();
        // Equal shards (masks) may lie in another order than that of the ranks; without hashes nothing shows that they are equal.
        let replicas = |whole: &Held<'_>| {
            let hashed = pieces[0].0.checksum.is_some();
            (!hashed || pieces[0].0.shape == whole.0.shape) && same_everywhere(pieces)
        };
        let data = baseline.filter(|whole| !replicas(whole)).and_then(|baseline| {
            let baseline = load(&baseline)?;
            Some((pieces.iter().map(load).collect::<Option<Vec<_>>>()?, baseline))
        });
        Self { pieces, baseline, data }
    }

    /// Takes the first piece for the value: nothing explains the others.
    fn alone(&self) -> Inferred {
        let shape = sizes(self.pieces[0].0);
        let layout = Layout::same(&shape, 1, Among::Replicas);
        Inferred {
            layout,
            picks: vec![0],
            odd: Vec::new(),
            distance: None,
            by_content: false,
            of_term: false,
        }
    }

    /// Explains pieces that have the shape of the whole: replicas, or terms of a sum.
    fn of_one_shape(&self, shape: &[usize]) -> Inferred {
        let whole = |picks: Vec<usize>, among, odd, distance| Inferred {
            layout: Layout::same(shape, picks.len(), among),
            picks,
            odd,
            distance,
            by_content: true,
            of_term: false,
        };
        let classes = classes(self.pieces);
        if classes.len() == 1 || self.baseline.is_none() {
            return whole(vec![0], Among::Replicas, Vec::new(), None);
        }
        let first: Vec<usize> = classes.iter().map(|class| class[0]).collect();
        let alone: Vec<f64> = first
            .iter()
            .map(|&pick| self.distance(&Layout::same(shape, 1, Among::Replicas), &[pick]))
            .collect();
        let nearest = alone.iter().copied().fold(f64::INFINITY, f64::min);
        let near = if self.is_measured() { NEAR } else { NEAR_STATISTICS };
        let floats = self.pieces[0].0.dtype.known().is_some_and(DType::is_float);
        let even = classes.iter().all(|class| class.len() == classes[0].len());
        let integers = self.pieces[0].0.dtype.known().is_some_and(DType::is_integer);
        let whole_numbers = integers && even && self.exact_sum(shape, &first);
        if whole_numbers {
            return whole(first, Among::Sum(1), Vec::new(), Some(0.0));
        }
        if floats
            && even
            && let Some((among, distance)) = self.extreme(shape, &first, nearest)
        {
            return whole(first, among, Vec::new(), Some(distance));
        }
        if floats && even {
            let count = u32::try_from(first.len()).unwrap_or(1);
            // Replicas that have drifted are near their mean too. A loss is one number, and near that of other ranks.
            let terms = shape.is_empty() || nearest > near;
            let shares = (1..=count).filter(|share| count.is_multiple_of(*share) && (*share == 1 || terms));
            let sums = shares.map(|share| {
                let layout = Layout::same(shape, first.len(), Among::Sum(share));
                (self.distance(&layout, &first), share)
            });
            if let Some((distance, share)) = sums.min_by(|a, b| a.0.total_cmp(&b.0))
                && distance < NEARER * self.mean_only(&alone, &first, shape)
            {
                return whole(first, Among::Sum(share), Vec::new(), Some(distance));
            }
            if let Some(found) = self.gathered_terms(shape, &first, nearest) {
                return found;
            }
        }
        // The candidate is wrong where any of its replicas is.
        let worst = (0..first.len()).max_by(|&a, &b| alone[a].total_cmp(&alone[b])).unwrap_or(0);
        let odd: Vec<usize> = (0..first.len())
            .filter(|&class| alone[class] > nearest.max(1e-12) / NEARER && nearest < near)
            .flat_map(|class| classes[class].clone())
            .collect();
        whole(vec![first[worst]], Among::Replicas, odd, Some(alone[worst]))
    }

    /// Returns the extreme of pieces that is the baseline's value but for rounding, which no piece is, and its distance.
    fn extreme(&self, shape: &[usize], first: &[usize], nearest: f64) -> Option<(Among, f64)> {
        self.data.as_ref()?;
        let of = |among| (among, self.distance(&Layout::same(shape, first.len(), among), first));
        let (among, distance) =
            [Among::Max, Among::Min].map(of).into_iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
        // Of terms that are zero wherever another is not, and positive, the sum is the maximum too.
        let sum = || self.distance(&Layout::same(shape, first.len(), Among::Sum(1)), first);
        (distance < NEAR && distance < NEARER * nearest && distance < NEARER * sum())
            .then_some((among, distance))
    }

    /// Returns the distance below which a value is the baseline's but for the rounding of its type.
    fn exact(&self) -> f64 {
        let bits = self.pieces[0].0.dtype.known().and_then(DType::mantissa_bits).unwrap_or(0);
        NEAR.min(f64::max(EXACT, 2.0 * 0.5_f64.powi(i32::try_from(bits).unwrap_or(0))))
    }

    /// Explains terms of a sum that lie in the order in which ranks hold zigzag shards: gradients of what was gathered from these.
    fn gathered_terms(&self, shape: &[usize], first: &[usize], nearest: f64) -> Option<Inferred> {
        self.data.as_ref().filter(|_| nearest > NEAR)?;
        gathered_zigzag(shape, self.pieces.len()).into_iter().find_map(|(dimension, ranges)| {
            let cell = Cell::whole(shape).with(dimension, ranges);
            let cells = vec![cell; first.len()].into();
            let layout = Layout { shape: shape.into(), cells, among: Among::Sum(1) };
            let distance = self.distance(&layout, first);
            (distance < NEAR).then(|| Inferred {
                layout,
                picks: first.to_vec(),
                odd: Vec::new(),
                distance: Some(distance),
                by_content: false,
                of_term: false,
            })
        })
    }

    /// Returns true if the pieces, which are whole numbers, add up to the baseline (counts of tokens).
    fn exact_sum(&self, shape: &[usize], first: &[usize]) -> bool {
        self.data.is_some() && self.distance(&Layout::same(shape, first.len(), Among::Sum(1)), first) == 0.0
    }

    /// Returns true if distances are measured, and not only bounded by statistics.
    fn is_measured(&self) -> bool {
        let sketched = |(record, _): &Held<'_>| record.sketch.is_some();
        self.data.is_some() || self.pieces.iter().chain(&self.baseline).all(sketched)
    }

    /// Returns the least distance of one piece: by all that is known, or by the mean alone if that is all that is known of a sum.
    fn mean_only(&self, alone: &[f64], first: &[usize], shape: &[usize]) -> f64 {
        let least = |distances: &[f64]| distances.iter().copied().fold(f64::INFINITY, f64::min);
        if self.is_measured() {
            return least(alone);
        }
        let count = shape.iter().product::<usize>() as f64;
        let of = |record: &TensorRecord| {
            let (b, _) = self.baseline?;
            let off = (record.statistics.mean()? - b.statistics.mean()?).abs() * count.sqrt();
            Some(off / b.statistics.norm()?)
        };
        least(&first.iter().map(|&pick| of(self.pieces[pick].0).unwrap_or(0.0)).collect::<Vec<_>>())
    }

    /// Explains pieces that are smaller than the whole in some dimensions.
    fn sharded(&self, shape: &[usize], locals: &[Vec<usize>]) -> Option<Inferred> {
        if locals
            .iter()
            .any(|local| local.iter().zip(shape).any(|(local, whole)| *local == 0 || local > whole))
        {
            return None;
        }
        let splits: Vec<usize> = (0..shape.len())
            .filter(|&dimension| locals.iter().any(|local| local[dimension] != shape[dimension]))
            .collect();
        if locals.iter().any(|local| *local != locals[0]) {
            return self.uneven(shape, locals, &splits);
        }
        // Parts that are much alike (attention that has learned nothing) are near each other's: the nearest counts.
        let exact = self.exact();
        let mut best: Option<Inferred> = None;
        for cut in cuts(&locals[0], &splits) {
            // Statistics are those of any cut; of the rarer ones, there is no usual order of ranks.
            let rare = cut.blocks > 1;
            if rare && self.data.is_none() {
                break;
            }
            let Some(cells) = tiles(shape, &locals[0], &splits, cut) else { continue };
            for found in self.assignments(shape, &cells, rare) {
                if found.distance.is_some_and(|distance| distance < exact) {
                    return Some(found);
                }
                let nearer = |best: &Inferred| {
                    found.distance.unwrap_or(f64::INFINITY) < NEARER * best.distance.unwrap_or(f64::INFINITY)
                };
                if best.as_ref().is_none_or(nearer) {
                    best = Some(found);
                }
            }
        }
        best.take_if(|best| best.distance.is_some_and(|distance| distance < NEAR))
            .or_else(|| self.multiple(shape, &locals[0], &splits))
            .or(best)
    }

    /// Explains shards of a multiple of the value: gradients of each rank's own term of a mean. The factor is left in.
    fn multiple(&self, shape: &[usize], local: &[usize], splits: &[usize]) -> Option<Inferred> {
        self.data.as_ref()?;
        let floats = self.pieces[0].0.dtype.known().is_some_and(DType::is_float);
        let ranks = u32::try_from(self.pieces.len()).ok().filter(|_| floats)?;
        let all: Vec<usize> = (0..self.pieces.len()).collect();
        cuts(local, splits).into_iter().find_map(|cut| {
            let cells = tiles(shape, local, splits, cut)?;
            let each = self.pieces.len() / cells.len();
            let order = self.by_content(&cells, true)?;
            if (0..cells.len()).any(|cell| order.iter().filter(|&&of| of == cell).count() != each) {
                return None;
            }
            let each = u32::try_from(each).ok()?;
            let placed = order.iter().map(|&cell| cells[cell].clone()).collect();
            let mut layout = Layout { shape: shape.into(), cells: placed, among: Among::Replicas };
            let fits = (2..=ranks).filter(|share| ranks.is_multiple_of(*share)).any(|share| {
                // The sum is that of all replicas of a part.
                layout.among = Among::Sum(share.saturating_mul(each));
                self.distance(&layout, &all) < NEAR
            });
            layout.among = Among::Replicas;
            fits.then(|| Inferred {
                distance: Some(self.distance(&layout, &all)),
                layout,
                picks: all.clone(),
                odd: Vec::new(),
                by_content: true,
                of_term: false,
            })
        })
    }

    /// Returns explanations of the pieces as these cells, the likeliest first; with `only_content`, those alone that content tells.
    fn assignments(&self, shape: &[usize], cells: &[Cell], only_content: bool) -> Vec<Inferred> {
        let (count, ranks) = (cells.len(), self.pieces.len());
        if count > ranks || !ranks.is_multiple_of(count) {
            return Vec::new();
        }
        let each = ranks / count;
        let classes = classes(self.pieces);
        let class_of = |rank: usize| classes.iter().position(|class| class.contains(&rank));
        let replicas = |of: &dyn Fn(usize) -> usize| {
            (0..ranks).all(|rank| {
                (0..ranks).all(|other| of(rank) != of(other) || class_of(rank) == class_of(other))
            })
        };
        let mut orders: Vec<(Vec<usize>, bool)> = Vec::new();
        if let Some(order) = self.by_content(cells, false)
            && (0..count).all(|cell| order.iter().filter(|&&of| of == cell).count() == each)
        {
            orders.push((order, true));
        }
        let (outer, inner) = (|rank: usize| rank / each, |rank: usize| rank % count);
        let mut plain: Vec<Vec<usize>> = vec![(0..ranks).map(outer).collect()];
        if each > 1 {
            plain.push((0..ranks).map(inner).collect());
            if replicas(&inner) && !replicas(&outer) {
                plain.reverse();
            }
        }
        orders.extend(plain.into_iter().filter(|_| !only_content).map(|order| (order, false)));
        let mut found = Vec::new();
        for (order, by_content) in orders {
            // Terms of a sum are equal on no two ranks.
            let alike = replicas(&|rank| order[rank]);
            let ways = self.combinations(each).into_iter();
            for among in ways.filter(|among| !alike || *among == Among::Replicas) {
                let layout = Layout {
                    shape: shape.into(),
                    cells: order.iter().map(|&cell| cells[cell].clone()).collect(),
                    among,
                };
                let picks: Vec<usize> = (0..ranks).collect();
                let distance = self.baseline.map(|_| self.distance(&layout, &picks));
                found.push(Inferred { layout, picks, odd: Vec::new(), distance, by_content, of_term: false });
            }
        }
        found
    }

    /// Returns the ways in which `each` pieces of one cell may combine.
    fn combinations(&self, each: usize) -> Vec<Among> {
        let real = self.pieces[0].0.dtype.known().is_some_and(|dtype| !dtype.is_complex());
        let floats = self.pieces[0].0.dtype.known().is_some_and(DType::is_float);
        let mut ways = vec![Among::Replicas];
        if each > 1 && real {
            ways.extend([Among::Sum(1), Among::Sum(u32::try_from(each).unwrap_or(1))]);
        }
        if each > 1 && floats && self.data.is_some() {
            ways.extend([Among::Max, Among::Min]);
        }
        ways
    }

    /// Returns the cell that each piece is nearest to, if one is clearly the nearest; with `scaled`, up to a factor.
    fn by_content(&self, cells: &[Cell], scaled: bool) -> Option<Vec<usize>> {
        let (pieces, baseline) = self.data.as_ref().filter(|_| cells.len() <= MOST_CELLS)?;
        let whole = baseline.view();
        let nearest = |piece: &TensorData| {
            let distances: Vec<f64> =
                cells.iter().map(|cell| part_distance(whole, cell, piece.view(), scaled)).collect();
            let best = (0..cells.len()).min_by(|&a, &b| distances[a].total_cmp(&distances[b]))?;
            let second = (0..cells.len()).filter(|&cell| cell != best).map(|cell| distances[cell]);
            (distances[best] < second.fold(f64::INFINITY, f64::min) * 0.5).then_some(best)
        };
        pieces.iter().map(nearest).collect()
    }

    /// Explains pieces of several sizes in one dimension: in the order of their ranks.
    fn uneven(&self, shape: &[usize], locals: &[Vec<usize>], splits: &[usize]) -> Option<Inferred> {
        let &[dimension] = splits else { return None };
        let mut at = 0;
        let mut cells = Vec::new();
        for local in locals {
            cells.push(
                Cell::whole(shape).with(dimension, std::iter::once(at..at + local[dimension]).collect()),
            );
            at += local[dimension];
        }
        if at != shape[dimension] {
            return None;
        }
        let layout = Layout { shape: shape.into(), cells: cells.into(), among: Among::Replicas };
        let picks: Vec<usize> = (0..locals.len()).collect();
        let distance = self.baseline.map(|_| self.distance(&layout, &picks));
        Some(Inferred { layout, picks, odd: Vec::new(), distance, by_content: false, of_term: false })
    }

    /// Returns the distance of the value that `picks` make to the baseline's, relative to the norm; what statistics prove of it if the data of
    /// either is missing.
    fn distance(&self, layout: &Layout, picks: &[usize]) -> f64 {
        let Some((b, _)) = self.baseline else { return f64::INFINITY };
        if let Some((pieces, baseline)) = &self.data {
            let picked = picks.iter().map(|&pick| pieces[pick].clone()).collect();
            let Ok(made) = pieces::view(layout, picked) else { return f64::INFINITY };
            return error(baseline.view(), made.view());
        }
        if let Some(distance) = self.sketched(b, layout, picks) {
            return distance;
        }
        let picked: Vec<&TensorRecord> = picks.iter().map(|&pick| self.pieces[pick].0).collect();
        let made = record::fold(layout, &picked);
        if let (Some(x), Some(y), Some(norm)) = (&b.sketch, &made.sketch, b.statistics.norm()) {
            return if norm > 0.0 { measure::sketch_distance(x, y) / norm } else { f64::INFINITY };
        }
        measure::compare_recorded(b, &made).rel_l2_at_least.get().unwrap_or(f64::INFINITY)
    }

    /// Returns the distance by sketches where pieces are so small that they have data, and the baseline has a sketch alone: that of shards is not
    /// made of theirs.
    fn sketched(&self, baseline: &TensorRecord, layout: &Layout, picks: &[usize]) -> Option<f64> {
        let sketch = baseline.sketch.as_ref().filter(|_| baseline.data.is_none() && !layout.is_whole())?;
        let norm = baseline.statistics.norm().filter(|norm| *norm > 0.0)?;
        let load = |&pick: &usize| {
            let (record, store) = self.pieces[pick];
            store.load(record.data.as_deref()?).ok()
        };
        let made = pieces::view(layout, picks.iter().map(load).collect::<Option<Vec<_>>>()?).ok()?;
        let content = Content { sketch: Some(sketch.version), hash: false };
        let seen = measure::observe(made.view(), content);
        Some(measure::sketch_distance(sketch, &seen.sketch?) / norm)
    }
}

/// Returns the relative error of `candidate`; infinite if they cannot be compared.
pub(crate) fn error(baseline: TensorRef<'_>, candidate: TensorRef<'_>) -> f64 {
    let metrics = measure::compare(baseline, candidate);
    metrics.map_or(f64::INFINITY, |metrics| metrics.rel_l2.unwrap_or(0.0))
}

/// Returns the distance to the baseline of the value that an explanation makes of `pieces`.
pub(crate) fn distance(pieces: &[Held<'_>], baseline: Held<'_>, explanation: &Inferred) -> f64 {
    Value::new(pieces, Some(baseline)).distance(&explanation.layout, &explanation.picks)
}

/// As [`distance`], of replicas too, which are otherwise not read.
pub(crate) fn measured(pieces: &[Held<'_>], baseline: Held<'_>, explanation: &Inferred) -> f64 {
    let picked: Vec<Held<'_>> = explanation.picks.iter().map(|&pick| pieces[pick]).collect();
    let load = |(record, store): &Held<'_>| store.load(record.data.as_deref()?).ok();
    let data = load(&baseline)
        .and_then(|baseline| Some((picked.iter().map(load).collect::<Option<Vec<_>>>()?, baseline)));
    let all: Vec<usize> = (0..picked.len()).collect();
    Value { pieces: &picked, baseline: Some(baseline), data }.distance(&explanation.layout, &all)
}

/// Returns true if all pieces hold the same elements.
fn same_everywhere(pieces: &[Held<'_>]) -> bool {
    classes(pieces).len() == 1
}

/// Returns the pieces that hold the same elements together, in order.
pub(crate) fn classes(pieces: &[Held<'_>]) -> Vec<Vec<usize>> {
    let same = |a: &TensorRecord, b: &TensorRecord| {
        a.shape == b.shape
            && match (&a.checksum, &b.checksum) {
                (Some(Checksum::Xxh3(a)), Some(Checksum::Xxh3(b))) => a == b,
                _ => a.statistics == b.statistics,
            }
    };
    let mut classes: Vec<Vec<usize>> = Vec::new();
    for (place, (record, _)) in pieces.iter().enumerate() {
        match classes.iter_mut().find(|class| same(pieces[class[0]].0, record)) {
            Some(class) => class.push(place),
            None => classes.push(vec![place]),
        }
    }
    classes
}
