//! How fast tensors are digested for packs of config-check, against reading the same memory, with two threads each.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use probe::dump::{DType, TensorRef};
use probe::measure::{DigestContent, digest};
use rayon::iter::ParallelIterator;
use rayon::slice::ParallelSlice;

/// Far more than any cache holds.
const BYTES: usize = 512 << 20;

/// Bytes that one thread reads at a time.
const READ: usize = 1 << 20;

fn digests(criterion: &mut Criterion) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("two threads");
    // Values between 0.5 and 2 of either sign in both types: the exponent's upper bits lie in the same place.
    let bytes: Vec<u8> = (0_u64..BYTES as u64 / 8)
        .flat_map(|index| {
            let word = index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            ((word & 0x80ff_80ff_80ff_80ff) | 0x3f00_3f00_3f00_3f00).to_le_bytes()
        })
        .collect();
    let mut group = criterion.benchmark_group("digest");
    group.throughput(Throughput::Bytes(BYTES as u64)).sample_size(10);
    group.bench_function("read", |bencher| {
        let sum = |block: &[u8]| {
            block
                .as_chunks::<8>()
                .0
                .iter()
                .fold(0_u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)))
        };
        bencher.iter(|| pool.install(|| black_box(&bytes).par_chunks(READ).map(sum).sum::<u64>()));
    });
    let contents = [
        ("hash and statistics", DigestContent::default()),
        ("with unordered hash", DigestContent { unordered: true, ..DigestContent::default() }),
        ("all", DigestContent { sketch: true, unordered: true, casts: true }),
    ];
    for dtype in [DType::F32, DType::Bf16] {
        let shape = [BYTES / dtype.size()];
        let tensor = TensorRef::strided(&bytes, dtype, &shape, &[1], 0).expect("a layout");
        for (name, content) in contents {
            group.bench_function(format!("{dtype} {name}"), |bencher| {
                bencher.iter(|| pool.install(|| digest(black_box(tensor), content)));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, digests);
criterion_main!(benches);
