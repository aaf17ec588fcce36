//! Speed of the measurement of one tensor at capture, in cache and from memory, plain and transposed.
//!
//! `cargo bench --bench observe`. `benches/README.md` says how to read the numbers.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use probe::dump::{Content, DType, SketchVersion, TensorRef};
use probe::measure::observe;

/// Parts that are timed by themselves and together.
const CONTENTS: [(&str, Content); 4] = [
    ("statistics", Content::STATISTICS),
    ("hash", Content::HASH),
    ("sketch alone", Content { sketch: Some(SketchVersion::CURRENT), hash: false }),
    ("sketch", Content::SKETCH),
];

/// Ordinary values of `dtype`, `bytes` in all.
#[expect(clippy::cast_possible_truncation, reason = "rounds to the type under test")]
fn values(dtype: DType, bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / f64::from(1 << 23) - 1.0
    };
    std::iter::repeat_with(next)
        .take(bytes / dtype.size())
        .flat_map(|value| match dtype {
            DType::F64 => value.to_le_bytes().to_vec(),
            DType::F32 => (value as f32).to_le_bytes().to_vec(),
            DType::F16 => half::f16::from_f64(value).to_le_bytes().to_vec(),
            DType::Bf16 => half::bf16::from_f64(value).to_le_bytes().to_vec(),
            _ => ((value * 1e6) as i64).to_le_bytes()[..dtype.size()].to_vec(),
        })
        .collect()
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(500))
        .configure_from_args();
    for dtype in [DType::F32, DType::Bf16, DType::F16, DType::F64, DType::I64, DType::I32] {
        let mut group = criterion.benchmark_group(format!("observe {dtype}"));
        for bytes in [4 << 10, 256 << 10, 64 << 20] {
            let data = values(dtype, bytes);
            let shape = [bytes / dtype.size()];
            let tensor = TensorRef::strided(&data, dtype, &shape, &[1], 0).expect("one dimension");
            group.throughput(Throughput::Bytes(bytes as u64));
            for (name, content) in CONTENTS {
                group.bench_function(BenchmarkId::new(name, bytes), |bencher| {
                    bencher.iter(|| observe(black_box(tensor), content));
                });
            }
        }
        group.finish();
    }
    for dtype in [DType::F32, DType::Bf16] {
        let mut group = criterion.benchmark_group(format!("observe {dtype} transposed"));
        for (rows, columns) in [(1024, 256), (1000, 777), (4096, 4096)] {
            let bytes = rows * columns * dtype.size();
            let data = values(dtype, bytes);
            let (shape, strides) = ([rows, columns], [1, rows]);
            let tensor = TensorRef::strided(&data, dtype, &shape, &strides, 0).expect("two dimensions");
            group.throughput(Throughput::Bytes(bytes as u64));
            for (name, content) in CONTENTS {
                group.bench_function(BenchmarkId::new(name, format!("{rows}x{columns}")), |bencher| {
                    bencher.iter(|| observe(black_box(tensor), content));
                });
            }
        }
        group.finish();
    }
    criterion.final_summary();
}
