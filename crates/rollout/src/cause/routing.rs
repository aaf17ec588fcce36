//! Experts that tokens go to on both sides. A router that cannot decide between two experts is decided by rounding: such flips are
//! noise. A router that chooses otherwise where it is sure is at fault, or what it is given.
//!
//! Each layer is judged by the tokens that went to the same experts in all layers before it, as one flip leads to others.

use std::collections::HashMap;

use super::{Case, Cause, model};
use crate::measure::{Measures, quantile};
use crate::routes::{Route, Routes};

/// Share of flips among those tokens from which a layer is named. Rounding flipped up to 1 % here, and 10 % in the largest report of
/// the field (Megatron-LM 4168); weights of 5 steps at 1e-3 up to 77 %, but in all layers.
const MANY: f64 = 0.2;
/// Largest share that rounding was reported to flip.
const NOISE: f64 = 0.1;
/// Share of the error behind tokens with other experts that those with equal ones may have, where a router is at fault: they had 0.04 to 0.07 of
/// it where experts were exchanged, and 0.75 to 1.2 where the weights of whole layers were others.
const SPARED: f64 = 0.5;
/// Factor by which the share exceeds that of every layer before.
const JUMP: f64 = 5.0;
/// Share of the flips that must lie above the median margin, where margins were recorded. Flips by rounding had 0.00, a router with
/// noise on its weights 0.11 to 0.51, exchanged experts 0.37 to 0.50.
const WIDE: f64 = 0.05;
/// Share of an expert's tokens that go elsewhere, and of these to one other, from which it is another expert.
const MOVED: f64 = 0.9;
/// Fewest flips, and fewest tokens of an expert.
const FEWEST: (u64, u32) = (20, 8);
/// Most margins of a layer that are kept for their median.
const MARGINS: usize = 1 << 16;

/// Flips of one layer.
#[derive(Debug, Default)]
struct Layer {
    /// Tokens with equal experts in all layers before.
    tokens: u64,
    flips: u64,
    /// Margins of the tokens, as many as are kept, and of the flips.
    margins: Vec<f32>,
    flipped: Vec<f32>,
    /// Of each expert of the rollout: tokens, and those that it lost.
    experts: HashMap<u16, (u32, u32)>,
    /// Lost and gained expert, where a token has one of each.
    moves: HashMap<(u16, u16), u32>,
}

impl Layer {
    fn add(&mut self, layer: usize, rollout: &Route<'_>, trainer: &Route<'_>) -> bool {
        let (ours, theirs) = (rollout.layer(layer), trainer.layer(layer));
        let margins = [rollout, trainer].map(|route| route.margins.get(layer).copied().unwrap_or(f32::NAN));
        let margin = margins[0].min(margins[1]);
        self.tokens += 1;
        if margin.is_finite() && self.margins.len() < MARGINS {
            self.margins.push(margin);
        }
        let lost: Vec<u16> = ours.iter().copied().filter(|expert| !theirs.contains(expert)).collect();
        for expert in ours {
            let count = self.experts.entry(*expert).or_default();
            count.0 += 1;
            count.1 += u32::from(lost.contains(expert));
        }
        if lost.is_empty() {
            return true;
        }
        self.flips += 1;
        if margin.is_finite() {
            self.flipped.push(margin);
        }
        let gained = theirs.iter().filter(|expert| !ours.contains(expert));
        for (lost, gained) in lost.iter().flat_map(|lost| gained.clone().map(move |gained| (*lost, *gained)))
        {
            *self.moves.entry((lost, gained)).or_default() += 1;
        }
        false
    }

    fn share(&self) -> f64 {
        self.flips as f64 / self.tokens.max(1) as f64
    }

    /// Returns the share of flips above the median margin; `None` without margins.
    fn wide(&self) -> Option<f64> {
        let median = quantile(&mut self.margins.clone(), 0.5);
        let above = self.flipped.iter().filter(|margin| f64::from(**margin) > median).count();
        (!self.flipped.is_empty()).then(|| above as f64 / self.flipped.len() as f64)
    }

    /// Returns the experts whose tokens all go to one other, with that other and the number of tokens, by number.
    fn moved(&self) -> Vec<(u16, u16, u32)> {
        let enough = |part: u32, of: u32| f64::from(part) >= MOVED * f64::from(of);
        let best = |expert: u16| {
            let own = self.moves.iter().filter(|((lost, _), _)| *lost == expert);
            own.map(|((_, gained), count)| (*count, *gained)).max()
        };
        let mut moved: Vec<(u16, u16, u32)> = self
            .experts
            .iter()
            .filter(|(_, (tokens, lost))| *tokens >= FEWEST.1 && enough(*lost, *tokens))
            .filter_map(|(expert, (_, lost))| {
                let (count, gained) = best(*expert)?;
                enough(count, *lost).then_some((*expert, gained, count))
            })
            .collect();
        moved.sort_unstable();
        moved
    }
}

/// Counts flips, and returns the layers and for each compared token whether the token before it, that it was sampled after, has one.
fn counted(case: &Case<'_>) -> (Vec<Layer>, HashMap<usize, bool>) {
    let tokens = &case.table.tokens;
    let mut layers: Vec<Layer> = Vec::new();
    let mut flipped = HashMap::new();
    for sample in &case.table.samples[case.samples.clone()] {
        // Nothing was sampled after the last token, and engines pad its experts.
        for place in sample.range.start..sample.range.end.saturating_sub(1) {
            let both = tokens.rollout_routes.get(place).zip(tokens.trainer_routes.get(place));
            let Some((rollout, trainer)) = both else { continue };
            layers.resize_with(layers.len().max(rollout.layers), Layer::default);
            let mut same = layers.iter_mut().enumerate();
            let equal = same.all(|(layer, counts)| counts.add(layer, &rollout, &trainer));
            flipped.insert(place + 1, !equal);
        }
    }
    (layers, flipped)
}

/// Judges the experts, where both sides have them. Returns true if they explain the differences.
pub(super) fn routing(case: &mut Case<'_>, rest: &Measures) -> bool {
    let routes = [&case.table.tokens.rollout_routes, &case.table.tokens.trainer_routes];
    if routes.iter().any(|routes| routes.is_empty()) {
        return false;
    }
    if routes[0].sizes() != routes[1].sizes() {
        let [(layers, chosen), (other, theirs)] = routes.map(Routes::sizes);
        case.notes.push(format!(
            "experts are not compared: the rollout has {chosen} in each of {layers} layers, the trainer {theirs} in each of {other}"
        ));
        return false;
    }
    let (layers, flipped) = counted(case);
    let behind = Behind::of(case, &flipped);
    // Other weights send tokens elsewhere as well, but spare none.
    let spread = rest.mean_abs > case.bound
        && behind.same.0 >= f64::from(FEWEST.1)
        && behind.same.1 >= SPARED * behind.other.1;
    let mut before = 0.0_f64;
    for (number, layer) in layers.iter().enumerate() {
        let moved = layer.moved();
        let jump = !spread
            && layer.flips >= FEWEST.0
            && layer.share() >= MANY
            && layer.share() >= JUMP * before
            && layer.wide().is_none_or(|wide| wide >= WIDE);
        // Other weights that move most choices of every router leave an expert few of its tokens as well.
        let renumbered = !moved.is_empty() && (!spread || layer.share() >= JUMP * before);
        if jump || renumbered {
            let evidence = fault(number, layer, before, &moved);
            let chance = chance(layer, &moved, layers.len());
            let total = case.pairs.total();
            case.clear();
            case.found(Cause::Routing, total, evidence, Some(chance), Vec::new());
            return true;
        }
        before = before.max(layer.share());
    }
    ties(case, rest, &layers, &behind)
}

/// Numbers of compared tokens, and means of |d|, behind tokens that agree in all layers and behind the others.
struct Behind {
    same: (f64, f64),
    other: (f64, f64),
}

impl Behind {
    fn of(case: &Case<'_>, flipped: &HashMap<usize, bool>) -> Self {
        let mut sums = [[0.0_f64; 2]; 2];
        for (at, place) in case.pairs.place.iter().enumerate() {
            if let Some(flipped) = flipped.get(place) {
                let sum = &mut sums[usize::from(*flipped)];
                sum[0] += 1.0;
                sum[1] += f64::from((case.pairs.p[at] - case.pairs.g[at]).abs());
            }
        }
        let [same, other] = sums.map(|[count, sum]| (count, sum / count.max(1.0)));
        Self { same, other }
    }
}

/// Describes a layer that chooses otherwise.
fn fault(number: usize, layer: &Layer, before: f64, moved: &[(u16, u16, u32)]) -> String {
    let seen = if number == 0 {
        String::new()
    } else {
        format!(" that agree in the layers before (there, at most {:.1} % differ)", 100.0 * before)
    };
    let wide = layer.wide().map_or(String::new(), |wide| {
        format!("; {:.0} % of these are at margins above the median, where rounding flips none", 100.0 * wide)
    });
    let pairs: Vec<String> =
        moved.iter().take(4).map(|(from, to, count)| format!("{from} is {to} ({count})")).collect();
    let more = if moved.len() > 4 { ", and others" } else { "" };
    let names = if pairs.is_empty() {
        String::new()
    } else {
        format!("; experts of the rollout have another number in the trainer: {}{more}", pairs.join(", "))
    };
    format!(
        "router {number} (from 0) sends {:.1} % of {} tokens{seen} to other experts{wide}{names}",
        100.0 * layer.share(),
        layer.tokens
    )
}

/// Returns the chance that rounding does this in one of the layers, if it flips one choice in ten: Chernoff's bound for the flips, or the
/// chance that all tokens of an expert flip.
fn chance(layer: &Layer, moved: &[(u16, u16, u32)], layers: usize) -> f64 {
    let (share, tokens) = (layer.share().clamp(NOISE, 1.0 - 1e-9), layer.tokens as f64);
    let divergence = share * (share / NOISE).ln() + (1.0 - share) * ((1.0 - share) / (1.0 - NOISE)).ln();
    let most = moved.iter().map(|(_, _, count)| *count).max().unwrap_or(0);
    let gone = NOISE.powf(f64::from(most)) * layer.experts.len() as f64;
    ((-tokens * divergence).exp().min(gone) * layers as f64).min(1.0)
}

/// Notes how many choices rounding flips, and names them where they make the difference and nothing else is seen behind them.
fn ties(case: &mut Case<'_>, rest: &Measures, layers: &[Layer], behind: &Behind) -> bool {
    let (flips, tokens): (u64, u64) =
        layers.iter().fold((0, 0), |(flips, tokens), layer| (flips + layer.flips, tokens + layer.tokens));
    let Behind { same: (equal, same), other: (moved, other) } = *behind;
    let margins = layers
        .iter()
        .filter_map(Layer::wide)
        .fold(None, |most: Option<f64>, wide| Some(most.map_or(wide, |most| most.max(wide))));
    let share = flips as f64 / tokens.max(1) as f64;
    let wide = margins.map_or(String::new(), |wide| {
        format!(", at most {:.0} % of a layer's at margins above the median", 100.0 * wide)
    });
    let noise = if share <= NOISE && margins.is_none_or(|wide| wide < WIDE) { " by rounding" } else { "" };
    let said = format!(
        "{:.2} % of the choices of experts differ{noise}, of tokens that agree in all layers before{wide}; mean |d| is {other:.2e} behind {moved} tokens with other experts, {same:.2e} behind the {equal} others",
        100.0 * share
    );
    let enough = moved.min(equal) >= FEWEST.0 as f64;
    let decides = enough && rest.mean_abs > case.bound && same <= case.bound && other > 2.0 * same;
    // What grows with the position moves routers to their ties as well.
    if !decides || model::position(case) {
        case.notes.push(said);
        return decides;
    }
    let before = case.pairs.total();
    case.clear();
    let fault = if margins.is_some_and(|wide| wide >= WIDE) {
        "rounding flips none there, so a router or what it is given is at fault"
    } else {
        "neither side is at fault, the choices are to be replayed in the trainer"
    };
    let evidence = format!("{said}: {fault}");
    case.found(Cause::Routing, before, evidence, None, Vec::new());
    true
}
