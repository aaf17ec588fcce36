// Measures the tensors of a call in one launch: statistics, kinds of elements and lanes of the sketch; small tensors are copied.
//
// Compiled by NVRTC when it is first wanted, without any header; python/src/cuda launches it. Sums are binary64, in an order that the sizes
// alone decide, so that a tensor has the same numbers every time and on every card. The tests compile this file for the host
// (tests/cuda/host_driver.cpp), with one thread a thread.
//
// Element i is in lane i mod 251 of the sketch. A thread takes 16 bytes at once, which are elements of four or eight lanes, and goes on 251 such
// vectors further: in the same lanes. Several blocks share a tensor, each a run of rows of 251 vectors. The last block of a group to end joins
// what its blocks found, and the last of those the tensor's.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define LANES 251
#define THREADS 256
// Blocks that a multiprocessor has room for: more would leave too few registers for what a thread has on its way.
#define BLOCKS 2
// Tensors of one launch, and dimensions of each, after those that follow one another in memory are joined.
#define ITEMS 32
#define DIMENSIONS 5
// Blocks whose results are joined at once.
#define GROUP 32
// Counts of ended blocks that a tensor has: one for itself, and one for each group.
#define COUNTERS 9
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

// Elements of 16 bytes.
template <int KIND> __device__ constexpr u32 width() { return KIND == F32 ? 4 : 8; }

template <int KIND> __device__ inline float load(const u8 *data, long long at) {
    if (KIND == F32) return ((const float *)data)[at];
    const u16 bits = ((const u16 *)data)[at];
    return KIND == BF16 ? bits_to_float((u32)bits << 16) : half_to_float(bits);
}

// 16 bytes that follow one another in memory.
struct alignas(16) Vector {
    u32 words[4];
};

// Element `place` of a vector.
template <int KIND> __device__ inline float element(const Vector &vector, u32 place) {
    if (KIND == F32) return bits_to_float(vector.words[place]);
    const u32 word = vector.words[place / 2];
    if (KIND == BF16) return bits_to_float(place % 2 ? word & 0xffff0000u : word << 16);
    return half_to_float((u16)(place % 2 ? word >> 16 : word));
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

// What a thread has met: `lanes` are those of the elements of a vector.
template <int KIND> struct Met {
    double lanes[width<KIND>()];
    double sum, squares;
    float least, greatest;
    u32 zeros, nan, positive, negative, sentinels;
};

// Elements of this size and beyond are no ordinary numbers: from 2^100, or the greatest number of binary16, 65504.
template <int KIND> __device__ constexpr u32 beyond() { return KIND == F16 ? 0x477fe000u : 0x71800000u; }

// Bit 31 says whether an element is negated in the sketch; those below are of the elements behind it. In the table the bits of a word come from the
// highest on.
__device__ inline u32 sign_of(const u32 *signs, u64 index) { return signs[(u32)(index >> 5) & (SIGNS - 1)] << ((u32)index & 31u); }

// Makes the next lane the first one: none is asked for by a number that is not known before.
template <int KIND> __device__ inline void pass(Met<KIND> &met) {
    const double first = met.lanes[0];
#pragma unroll
    for (u32 place = 1; place < width<KIND>(); place++) met.lanes[place - 1] = met.lanes[place];
    met.lanes[width<KIND>() - 1] = first;
}

// Makes the next element of a vector the first one.
template <int KIND> __device__ inline void pass(Vector &vector) {
#pragma unroll
    for (u32 place = 0; place < 4; place++) {
        const u32 next = place < 3 ? vector.words[place + 1] : 0;
        vector.words[place] = KIND == F32 ? next : vector.words[place] >> 16 | next << 16;
    }
}

// Any element, which is in the first lane; the next one is that of the element behind it.
template <int KIND> __device__ inline void meet(Met<KIND> &met, float value, u32 sign) {
    const u32 size = float_to_bits(value) & 0x7fffffffu;
    const bool finite = size < 0x7f800000u, absent = KIND == F16 ? size == beyond<F16>() : size >= beyond<KIND>();
    met.nan += size > 0x7f800000u;
    met.positive += size == 0x7f800000u && value > 0.0f;
    met.negative += size == 0x7f800000u && value < 0.0f;
    met.zeros += size == 0;
    met.sentinels += finite && absent;
    met.least = finite && value < met.least ? value : met.least;
    met.greatest = finite && value > met.greatest ? value : met.greatest;
    const double wide = finite && !absent ? (double)value : 0.0;
    met.sum += wide;
    met.squares += wide * wide;
    met.lanes[0] += sign >> 31 ? -wide : wide;
    pass(met);
}

// The elements of a vector; bit 31 of `signs` is that of the first.
template <int KIND> __device__ inline void meet_all(Met<KIND> &met, Vector &vector, u32 signs) {
    // As large as the largest of them at least, and no number where one is none.
    float all = 0.0f;
#pragma unroll
    for (u32 place = 0; place < width<KIND>(); place++) all += fabsf(element<KIND>(vector, place));
    if (all < bits_to_float(beyond<KIND>())) {
#pragma unroll
        for (u32 place = 0; place < width<KIND>(); place++) {
            const float value = element<KIND>(vector, place);
            count_zero(met.zeros, value);
            met.least = fminf(met.least, value);
            met.greatest = fmaxf(met.greatest, value);
            const double wide = (double)value;
            met.sum += wide;
            met.squares += wide * wide;
            met.lanes[place] += wide * one_with(signs << place);
        }
    } else {
#pragma unroll 1
        for (u32 place = 0; place < width<KIND>(); place++) {
            meet<KIND>(met, element<KIND>(vector, 0), signs << place);
            pass<KIND>(vector);
        }
    }
}

// Vectors that a thread has on their way at once.
#define AT_ONCE 2

// Where the elements of every vector follow one another in memory, and it begins at a multiple of its size.
template <int KIND> __device__ bool in_vectors(const Item &item) {
    constexpr u32 WIDTH = width<KIND>();
    const int last = item.dims - 1;
    bool fits = (u64)item.data % 16 == 0 && item.strides[last] == 1 && (last == 0 || item.sizes[last] % WIDTH == 0);
    for (int dim = 0; dim < last; dim++) fits &= item.strides[dim] % WIDTH == 0;
    return fits;
}

// Vectors of a thread, a row apart, and the words that say which of their elements are negated.
struct Some {
    Vector vectors[AT_ONCE];
    u32 signs[AT_ONCE];
};

// Fetches vectors from number `vector` on. `plain`: one element follows the other in memory.
template <int KIND> __device__ inline void fetch(Some &some, const Item &item, bool plain, const u32 *signs, u64 vector) {
    constexpr u32 WIDTH = width<KIND>();
#pragma unroll
    for (u32 place = 0; place < AT_ONCE; place++) {
        const u64 index = (vector + place * LANES) * WIDTH;
        some.vectors[place] = *(const Vector *)(item.data + (plain ? (long long)index : place_of(item, index)) * (16 / WIDTH));
    }
#pragma unroll
    for (u32 place = 0; place < AT_ONCE; place++) some.signs[place] = sign_of(signs, (vector + place * LANES) * WIDTH);
}

template <int KIND> __device__ inline void meet_all(Met<KIND> &met, Some &some) {
#pragma unroll
    for (u32 place = 0; place < AT_ONCE; place++) meet_all<KIND>(met, some.vectors[place], some.signs[place]);
}

// Rows `row` to `end` of a tensor, of each the vector of this thread. The next ones are fetched while some are met.
template <int KIND> __device__ void rows(Met<KIND> &met, const Item &item, const u32 *signs, u64 row, u64 end, u32 thread) {
    constexpr u32 WIDTH = width<KIND>(), STEP = AT_ONCE * LANES;
    const u64 limit = end * LANES, whole = item.count / WIDTH;
    u64 vector = row * LANES + thread;
    if (in_vectors<KIND>(item)) {
        const u64 stop = whole < limit ? whole : limit;
        const bool plain = item.dims == 1;
        if (vector + STEP - LANES < stop) {
            Some some, next;
            fetch<KIND>(some, item, plain, signs, vector);
            for (bool more = true; more; some = next) {
                vector += STEP;
                more = vector + STEP - LANES < stop;
                if (more) fetch<KIND>(next, item, plain, signs, vector);
                meet_all<KIND>(met, some);
            }
        }
#pragma unroll 1
        for (; vector < stop; vector += LANES) {
            const u64 index = vector * WIDTH;
            Vector one = *(const Vector *)(item.data + (plain ? (long long)index : place_of(item, index)) * (16 / WIDTH));
            meet_all<KIND>(met, one, sign_of(signs, index));
        }
    }
    // One by one: where they lie otherwise, and those behind the last whole vector.
    for (; vector < limit; vector += LANES) {
        const u64 index = vector * WIDTH;
        const u32 words = sign_of(signs, index);
#pragma unroll 1
        for (u32 place = 0; place < WIDTH; place++) {
            if (index + place < item.count) meet<KIND>(met, load<KIND>(item.data, place_of(item, index + place)), words << place);
            else pass(met);
        }
    }
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

// What the threads of a block share.
struct Shared {
    // Of all elements of a row.
    double lanes[LANES * width<BF16>()];
    Numbers warps[THREADS / WARP];
    u32 last;
};

// What a block knows: each thread one lane, and the first thread the numbers.
struct Known {
    Numbers numbers;
    double lane;
};

// Joins `count` partials, `step` apart, in their order; by all threads of a block. At most as many as a warp has threads.
__device__ Known joined(const Partial *first, u32 count, u32 step, u32 sketch) {
    const u32 thread = threadIdx.x;
    Known known = {thread < count ? seen(first[thread * step].numbers) : nothing(), 0.0};
    if (sketch && thread < LANES) {
        // Many of them are on their way at once.
#pragma unroll 16
        for (u32 number = 0; number < GROUP; number++)
            if (number < count) known.lane += *(const volatile double *)&first[number * step].lanes[thread];
    }
    fold(known.numbers);
    return known;
}

// Leaves what is known of some elements for another block, or of all of them for the host.
__device__ void store(Partial *partial, const Known &known, u32 sketch) {
    const u32 thread = threadIdx.x;
    if (sketch && thread < LANES) partial->lanes[thread] = known.lane;
    if (thread == 0) partial->numbers = known.numbers;
}

__device__ void store(Row *row, const Known &known, u32 sketch) {
    const u32 thread = threadIdx.x;
    if (sketch && thread < LANES) {
        const float stored = (float)known.lane;
        row->lanes[thread] = (float_to_bits(stored) & 0x7f800000u) == 0x7f800000u ? bits_to_float(0x7fc00000u) : stored;
    }
    if (thread == 0) row->numbers = known.numbers;
}

// Says that this block has stored what it knows; true in the last of `members`, which then sees what all of them stored. By all threads: what they
// wrote before the barrier is covered by the fence of the first.
__device__ bool is_last(Shared &shared, u32 *counter, u32 members) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        shared.last = atomicAdd(counter, 1u) == members - 1;
        __threadfence();
        // For the next launch.
        if (shared.last) *counter = 0;
    }
    __syncthreads();
    return shared.last;
}

// Measures rows `row` to `end` of a tensor; by all threads of a block.
template <int KIND> __device__ Known measured(Shared &shared, const Item &item, const Batch &batch, u64 row, u64 end) {
    constexpr u32 WIDTH = width<KIND>();
    const u32 thread = threadIdx.x;
    const float infinity = bits_to_float(0x7f800000u);
    Met<KIND> met = {{}, 0.0, 0.0, infinity, -infinity, 0, 0, 0, 0, 0};
    if (thread < LANES) {
        rows<KIND>(met, item, batch.signs, row, end, thread);
#pragma unroll
        for (u32 place = 0; place < WIDTH; place++) shared.lanes[thread * WIDTH + place] = met.lanes[place];
    }
    Numbers numbers = {met.sum, met.squares, met.least, met.greatest, met.zeros, met.nan, met.positive, met.negative, met.sentinels};
    fold(numbers);
    if (thread % WARP == 0) shared.warps[thread / WARP] = numbers;
    __syncthreads();
    Known known = {thread < THREADS / WARP ? shared.warps[thread] : nothing(), 0.0};
    if (thread < LANES) {
#pragma unroll
        for (u32 turn = 0; turn < WIDTH; turn++) known.lane += shared.lanes[turn * LANES + thread];
    }
    fold(known.numbers);
    return known;
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

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) probe_measure(const __grid_constant__ Batch batch) {
    __shared__ Shared shared;
    u32 number = 0;
    while (number + 1 < batch.items && batch.item[number + 1].first <= blockIdx.x) number++;
    const Item &item = batch.item[number];
    if (item.kind >= COPY1) {
        copy(item);
        return;
    }
    const u32 block = blockIdx.x - item.first;
    const u64 row_of_elements = LANES * (item.kind == F32 ? width<F32>() : width<F16>());
    const u64 all = (item.count + row_of_elements - 1) / row_of_elements, each = (all + item.blocks - 1) / item.blocks;
    const u64 begin = block * each, end = begin + each < all ? begin + each : all;
    Known known = item.kind == F32   ? measured<F32>(shared, item, batch, begin, end)
                  : item.kind == F16 ? measured<F16>(shared, item, batch, begin, end)
                                     : measured<BF16>(shared, item, batch, begin, end);
    if (item.blocks > 1) {
        Partial *partials = batch.partials + item.first;
        const u32 group = block / GROUP, groups = (item.blocks + GROUP - 1) / GROUP;
        const u32 members = group + 1 < groups ? GROUP : item.blocks - group * GROUP;
        u32 *counters = batch.counters + number * COUNTERS;
        store(partials + block, known, batch.sketch);
        if (!is_last(shared, counters + 1 + group, members)) return;
        known = joined(partials + group * GROUP, members, 1, batch.sketch);
        if (groups > 1) {
            store(partials + group * GROUP, known, batch.sketch);
            if (!is_last(shared, counters, groups)) return;
            known = joined(partials, groups, GROUP, batch.sketch);
        }
    }
    store((Row *)item.row, known, batch.sketch);
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
