//! Parameters that are cut unlike those of other layers: rows of Q, K and V dealt out in blocks, say, where the others have one block a rank.

use std::collections::HashMap;

use probe_dump::{OpKind, OpName, Phase, SlotSide};
use probe_layout::{Cell, Holding, Spread};
use probe_pair::{Paired, PartPair};

use super::pieces::part;
use super::{Layouts, in_words};

/// Fewest layers that tell how a parameter is cut.
const FEWEST: usize = 3;

/// A parameter that ranks hold in parts: the place of the call that reads it, the path of its slot, and what the ranks hold.
struct Held<'p> {
    order: usize,
    path: &'p str,
    spread: &'p Spread,
}

impl Held<'_> {
    fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.spread.pieces.iter().map(|piece| &piece.cell)
    }
}

impl Layouts {
    /// Returns the first parameter, of a module that is called up to `end` or just then, that is the other run's, but lies on the ranks in another way than those
    /// of most layers: its products are right, and what takes their parts is not. With its place and the words.
    pub(super) fn cut_unlike_others<'p>(
        &'p self,
        pair: &'p PartPair,
        end: usize,
    ) -> Option<(usize, &'p str, String)> {
        let mut alike: HashMap<(String, &str), Vec<Held<'_>>> = HashMap::new();
        for (order, op) in pair.ops.iter().enumerate() {
            let name = OpName::parse(pair.name(op));
            let Some(module) = name.module_path().filter(|_| is_first_call(&name)) else { continue };
            for slots in op.slots.iter() {
                let parameter = pair.slot(op, slots).0.filter(|slot| slot.side == SlotSide::Parameter);
                if let Some(slot) = parameter
                    && let Some(spread) = self.parts(op, slots)
                {
                    let held = Held { order, path: &slot.path, spread };
                    alike.entry((without_numbers(module), &slot.path)).or_default().push(held);
                }
            }
        }
        // A module's call comes behind those that it makes.
        let caller = pair.ops.get(end).and_then(|op| pair.op(op).0?.parent.as_deref());
        let is_called =
            |held: &Held<'_>| held.order <= end || caller == Some(pair.name(&pair.ops[held.order]));
        let odd = alike.values().filter(|layers| layers.len() >= FEWEST).flat_map(|layers| odd_ones(layers));
        let (held, usual) = odd
            .filter(|(held, _)| is_called(held))
            .min_by_key(|(held, _)| (held.order, held.path != "parameter.weight"))?;
        let pieces = held.spread.pieces.iter().zip(usual.cells());
        let (piece, due) = pieces.into_iter().find(|(piece, due)| piece.cell != **due)?;
        let (ranks, shape) = (in_words(&piece.ranks), &held.spread.shape);
        let hold = if piece.ranks.len() == 1 { "holds" } else { "hold" };
        let said = format!(
            "{ranks} {hold} {}, expected {} (as in the other layers)",
            part(&piece.cell, shape),
            part(due, shape)
        );
        Some((held.order, held.path, said))
    }

    /// Returns what the ranks hold of a value, if that is a part on each.
    fn parts(&self, op: &probe_pair::OpPair, slots: Paired) -> Option<&Spread> {
        let spread = self.spread.get(&self.place(op, slots)?)?;
        let is_part =
            spread.pieces.len() > 1 && spread.pieces.iter().all(|piece| piece.holding == Holding::Part);
        is_part.then_some(&**spread)
    }
}

/// Returns the parameters that are cut in another way than most, each with one of those.
fn odd_ones<'h, 'p>(layers: &'h [Held<'p>]) -> Vec<(&'h Held<'p>, &'h Held<'p>)> {
    let alike = |one: &Held<'_>| layers.iter().filter(|other| one.cells().eq(other.cells())).count();
    let usual = layers.iter().find(|one| 2 * alike(one) > layers.len());
    let of = |usual| {
        layers
            .iter()
            .filter(move |one: &&Held<'_>| !one.cells().eq(Held::cells(usual)))
            .map(move |one| (one, usual))
    };
    usual.into_iter().flat_map(of).collect()
}

fn is_first_call(name: &OpName) -> bool {
    name.kind() == OpKind::Module && name.phase() == Phase::Forward && name.call() == Some(0)
}

/// Returns a path without the numbers of layers.
fn without_numbers(path: &str) -> String {
    let part = |name: &str| if name.parse::<u32>().is_ok() { "{}" } else { name }.to_owned();
    path.split('.').map(part).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "a cell of one range is one of several")]
mod tests {
    use std::ops::Range;
    use std::sync::Arc;

    use probe_dump::{DType, Op, RecordedDType, Slot, TensorRecord, Value};
    use probe_layout::Piece;
    use probe_pair::{OpPair, SlotPairs};

    use super::super::strangers::tests::part as pair_of;
    use super::*;

    /// Returns what is said of layers whose weight of 8 rows lies on two ranks in these parts, of which the first rank's are given.
    fn said(first: &[&[Range<usize>]]) -> Option<(usize, String)> {
        let record = TensorRecord::new(RecordedDType::Known(DType::F32), [8].into());
        let mut pair = pair_of("Module.layers.0.qkv.Linear.forward.0", [1.0, 1.0]);
        let slot = Slot::new("parameter.weight", SlotSide::Parameter, Value::Tensor(Arc::new(record)));
        let op = |layer: usize| {
            let name = OpName::parse(&format!("Module.layers.{layer}.qkv.Linear.forward.0"));
            Op { slots: vec![slot.clone()], ..Op::new(name) }
        };
        pair.baseline.ops = (0..first.len()).map(op).collect();
        pair.candidate.ops = (0..first.len()).map(op).collect();
        let paired = |place| OpPair { ops: Paired::Both(place, place), slots: SlotPairs::in_order(1) };
        pair.ops = (0..first.len()).map(paired).collect();
        let spread = |ranges: &&[Range<usize>]| {
            let rest: Vec<Range<usize>> = (0..8)
                .filter(|row| !ranges.iter().any(|range| range.contains(row)))
                .map(|row| row..row + 1)
                .collect();
            let piece = |rank: u32, ranges: Vec<Range<usize>>| {
                let cell = Cell::whole(&[8]).with(0, ranges.into());
                Piece { ranks: vec![rank], cell, holding: Holding::Part }
            };
            let pieces = vec![piece(0, ranges.to_vec()), piece(1, rest)];
            Arc::new(Spread { shape: [8].into(), pieces })
        };
        let spread = first.iter().enumerate().map(|(layer, ranges)| ((layer, 0), spread(ranges))).collect();
        let layouts = Layouts { ranks: vec![0, 1], spread, ..Layouts::default() };
        let found = layouts.cut_unlike_others(&pair, first.len());
        found.map(|(order, path, said)| {
            assert_eq!(path, "parameter.weight");
            (order, said)
        })
    }

    #[test]
    fn a_parameter_that_is_cut_unlike_those_of_other_layers_is_told() {
        let (usual, odd): (&[Range<usize>], &[Range<usize>]) = (&[0..4], &[0..2, 4..6]);
        let expected = "rank 0 holds [0:2+4:6], expected [0:4] (as in the other layers)";
        assert_eq!(said(&[usual, odd, usual]), Some((1, expected.to_owned())));
        assert_eq!(said(&[usual, usual, usual]), None);
        assert_eq!(said(&[odd, odd, odd]), None, "fused weights may lie so in all layers");
        assert_eq!(said(&[usual, odd]), None, "nothing tells which is usual");
    }
}
