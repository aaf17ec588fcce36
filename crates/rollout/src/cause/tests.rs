//! Causes planted in samples from known distributions: logits of a sequence, sampled by an engine, with noise on them in the trainer.

use super::*;
use crate::read::narrow;
use crate::table::{Builder, Sample, Token};

/// Numbers from `SplitMix64`.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn below(&mut self, end: u32) -> u32 {
        u32::try_from(self.next() % u64::from(end)).unwrap()
    }

    fn normal(&mut self) -> f64 {
        let (radius, angle) =
            ((-2.0 * self.uniform().max(1e-300).ln()).sqrt(), std::f64::consts::TAU * self.uniform());
        radius * angle.cos()
    }
}

/// A row: prompt, and of each token of the response id, the engine's value and the trainer's.
struct Drawn {
    prompt: u32,
    tokens: Vec<(u32, f64, f64)>,
    stopped: bool,
}

const WORDS: usize = 40;

fn log_softmax(logits: &[f64]) -> Vec<f64> {
    let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|logit| (logit - most).exp()).sum();
    logits.iter().map(|logit| logit - most - sum.ln()).collect()
}

/// Keeps the likeliest words until they hold `top_p`.
fn truncated(values: &[f64], top_p: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*b].total_cmp(&values[*a]));
    let (mut sum, mut kept) = (0.0, vec![f64::NEG_INFINITY; values.len()]);
    for word in order {
        if sum >= top_p {
            break;
        }
        sum += values[word].exp();
        kept[word] = values[word];
    }
    log_softmax(&kept)
}

/// Rows without padding, the first ones, of so many.
fn unpadded(rows: u32) -> u32 {
    (rows / 4).max(2)
}

fn draw(fault: &str, noise: f64, row: u32, padded: bool, random: &mut Random) -> Drawn {
    // The two sides compute rows without padding by the same kernels.
    let noise = if fault == "same-kernels" && !padded { 1e-7 } else { noise };
    let temperature = if matches!(fault, "temperature" | "raw") { 0.8 } else { 1.0 };
    let (prompt, length) = (3 + random.below(20), 2 + random.below(62));
    let mut tokens = Vec::new();
    for t in 0..length {
        let spread = 0.5 + 4.0 * random.uniform();
        let logits: Vec<f64> = (0..WORDS).map(|_| spread * random.normal()).collect();
        // Words that the response has already.
        let used = |word: usize| tokens.iter().any(|(id, _, _)| *id as usize == word);
        let engine = |(word, logit): (usize, &f64)| {
            if fault == "penalty" && used(word) { logit - 1.0 } else { logit / temperature }
        };
        let scaled: Vec<f64> = logits.iter().enumerate().map(engine).collect();
        let mut sampled = log_softmax(&scaled);
        if fault == "top-p" {
            sampled = truncated(&sampled, 0.9);
        }
        let mut left = random.uniform();
        let word = sampled.iter().position(|value| {
            left -= value.exp();
            left < 0.0
        });
        let word = word.unwrap_or(0);
        let grown = match fault {
            "position" => 20.0 * f64::from(t) / 64.0 * 0.05,
            "padding" if padded => 0.3,
            "slightly" if padded => 0.02,
            "weights" => 0.3,
            "unrelated" => 8.0,
            "stale" if row.is_multiple_of(2) => 0.2,
            _ => noise,
        };
        let moved: Vec<f64> = logits
            .iter()
            .map(|logit| {
                (logit + grown.max(noise) * random.normal()) / if fault == "raw" { temperature } else { 1.0 }
            })
            .collect();
        let reported = if fault == "raw" { log_softmax(&logits)[word] } else { sampled[word] };
        let mut trainer = log_softmax(&moved)[word];
        if fault == "precision" {
            trainer = f64::from(f32::from_bits((narrow(trainer).to_bits() + 0x8000) & 0xffff_0000));
        }
        tokens.push((u32::try_from(word).unwrap(), reported, trainer));
    }
    Drawn { prompt, tokens, stopped: row.is_multiple_of(2) }
}

/// Returns both sides of a batch of `rows` samples with faults planted, by name.
fn table(faults: &[&str], noise: f64, rows: u32, seed: u64) -> Table {
    let mut random = Random(seed);
    let has = |fault: &str| faults.contains(&fault);
    let drawn: Vec<Drawn> = (0..rows)
        .map(|row| draw(faults.last().unwrap_or(&""), noise, row, row >= unpadded(rows), &mut random))
        .collect();
    let mut values: Vec<Vec<f64>> =
        drawn.iter().map(|row| row.tokens.iter().map(|token| token.2).collect()).collect();
    if has("rows") {
        let mut long: Vec<usize> = (0..values.len()).collect();
        long.sort_by_key(|row| std::cmp::Reverse(values[*row].len()));
        values.swap(long[0], long[1]);
    }
    let mut builder = Builder::default();
    for (place, row) in drawn.iter().enumerate() {
        builder.begin(Sample {
            step: 0,
            name: place.to_string().into(),
            named: true,
            range: 0..0,
            padding: has("padding")
                .then_some((u32::try_from(place).unwrap() + 1).saturating_sub(unpadded(rows))),
            version: has("stale").then_some(if place.is_multiple_of(2) { 3 } else { 5 }),
        });
        for position in 0..row.prompt {
            builder.token(Token {
                id: 1,
                position,
                rollout: None,
                trainer: Some(-2.0),
                counted: has("mask") && position + 1 == row.prompt,
            });
        }
        let last = row.tokens.len() - 1;
        for (t, (id, rollout, _)) in row.tokens.iter().enumerate() {
            let from = if has("shift") { t + 1 } else { t };
            let mut trainer = values[place].get(from).copied().unwrap_or(-3.0);
            if has("unscored") && t == last && row.stopped {
                trainer = 0.0;
            }
            let counted = !(has("mask") && t == last || has("end-token") && t == last && row.stopped);
            builder.token(Token {
                id: *id,
                position: row.prompt + u32::try_from(t).unwrap(),
                rollout: Some(narrow(*rollout)),
                trainer: Some(narrow(trainer)),
                counted,
            });
        }
    }
    builder.finish().unwrap()
}

fn causes(faults: &[&str], noise: f64, rows: u32, seed: u64) -> Vec<String> {
    let joined = Joined::of_one(table(faults, noise, rows, seed));
    let precision = if noise < 1e-4 { Precision::Float32 } else { Precision::Bfloat16 };
    let options = RolloutOptions { precision: Some(precision), ..RolloutOptions::default() };
    let explained = explain(&joined, 0..joined.table.samples.len(), (None, None), &options);
    explained.findings.iter().map(|finding| finding.cause.name().to_owned()).collect()
}

/// Noise of logits, as in float32 and in bfloat16: mean |d| becomes 1e-6 and 0.015.
const NOISES: [f64; 2] = [1.5e-6, 0.02];

#[test]
fn sound_pairs_have_no_cause() {
    for seed in 0..100 {
        let rows = [4, 8, 32][usize::try_from(seed % 3).unwrap()];
        for noise in NOISES {
            assert_eq!(causes(&[], noise, rows, seed), [""; 0], "seed {seed}, {rows} rows, noise {noise}");
        }
    }
}

#[test]
fn a_planted_cause_is_named_alone() {
    let all = ["shift", "mask", "end-token", "unscored", "rows", "temperature", "raw", "top-p", "weights"];
    for fault in all {
        for (seed, rows) in [(1, 8), (2, 16), (3, 48)] {
            for noise in NOISES {
                let named = match fault {
                    "raw" => "temperature",
                    "top-p" => "truncation",
                    other => other,
                };
                assert_eq!(
                    causes(&[fault], noise, rows, seed),
                    [named],
                    "{fault}, seed {seed}, {rows} rows, noise {noise}"
                );
            }
        }
    }
}

#[test]
fn penalties_and_narrow_values_are_named() {
    for (seed, rows) in [(1, 16), (2, 48)] {
        for noise in NOISES {
            assert_eq!(causes(&["penalty"], noise, rows, seed), ["penalty"], "seed {seed}, noise {noise}");
        }
        assert_eq!(causes(&["precision"], NOISES[0], rows, seed), ["precision"]);
        // In bfloat16 it is what rounding explains.
        assert_eq!(causes(&["precision"], NOISES[1], rows, seed), [""; 0]);
    }
}

#[test]
fn rows_that_have_nothing_in_common_are_no_exchange_and_no_temperature() {
    for seed in 0..40 {
        let found = causes(&["unrelated"], NOISES[1], 60, seed);
        assert!(!found.iter().any(|cause| ["rows", "shift", "temperature"].contains(&&**cause)), "{found:?}");
    }
}

#[test]
fn what_follows_rows_and_positions_is_named() {
    for (seed, rows) in [(1, 24), (2, 64)] {
        for noise in NOISES {
            for fault in ["position", "padding", "stale"] {
                assert_eq!(
                    causes(&[fault], noise, rows, seed),
                    [fault],
                    "seed {seed}, {rows} rows, noise {noise}"
                );
            }
        }
    }
}

#[test]
fn few_rows_tell_the_padding_if_those_without_it_are_clean() {
    for seed in 0..10 {
        assert_eq!(causes(&["padding"], NOISES[0], 4, seed), ["padding"], "seed {seed}");
        assert_eq!(causes(&["padding", "weights"], NOISES[0], 4, seed), ["weights"], "seed {seed}");
    }
}

#[test]
fn rows_without_padding_show_what_rounding_would_hide() {
    const LITTLE: f64 = 0.003;
    for seed in 0..40 {
        let rows = if seed % 2 == 0 { 24 } else { 64 };
        assert_eq!(causes(&["padding", "slightly"], LITTLE, rows, seed), ["padding"], "seed {seed}");
        assert_eq!(causes(&["padding", "same-kernels"], LITTLE, rows, seed), [""; 0], "seed {seed}");
        for noise in [LITTLE, NOISES[0], NOISES[1]] {
            assert_eq!(
                causes(&["padding", "sound"], noise, rows, seed),
                [""; 0],
                "seed {seed}, noise {noise}"
            );
        }
    }
}

#[test]
fn two_causes_are_both_named() {
    for faults in [["shift", "temperature"], ["mask", "rows"], ["unscored", "top-p"], ["rows", "raw"]] {
        let mut expected: Vec<&str> = faults
            .map(|fault| match fault {
                "raw" => "temperature",
                "top-p" => "truncation",
                other => other,
            })
            .into();
        for (seed, noise) in [(4, NOISES[0]), (5, NOISES[1])] {
            let mut found = causes(&faults, noise, 24, seed);
            found.sort();
            expected.sort_unstable();
            assert_eq!(found, expected, "seed {seed}");
        }
    }
}

/// Experts of both sides of one token: two of six in each of three layers, by a score that rounding moves. `fault` sends them elsewhere.
fn routed(fault: &str, random: &mut Random) -> [(Vec<u16>, Vec<f32>); 2] {
    let mut sides = [(Vec::new(), Vec::new()), (Vec::new(), Vec::new())];
    for layer in 0..3 {
        let scores: Vec<f64> = (0..6).map(|_| random.uniform()).collect();
        for (side, (experts, margins)) in sides.iter_mut().enumerate() {
            let mut moved: Vec<(f64, u16)> = scores
                .iter()
                .zip(0..)
                .map(|(score, expert)| (score + 0.004 * random.normal(), expert))
                .collect();
            moved.sort_by(|a, b| b.0.total_cmp(&a.0));
            let chosen = moved.iter().map(|score| score.1).take(2);
            experts.extend(chosen.map(|expert| match (fault, side, layer) {
                ("rolled", 1, 1) => (expert + 1) % 6,
                ("weights", 1, _) if scores[0] > 0.6 => (expert + 1) % 6,
                ("ties", 1, _) if moved[1].0 - moved[2].0 < 0.01 && expert == moved[1].1 => moved[2].1,
                ("far", 1, 1) if expert == 1 => 6,
                // Half of the tokens, whichever experts they go to.
                ("far", 1, _) if (1e3 * scores[0]).fract() > 0.5 => expert + 10,
                ("swapped", 1, 2) if expert < 2 => 1 - expert,
                _ => expert,
            }));
            margins.push(narrow(moved[1].0 - moved[2].0));
        }
    }
    sides
}

/// Gives all tokens such experts, and returns for each whether both sides have the same.
fn with_routes(table: &mut Table, fault: &str, margins: bool, random: &mut Random) -> Vec<bool> {
    let count = table.tokens.len();
    let give = |place: usize| {
        let [ours, theirs] = routed(fault, random);
        let route = |(experts, sure): &(Vec<u16>, Vec<f32>), set: &mut crate::routes::Routes| {
            let margins = if margins { &sure[..] } else { &[] };
            set.set(place, &crate::routes::Route { layers: 3, experts, margins }).unwrap();
        };
        route(&ours, &mut table.tokens.rollout_routes);
        route(&theirs, &mut table.tokens.trainer_routes);
        let sets = |experts: &[u16]| -> Vec<Vec<u16>> {
            experts.chunks(2).map(|pair| vec![pair[0].min(pair[1]), pair[0].max(pair[1])]).collect()
        };
        sets(&ours.0) == sets(&theirs.0)
    };
    (0..count).map(give).collect()
}

/// Returns the causes and notes of a pair whose tokens have such experts, and which is sound otherwise.
fn causes_of_routes(fault: &str, margins: bool, seed: u64) -> (Vec<String>, Vec<String>, String) {
    let mut random = Random(seed);
    let weights = if matches!(fault, "weights" | "far") { &["weights"][..] } else { &[] };
    let mut table = table(weights, NOISES[1], 24, seed);
    with_routes(&mut table, fault, margins, &mut random);
    let joined = Joined::of_one(table);
    let explained = explain(&joined, 0..24, (None, None), &RolloutOptions::default());
    let names = explained.findings.iter().map(|finding| finding.cause.name().to_owned()).collect();
    let evidence = explained.findings.first().map_or(String::new(), |finding| finding.evidence.clone());
    (names, explained.notes, evidence)
}

#[test]
fn flips_at_ties_are_noise_and_others_are_named() {
    for seed in 0..20 {
        for margins in [true, false] {
            let (found, notes, _) = causes_of_routes("", margins, seed);
            assert_eq!(found, [""; 0], "seed {seed}");
            assert!(
                notes.iter().any(|note| note.contains("choices of experts differ by rounding")),
                "{notes:?}"
            );
        }
    }
    // Among two of six experts, one that is exchanged often comes with its partner, so that it is not lost in all tokens.
    for (fault, router) in [("rolled", "router 1"), ("swapped", "router 2")] {
        let (found, _, evidence) = causes_of_routes(fault, true, 7);
        assert_eq!(found, ["routing"], "{fault}");
        assert!(evidence.contains(router) && evidence.contains("margins above the median"), "{evidence}");
    }
    // Other weights send four in ten tokens elsewhere, and the rest differs as much. Weights that are further off leave an expert none of its tokens,
    // behind a router that chooses otherwise as well.
    for (fault, seed) in (0..10).flat_map(|seed| [("weights", seed), ("far", seed)]) {
        assert_eq!(causes_of_routes(fault, true, seed).0, ["weights"], "{fault}, seed {seed}");
    }
}

/// Returns the causes of a pair that differs behind tokens with other experts at ties, and less behind the others: by as much everywhere, or by
/// what `grows` with the position.
fn causes_behind_ties(grows: bool, seed: u64) -> Vec<String> {
    let mut random = Random(seed);
    let mut table = table(&[], NOISES[1], 24, seed);
    let same = with_routes(&mut table, "ties", true, &mut random);
    for place in 1..table.tokens.len() {
        let grown = if grows { f64::from(table.tokens.positions[place]) / 40.0 } else { 1.0 };
        let size = if same[place - 1] { 0.015 * grown } else { 0.6 * grown.min(1.0) };
        let moved = f64::from(table.tokens.rollout[place]) + size * random.normal();
        table.tokens.trainer[place] = narrow(moved.min(-1e-3));
    }
    let explained = explain(&Joined::of_one(table), 0..24, (None, None), &RolloutOptions::default());
    explained.findings.iter().map(|finding| finding.cause.name().to_owned()).collect()
}

#[test]
fn flips_at_ties_are_named_unless_the_error_grows_with_the_position() {
    for seed in 0..10 {
        assert_eq!(causes_behind_ties(false, seed), ["routing"], "seed {seed}");
        assert_eq!(causes_behind_ties(true, seed), ["position"], "seed {seed}");
    }
}

#[test]
fn four_rows_in_order_of_their_padding_are_chance() {
    let [few, many] = [4.0, 12.0].map(|rows| crate::measure::chance_of_correlation(1.0, rows, 0.0));
    assert!((few - 1.0 / 24.0).abs() < 1e-12 && many < 1e-8, "{few} {many}");
}

#[test]
fn a_quantised_pass_that_is_closer_is_named_and_another_is_not() {
    // In float32, roundings that flip leave a twentieth: that is no other cause.
    let float32 = RolloutOptions { precision: Some(Precision::Float32), ..RolloutOptions::default() };
    for (seed, is_quantised, left, noise, options) in [
        (1, true, 0.4, 0.05, RolloutOptions::default()),
        (2, false, 1.0, 0.05, RolloutOptions::default()),
        (3, true, 0.05, 0.0, float32),
    ] {
        let table = table(&["weights"], NOISES[1], 24, seed);
        let (mut second, mut random) = (table.clone(), Random(seed));
        for (trainer, rollout) in second.tokens.trainer.iter_mut().zip(&table.tokens.rollout) {
            *trainer = rollout + narrow(left) * (*trainer - rollout) + narrow(noise * random.normal());
        }
        let joined = Joined::of_one(table);
        let explained = explain(&joined, 0..24, (None, Some(&second)), &options);
        let found: Vec<&str> = explained.findings.iter().map(|finding| finding.cause.name()).collect();
        let expected = match (is_quantised, left < 0.1) {
            (true, true) => &["quantized"][..],
            (true, false) => &["quantized", "weights"],
            _ => &["weights"],
        };
        assert_eq!(found, expected, "{:?}", explained.notes);
    }
}

#[test]
fn equal_contexts_show_the_noise_of_each_side() {
    let mut builder = Builder::default();
    for (row, (rollout, trainer)) in [(-1.0, -1.25), (-1.5, -1.25), (-1.0, -1.25)].into_iter().enumerate() {
        let named = Sample {
            step: 0,
            name: row.to_string().into(),
            named: true,
            range: 0..0,
            padding: None,
            version: None,
        };
        builder.begin(named);
        // The third sample has another prompt.
        builder.token(Token {
            id: 7 + u32::from(row == 2),
            position: 0,
            rollout: None,
            trainer: None,
            counted: false,
        });
        builder.token(Token {
            id: 9,
            position: 1,
            rollout: Some(rollout),
            trainer: Some(trainer),
            counted: true,
        });
    }
    let joined = Joined::of_one(builder.finish().unwrap());
    let notes = explain(&joined, 0..3, (None, None), &RolloutOptions::default()).notes;
    assert!(notes[0].contains("(of one context) lie 5.00e-1 apart"), "{notes:?}");
    assert!(notes[0].contains("and 0.00e0 in the trainer"), "{notes:?}");
}
