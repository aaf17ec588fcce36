//! Alignment of long runs.

use std::time::Instant;

use super::*;

/// Returns a run of many ops of few kinds, without those that `left_out` selects.
fn long(count: u64, left_out: impl Fn(u64) -> bool, statistics: bool, noise: f64) -> Run {
    let mut run = Run::new(noise);
    run.statistics = statistics;
    let kinds =
        ["view", "mm", "add", "mul", "t", "expand", "clone", "sum", "div", "native_layer_norm", "gelu"];
    let mut state = 1_u64;
    for at in 0..count {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let kind = (state >> 33) as usize % kinds.len();
        let shape: &[u64] = if state >> 40 & 1 == 0 { &[8, 64] } else { &[64, 64] };
        if !left_out(at) {
            let input = COMPUTED + at.saturating_sub(state >> 50 & 3);
            run.call(&format!("Aten.{}", kinds[kind]), &[(input, shape)], &[(COMPUTED + at + 1, shape)]);
        }
    }
    run
}

#[test]
fn a_hundred_thousand_ops_are_aligned_in_a_moment() {
    for (statistics, count) in [(true, 100_000), (false, 100_000)] {
        let (b, c) = (
            long(count, |at| at % 100 == 17, statistics, 0.0).rank(),
            long(count, |at| at % 100 == 68, statistics, 1e-4).rank(),
        );
        let begun = Instant::now();
        let Alignment { ops, .. } = align(&b, &c, &Mapping::default());
        let groups = substitutions(&b, &c, &ops);
        let took = begun.elapsed();
        let right = |pair: &&OpPair| match pair.ops {
            // Both number their common ops alike, except for those that each left out before them.
            Paired::Both(x, y) => original(x as u64, 17) == original(y as u64, 68),
            _ => false,
        };
        let found = ops.iter().filter(right).count();
        // Shapes alone cannot tell which of two equal neighbours is missing.
        let least = if statistics { 0.99 } else { 0.95 } * count as f64 * 0.98;
        assert!(found as f64 >= least, "{found} of {count}, statistics {statistics}");
        assert!(!groups.is_empty());
        // An optimised build takes a tenth of this; the test guards against quadratic growth.
        assert!(took.as_secs() < 20, "{took:?}");
    }
}

/// Returns the original position of the op at `at` if of every hundred ops the one numbered `left_out` is
/// missing.
fn original(at: u64, left_out: u64) -> u64 {
    at / 99 * 100 + at % 99 + u64::from(at % 99 >= left_out)
}
