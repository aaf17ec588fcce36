//! Speed of the metrics of a pair, beside the memory read limit measured in the same minute.
//!
//! `cargo bench --bench metrics` runs everything. `benches/README.md` says how to read the numbers; the table of
//! ratios at the end is the result, single figures depend on what else the machine does.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use probe::dump::{DType, TensorRef};
use probe::measure::compare;
use rayon::ThreadPool;
use rayon::iter::ParallelIterator;
use rayon::slice::ParallelSlice;

/// Bytes of one side: both sides together are several times any cache.
const SIDE: usize = 128 << 20;

/// Bytes of one side of a piece: few enough elements to stay on the calling thread.
const PIECE: usize = 1 << 20;

/// Rounds of the paired table.
const ROUNDS: usize = 9;

/// A pair of tensors and what it shows.
struct Case {
    name: &'static str,
    dtype: DType,
    b: Vec<u8>,
    c: Vec<u8>,
}

impl Case {
    /// Fills both sides from `element(random, index)`, which yields the bytes of baseline and candidate.
    fn new<const N: usize>(
        name: &'static str,
        dtype: DType,
        element: impl Fn(f64, f64, usize) -> [[u8; N]; 2],
    ) -> Self {
        let (mut b, mut c) = (Vec::with_capacity(SIDE), Vec::with_capacity(SIDE));
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / f64::from(1 << 23) - 1.0
        };
        for index in 0..SIDE / N {
            let value = (next() + next() + next()) * 2.0;
            let [x, y] = element(value, value + (next() + next()) * 1e-3 * value, index);
            b.extend_from_slice(&x);
            c.extend_from_slice(&y);
        }
        Self { name, dtype, b, c }
    }

    fn bytes(&self) -> usize {
        self.b.len() + self.c.len()
    }

    fn run(&self) {
        let shape = [self.b.len() / self.dtype.size()];
        let tensor = |bytes| TensorRef::strided(bytes, self.dtype, &shape, &[1], 0).expect("one dimension");
        black_box(compare(tensor(black_box(&self.b)), tensor(black_box(&self.c))));
    }
}

fn cases() -> Vec<Case> {
    #[expect(clippy::cast_possible_truncation, reason = "rounds to the type under test")]
    let f32s = |b: f64, c: f64| [b as f32, c as f32];
    let f32_bytes = move |b, c| f32s(b, c).map(f32::to_le_bytes);
    vec![
        Case::new("f32", DType::F32, move |b, c, _| f32_bytes(b, c)),
        Case::new("bf16", DType::Bf16, move |b, c, _| {
            f32s(b, c).map(|x| half::bf16::from_f32(x).to_le_bytes())
        }),
        Case::new("f16", DType::F16, move |b, c, _| f32s(b, c).map(|x| half::f16::from_f32(x).to_le_bytes())),
        Case::new("f64", DType::F64, |b, c, _| [b, c].map(f64::to_le_bytes)),
        #[expect(clippy::cast_possible_truncation, reason = "small numbers")]
        Case::new("i32", DType::I32, |b, c, _| [b, c].map(|x| ((x * 1e6) as i32).to_le_bytes())),
        #[expect(clippy::cast_possible_truncation, reason = "small numbers")]
        Case::new("i64", DType::I64, |b, c, _| [b, c].map(|x| ((x * 1e6) as i64).to_le_bytes())),
        Case::new("f32 identical", DType::F32, move |b, _, _| f32_bytes(b, b)),
        Case::new("f32 a third zeros", DType::F32, move |b, c, i| {
            if i % 3 == 0 { f32_bytes(0.0, 0.0) } else { f32_bytes(b, c) }
        }),
        // Noise near zero, as in real tensors.
        Case::new("f32 some signs unlike", DType::F32, move |b, c, i| {
            f32_bytes(b, if i % 1024 == 77 { -c } else { c })
        }),
        Case::new("f32 NaN in every block", DType::F32, move |b, c, i| {
            f32_bytes(if i % 1024 == 77 { f64::NAN } else { b }, c)
        }),
    ]
}

/// Reads every byte once, as fast as the machine can.
fn read(bytes: &[u8]) -> u64 {
    let mut sums = [0_u64; 16];
    let (words, _) = bytes.as_chunks::<128>();
    for group in words {
        let (parts, _) = group.as_chunks::<8>();
        for (sum, &part) in sums.iter_mut().zip(parts) {
            *sum ^= u64::from_le_bytes(part);
        }
    }
    sums.iter().fold(0, |all, sum| all ^ sum)
}

fn read_parallel(pool: &ThreadPool, bytes: &[u8]) -> u64 {
    pool.install(|| bytes.par_chunks(1 << 20).map(read).reduce(|| 0, |a, b| a ^ b))
}

fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Speed and limit, with one thread and with two.
type Round = [(f64, f64); 2];

/// GB/s of the metrics, and of reading the same memory, on threads that take the pieces of 1 MiB a side in turns: by each thread's
/// median piece, so that what other processes take away shows in few of them. A pass over all pieces is several times the caches, so every
/// piece comes from memory.
fn by_pieces(case: &Case, threads: usize) -> (f64, f64) {
    let size = case.dtype.size();
    let shape = [PIECE / size];
    let measure = |b: &[u8], c: &[u8]| {
        let tensor = |bytes| TensorRef::strided(bytes, case.dtype, &shape, &[1], 0).expect("one dimension");
        black_box(compare(tensor(black_box(b)), tensor(black_box(c))));
    };
    let speed = |work: &(dyn Fn(&[u8], &[u8]) + Sync)| {
        let of_thread = |first| {
            let pieces =
                case.b.chunks_exact(PIECE).zip(case.c.chunks_exact(PIECE)).skip(first).step_by(threads);
            2e-9 * PIECE as f64 / median(pieces.map(|(b, c)| seconds(|| work(b, c))).collect())
        };
        std::thread::scope(|scope| {
            let started: Vec<_> = (0..threads).map(|first| scope.spawn(move || of_thread(first))).collect();
            started.into_iter().map(|thread| thread.join().expect("a thread that ends")).sum::<f64>()
        })
    };
    let limit = speed(&|b, c| _ = black_box(read(black_box(b)) ^ read(black_box(c))));
    (speed(&measure), limit)
}

/// The paired table: every round takes limits and speeds one right after the other.
#[expect(clippy::print_stdout, reason = "the result of the benchmark")]
fn table(cases: &[Case]) {
    println!(
        "GB/s of both sides, by the median piece; ratios to the limit of one thread: median (best) of {ROUNDS} rounds"
    );
    println!(
        "{:<24} {:>8} {:>12} {:>8} {:>12} {:>8} {:>8}",
        "case", "1T", "ratio", "2T", "ratio", "limit 1T", "limit 2T"
    );
    for case in cases {
        let rounds: Vec<Round> =
            (0..ROUNDS).map(|_| [1, 2].map(|threads| by_pieces(case, threads))).collect();
        let middle = |value: &dyn Fn(&Round) -> f64| median(rounds.iter().map(value).collect());
        let show = |threads: usize| {
            let ratio = |round: &Round| round[threads - 1].0 / round[0].1;
            let best = rounds.iter().map(ratio).fold(0.0, f64::max);
            format!("{:>8.1} {:>5.2} ({best:.2})", middle(&|round| round[threads - 1].0), middle(&ratio))
        };
        let limit = |threads: usize| middle(&|round| round[threads - 1].1);
        println!("{:<24} {} {} {:>8.1} {:>8.1}", case.name, show(1), show(2), limit(1), limit(2));
    }
}

fn main() {
    let pools = [1, 2].map(|threads| {
        (threads, rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool of threads"))
    });
    let cases = cases();
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    for (threads, pool) in &pools {
        let mut group = criterion.benchmark_group(format!("{threads} threads"));
        let limit = &cases[0];
        group.throughput(Throughput::Bytes(limit.b.len() as u64));
        group.bench_function("read limit", |bencher| bencher.iter(|| read_parallel(pool, &limit.b)));
        for case in &cases {
            group.throughput(Throughput::Bytes(case.bytes() as u64));
            group.bench_function(case.name, |bencher| bencher.iter(|| pool.install(|| case.run())));
        }
        group.finish();
    }
    criterion.final_summary();
    // `cargo test --benches` and `--list` want no table.
    if std::env::args().any(|argument| argument == "--bench") {
        table(&cases);
    }
}
