// Measures the tensors of a call in one launch: statistics, kinds of elements and lanes of the sketch; small tensors are copied.
//
// Compiled by NVRTC when it is first wanted, without any header; python/src/cuda launches it. Sums are binary64, in an order that the sizes
// alone decide, so that a tensor has the same numbers every time and on every card. The tests compile this file for the host
// (tests/cuda/host_driver.cpp), with one thread a thread.
//
// Several blocks share a tensor, each a run of rows of 251 elements, and each thread of a block has one lane of the sketch: element i is in
// lane i mod 251. The last block of sixteen to end joins what they found, and the last of those the tensor's.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define LANES 251
#define THREADS 256
// Tensors of one launch, and dimensions of each, after those that follow one another in memory are joined.
#define ITEMS 32
#define DIMENSIONS 5
// Blocks whose results are joined at once.
#define GROUP 16
// Counts of ended blocks that a tensor has: one for itself, and one for each group.
#define COUNTERS 33
// Words of 32 signs, after which they come again.
#define SIGNS (1u << 19)

enum Kind { F32 = 0, F16 = 1, BF16 = 2, COPY1 = 3, COPY2 = 4, COPY4 = 5, COPY8 = 6, COPY16 = 7 };

// One tensor. The host fills these: python/src/cuda/batch.rs has the same layout.
struct Item {
    const u8 *data;
    u8 *row;
    u64 count;
    long long strides[DIMENSIONS];
    u32 sizes[DIMENSIONS];
    // The first of its blocks, and how many they are.
    u32 first, blocks;
    u8 kind, dims;
    u16 spare;
};

struct Batch {
    const u32 *signs;
    struct Partial *partials;
    u32 *counters;
    u32 items, sketch;
    Item item[ITEMS];
};

// What some elements have come to.
struct Numbers {
    double sum, squares;
    // Of all finite elements, sentinels too.
    double least, greatest;
    u64 zeros, nan, positive, negative, sentinels;
};

// What a block has found.
struct Partial {
    Numbers numbers;
    double lanes[LANES];
};

// What is fetched of a tensor.
struct Row {
    Numbers numbers;
    float lanes[LANES];
};

__device__ inline float bits_to_float(u32 bits) {
    union { u32 bits; float number; } both;
    both.bits = bits;
    return both.number;
}

__device__ inline u32 float_to_bits(float number) {
    union { u32 bits; float number; } both;
    both.number = number;
    return both.bits;
}

#ifndef HOST
__device__ inline float half_to_float(u16 half) {
    float number;
    asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(half));
    return number;
}
#else
static float half_to_float(u32 half) {
    const u32 sign = (half & 0x8000u) << 16, rest = half & 0x7fffu;
    // 2^-24, the least number of binary16, is exact in binary32, and so is each of its multiples.
    if (rest < 0x0400u) return bits_to_float(sign | float_to_bits((float)rest * 5.9604644775390625e-8f));
    if (rest >= 0x7c00u) return bits_to_float(sign | 0x7f800000u | ((rest & 0x3ffu) << 13));
    return bits_to_float(sign | ((rest << 13) + (112u << 23)));
}
#endif

template <int KIND> __device__ inline float load(const u8 *data, long long at) {
    if (KIND == F32) return ((const float *)data)[at];
    const u16 bits = ((const u16 *)data)[at];
    return KIND == BF16 ? bits_to_float((u32)bits << 16) : half_to_float(bits);
}

// Where element `index` in row-major order lies.
__device__ inline long long place_of(const Item &item, u64 index) {
    if (item.dims == 1) return (long long)index * item.strides[0];
    long long at = 0;
    if (item.count <= 0xffffffffull) {
        u32 rest = (u32)index;
        for (int dim = item.dims - 1; dim > 0; dim--) {
            const u32 whole = rest / item.sizes[dim];
            at += (long long)(rest - whole * item.sizes[dim]) * item.strides[dim];
            rest = whole;
        }
        return at + (long long)rest * item.strides[0];
    }
    for (int dim = item.dims - 1; dim > 0; dim--) {
        const u64 whole = index / item.sizes[dim];
        at += (long long)(index - whole * item.sizes[dim]) * item.strides[dim];
        index = whole;
    }
    return at + (long long)index * item.strides[0];
}

// 1, or -1 where bit 31 of `sign` is set.
__device__ inline double one_with(u32 sign) {
#ifndef HOST
    return __hiloint2double((int)((sign & 0x80000000u) | 0x3ff00000u), 0);
#else
    return sign >> 31 ? -1.0 : 1.0;
#endif
}

// Counts a number that is 0.
__device__ inline void count_zero(u32 &zeros, float value) {
#ifndef HOST
    asm("{ .reg .pred is; setp.eq.f32 is, %1, 0f00000000; @is add.u32 %0, %0, 1; }" : "+r"(zeros) : "f"(value));
#else
    zeros += value == 0.0f;
#endif
}

// What a thread has met.
struct Met {
    double lane, sum, squares;
    float least, greatest;
    u32 zeros, nan, positive, negative, sentinels;
};

// Elements of this size and beyond are no ordinary numbers: from 2^100, or the greatest number of binary16, 65504.
template <int KIND> __device__ constexpr u32 beyond() { return KIND == F16 ? 0x477fe000u : 0x71800000u; }

// Bit 31 says whether an element is negated in the sketch; the others are anything. In the table the bits of a word come from the highest on.
__device__ inline u32 sign_of(const u32 *signs, u32 index) { return signs[(index >> 5) & (SIGNS - 1)] << (index & 31u); }

template <int KIND> __device__ inline void meet(Met &met, float value, u32 sign) {
    const u32 size = float_to_bits(value) & 0x7fffffffu;
    if (size >= 0x7f800000u) {
        met.nan += size > 0x7f800000u;
        met.positive += size == 0x7f800000u && value > 0.0f;
        met.negative += size == 0x7f800000u && value < 0.0f;
        return;
    }
    met.zeros += size == 0;
    met.least = value < met.least ? value : met.least;
    met.greatest = value > met.greatest ? value : met.greatest;
    const bool absent = KIND == F16 ? size == beyond<F16>() : size >= beyond<KIND>();
    met.sentinels += absent;
    const double wide = absent ? 0.0 : (double)value;
    met.sum += wide;
    met.squares += wide * wide;
    met.lane += sign >> 31 ? -wide : wide;
}

// Rows that a thread has on their way at once.
#define AT_ONCE 4

// Elements of one lane, and the words that say which are negated.
struct Some {
    float values[AT_ONCE];
    u32 signs[AT_ONCE];
};

// Fetches elements from `index` on, a row apart.
template <int KIND> __device__ inline void fetch(Some &some, const u8 *data, const u32 *signs, u64 index) {
#pragma unroll
    for (u32 step = 0; step < AT_ONCE; step++) some.values[step] = load<KIND>(data, (long long)index + step * LANES);
#pragma unroll
    for (u32 step = 0; step < AT_ONCE; step++) some.signs[step] = sign_of(signs, (u32)index + step * LANES);
}

template <int KIND> __device__ inline void meet_all(Met &met, const Some &some) {
    u32 largest = 0;
#pragma unroll
    for (u32 step = 0; step < AT_ONCE; step++) {
        const u32 size = float_to_bits(some.values[step]) & 0x7fffffffu;
        largest = size > largest ? size : largest;
    }
    if (largest < beyond<KIND>()) {
#pragma unroll
        for (u32 step = 0; step < AT_ONCE; step++) {
            const float value = some.values[step];
            count_zero(met.zeros, value);
            met.least = fminf(met.least, value);
            met.greatest = fmaxf(met.greatest, value);
            const double wide = (double)value;
            met.sum += wide;
            met.squares += wide * wide;
            met.lane += wide * one_with(some.signs[step]);
        }
    } else {
#pragma unroll
        for (u32 step = 0; step < AT_ONCE; step++) meet<KIND>(met, some.values[step], some.signs[step]);
    }
}

// Rows `row` to `end` of a tensor, in lane `lane`. Where one element follows the other in memory, the next ones are fetched while some are met.
template <int KIND> __device__ void rows(Met &met, const Item &item, const u32 *signs, u64 row, u64 end, u32 lane) {
    const bool plain = item.dims == 1 && item.strides[0] == 1;
    u64 index = row * LANES + lane;
    // The last row may not be whole.
    const u64 whole = item.count / LANES < end ? item.count / LANES : end;
    if (plain && row + AT_ONCE <= whole) {
        Some some, next;
        fetch<KIND>(some, item.data, signs, index);
        for (; row + 2 * AT_ONCE <= whole; row += AT_ONCE, index += AT_ONCE * LANES) {
            fetch<KIND>(next, item.data, signs, index + AT_ONCE * LANES);
            meet_all<KIND>(met, some);
            some = next;
        }
        meet_all<KIND>(met, some);
        row += AT_ONCE, index += AT_ONCE * LANES;
    }
    for (; row < end && index < item.count; row++, index += LANES)
        meet<KIND>(met, load<KIND>(item.data, plain ? (long long)index : place_of(item, index)), sign_of(signs, (u32)index));
}

__device__ inline double lesser(double a, double b) { return b < a ? b : a; }
__device__ inline double larger(double a, double b) { return b > a ? b : a; }

__device__ inline Numbers nothing() {
    const double infinity = bits_to_float(0x7f800000u);
    const Numbers numbers = {0.0, 0.0, infinity, -infinity, 0, 0, 0, 0, 0};
    return numbers;
}

// Numbers that another block may have written: read where all blocks write.
__device__ inline Numbers seen(const volatile Numbers &numbers) {
    const Numbers found = {
        numbers.sum, numbers.squares,  numbers.least,    numbers.greatest, numbers.zeros,
        numbers.nan, numbers.positive, numbers.negative, numbers.sentinels,
    };
    return found;
}

// Adds `other`, which comes behind.
__device__ inline void join(Numbers &into, const Numbers &other) {
    into.sum += other.sum;
    into.squares += other.squares;
    into.least = lesser(into.least, other.least);
    into.greatest = larger(into.greatest, other.greatest);
    into.zeros += other.zeros;
    into.nan += other.nan;
    into.positive += other.positive;
    into.negative += other.negative;
    into.sentinels += other.sentinels;
}

// Threads of a warp, which can hand numbers to one another.
#define WARP 32

#ifndef HOST
// What the thread `by` places behind in the warp has.
__device__ inline Numbers handed_down(const Numbers &numbers, u32 by) {
    const u32 all = 0xffffffffu;
    const Numbers found = {
        __shfl_down_sync(all, numbers.sum, by),      __shfl_down_sync(all, numbers.squares, by),  __shfl_down_sync(all, numbers.least, by),
        __shfl_down_sync(all, numbers.greatest, by), __shfl_down_sync(all, numbers.zeros, by),    __shfl_down_sync(all, numbers.nan, by),
        __shfl_down_sync(all, numbers.positive, by), __shfl_down_sync(all, numbers.negative, by), __shfl_down_sync(all, numbers.sentinels, by),
    };
    return found;
}
#endif

// Adds what the threads of a warp have met to that of its first.
__device__ inline void fold(Numbers &numbers) {
    for (u32 half = WARP / 2; half > 0; half /= 2) join(numbers, handed_down(numbers, half));
}

// Joins `count` partials, `step` apart, in their order, into the first, or into `row`; by all threads of a block. At most as many as a warp has
// threads.
__device__ void join_all(Partial *first, u32 count, u32 step, Row *row, u32 sketch) {
    const u32 thread = threadIdx.x;
    if (sketch && thread < LANES) {
        double total = 0.0;
        // All of them are on their way at once.
#pragma unroll 16
        for (u32 number = 0; number < count; number++) total += *(volatile double *)&first[number * step].lanes[thread];
        if (row) {
            const float stored = (float)total;
            row->lanes[thread] = (float_to_bits(stored) & 0x7f800000u) == 0x7f800000u ? bits_to_float(0x7fc00000u) : stored;
        } else {
            first->lanes[thread] = total;
        }
    }
    Numbers numbers = thread < count ? seen(first[thread * step].numbers) : nothing();
    fold(numbers);
    if (thread == 0) (row ? row->numbers : first->numbers) = numbers;
}

// Copies the elements of a small tensor in row-major order.
__device__ void copy(const Item &item) {
    const u32 size = 1u << (item.kind - COPY1);
    for (u64 index = threadIdx.x; index < item.count; index += THREADS) {
        const u8 *from = item.data + place_of(item, index) * (long long)size;
        u8 *to = item.row + index * size;
        switch (item.kind) {
        case COPY1: *to = *from; break;
        case COPY2: *(u16 *)to = *(const u16 *)from; break;
        case COPY4: *(u32 *)to = *(const u32 *)from; break;
        case COPY8: *(u64 *)to = *(const u64 *)from; break;
        default: ((u64 *)to)[0] = ((const u64 *)from)[0], ((u64 *)to)[1] = ((const u64 *)from)[1];
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 4) probe_measure(const __grid_constant__ Batch batch) {
    __shared__ Numbers warps[THREADS / WARP];
    __shared__ u32 last;
    u32 number = 0;
    while (number + 1 < batch.items && batch.item[number + 1].first <= blockIdx.x) number++;
    const Item &item = batch.item[number];
    if (item.kind >= COPY1) {
        copy(item);
        return;
    }
    const u32 thread = threadIdx.x, block = blockIdx.x - item.first;
    const u64 all = (item.count + LANES - 1) / LANES, each = (all + item.blocks - 1) / item.blocks;
    const u64 begin = block * each, end = begin + each < all ? begin + each : all;
    const float infinity = bits_to_float(0x7f800000u);
    Met met = {0.0, 0.0, 0.0, infinity, -infinity, 0, 0, 0, 0, 0};
    if (thread < LANES) {
        if (item.kind == F32) rows<F32>(met, item, batch.signs, begin, end, thread);
        else if (item.kind == F16) rows<F16>(met, item, batch.signs, begin, end, thread);
        else rows<BF16>(met, item, batch.signs, begin, end, thread);
    }
    Partial *partials = batch.partials + item.first, *own = partials + block;
    if (batch.sketch && thread < LANES) own->lanes[thread] = met.lane;
    Numbers numbers = {met.sum, met.squares, met.least, met.greatest, met.zeros, met.nan, met.positive, met.negative, met.sentinels};
    fold(numbers);
    if (thread % WARP == 0) warps[thread / WARP] = numbers;
    __syncthreads();
    numbers = thread < THREADS / WARP ? warps[thread] : nothing();
    fold(numbers);
    if (thread == 0) own->numbers = numbers;
    const u32 group = block / GROUP, groups = (item.blocks + GROUP - 1) / GROUP;
    const u32 members = group + 1 < groups ? GROUP : item.blocks - group * GROUP;
    u32 *counters = batch.counters + number * COUNTERS;
    // What was written is seen by whoever sees the count.
    __threadfence();
    __syncthreads();
    if (thread == 0) last = atomicAdd(counters + 1 + group, 1u) == members - 1;
    __syncthreads();
    if (!last) return;
    __threadfence();
    Row *row = (Row *)item.row;
    join_all(partials + group * GROUP, members, 1, groups == 1 ? row : 0, batch.sketch);
    if (thread == 0) counters[1 + group] = 0;
    if (groups == 1) return;
    __threadfence();
    __syncthreads();
    if (thread == 0) last = atomicAdd(counters, 1u) == groups - 1;
    __syncthreads();
    if (!last) return;
    __threadfence();
    join_all(partials, groups, GROUP, row, batch.sketch);
    if (thread == 0) counters[0] = 0;
}

// The output function of splitmix64.
__device__ inline u64 mix(u64 z) {
    z += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

__device__ inline u32 reversed(u32 bits) {
    u32 found = 0;
    for (u32 place = 0; place < 32; place++) found |= (bits >> place & 1u) << (31 - place);
    return found;
}

// Fills the table of signs.
extern "C" __global__ void probe_signs(u32 *signs) {
    const u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= SIGNS / 2) return;
    const u64 bits = mix(at);
    signs[2 * at] = reversed((u32)bits);
    signs[2 * at + 1] = reversed((u32)(bits >> 32));
}
