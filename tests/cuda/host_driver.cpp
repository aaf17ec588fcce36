// The functions of the CUDA driver that probe uses, on the host: the kernel of device_cuda.cu, whose threads take turns.
//
// g++ -std=c++20 -O2 -shared -fPIC -DKERNEL='"…/device_cuda.cu"' host_driver.cpp -o libcuda-host.so
//
// Each thread of a block runs until it waits for the others, or ends. Blocks run one after the other, in an order that changes from launch
// to launch, so that the last to end is not always the same one.
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#define __device__
#define __global__
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(...)

struct Index {
    unsigned x;
};
static Index threadIdx, blockIdx, blockDim;

// A thread of a block, with a stack of its own.
struct Fiber {
    static constexpr std::size_t STACK = 128 << 10;
    ucontext_t context;
    std::unique_ptr<char[]> stack = std::make_unique<char[]>(STACK);
    bool ended;
};
static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static std::function<void()> body;

static void __syncthreads() { swapcontext(&fibers[threadIdx.x].context, &scheduler); }
static void __threadfence() {}
static unsigned atomicAdd(unsigned *number, unsigned more) { return (*number += more) - more; }

static void fiber() {
    body();
    fibers[threadIdx.x].ended = true;
}

// Runs all threads of a block to their end.
static void run_block(unsigned threads) {
    if (fibers.size() < threads) fibers.resize(threads);
    for (unsigned thread = 0; thread < threads; thread++) {
        Fiber &each = fibers[thread];
        getcontext(&each.context);
        each.context.uc_stack.ss_sp = each.stack.get();
        each.context.uc_stack.ss_size = Fiber::STACK;
        each.context.uc_link = &scheduler;
        each.ended = false;
        makecontext(&each.context, fiber, 0);
    }
    for (bool left = true; left;) {
        left = false;
        for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++) {
            if (fibers[threadIdx.x].ended) continue;
            swapcontext(&scheduler, &fibers[threadIdx.x].context);
            left |= !fibers[threadIdx.x].ended;
        }
    }
}

// All threads of a block call it together.
template <class T> static T handed_down(const T &value, unsigned by) {
    static std::vector<T> values(1024);
    values[threadIdx.x] = value;
    __syncthreads();
    const unsigned other = threadIdx.x + by;
    const T found = other / 32 == threadIdx.x / 32 ? values[other] : value;
    __syncthreads();
    return found;
}
#define HOST

#include KERNEL

// Which function is asked to fail, for tests of that: the calls that succeed before it.
static long failing = -1;
static int fails() { return failing >= 0 && failing-- == 0 ? 700 : 0; }

extern "C" {
void host_driver_fails_after(long calls) { failing = calls; }

int cuInit(unsigned) { return 0; }
int cuDeviceGet(int *device, int index) { return *device = index, 0; }
int cuDevicePrimaryCtxRetain(void **context, int) { return *context = (void *)1, 0; }
int cuCtxPushCurrent_v2(void *) { return 0; }
int cuCtxPopCurrent_v2(void **context) { return *context = (void *)1, 0; }
int cuModuleLoadData(void **module, const void *) { return *module = (void *)1, 0; }
int cuModuleGetFunction(void **function, void *, const char *name) {
    return *function = std::strcmp(name, "probe_measure") ? (void *)2 : (void *)1, 0;
}
int cuCtxSynchronize() { return 0; }
int cuMemcpyDtoH_v2(void *to, std::uint64_t from, std::size_t bytes) { return std::memcpy(to, (const void *)from, bytes), 0; }
int cuGetErrorName(int status, const char **name) { return *name = "CUDA_ERROR_OF_THE_TEST", status == 0; }

int cuLaunchKernel(void *function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned, unsigned, void *, void **arguments, void **) {
    static std::mutex launching;
    const std::lock_guard guard(launching);
    if (int status = fails()) return status;
    static unsigned launches = 0;
    const unsigned turn = ++launches;
    const bool measures = function == (void *)1;
    if (measures && threads != THREADS) return 701;
    blockDim.x = threads;
    body = [&] {
        if (measures) probe_measure(*(const Batch *)arguments[0]);
        else probe_signs(*(u32 **)arguments[0]);
    };
    for (unsigned block = 0; block < blocks; block++) {
        blockIdx.x = (block + turn * 7) % blocks;
        run_block(threads);
    }
    return 0;
}
}
