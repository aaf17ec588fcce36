// Handles, executors and results.

#include "launch.h"

#include "runtime/device.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>

/// What is to be done at the launch.
struct aclOpExecutor {
    std::function<void(long)> body;
    /// Launched again and again: torch_npu keeps it.
    bool is_kept;
};

namespace ascend_sim {
namespace {

/// What torch does for autograd and for modes in Python is none of the device's.
struct Bare {
    at::AutoDispatchBelowADInplaceOrView below;
    c10::impl::ExcludeDispatchKeyGuard without{c10::python_ks};
};

bool widens() {
    static const bool widens = setting("ASCEND_SIM_ROUNDING") == "wide";
    return widens;
}

/// Number of calls of each operator so far.
long next_call(const std::string &name) {
    static auto *calls = new std::map<std::string, long>;
    static auto *lock = new std::mutex;
    std::lock_guard<std::mutex> guard(*lock);
    return (*calls)[name]++;
}

/// A launch that asks for more workspace than there is memory. Torch then raises as for any tensor.
constexpr uint64_t TOO_MUCH = uint64_t(1) << 45;

}  // namespace

at::ScalarType dtype_of(int code) {
    switch (code) {
        case 0: return at::kFloat;
        case 1: return at::kHalf;
        case 2: return at::kChar;
        case 3: return at::kInt;
        case 4: return at::kByte;
        case 6: return at::kShort;
        case 7: return at::kUInt16;
        case 8: return at::kUInt32;
        case 9: return at::kLong;
        case 10: return at::kUInt64;
        case 11: return at::kDouble;
        case 12: return at::kBool;
        case 16: return at::kComplexFloat;
        case 17: return at::kComplexDouble;
        case 27: return at::kBFloat16;
        case 35: return at::kFloat8_e5m2;
        case 36: return at::kFloat8_e4m3fn;
        default: TORCH_CHECK(false, "the element type ", code, " is not simulated");
    }
}

Held hold(const aclTensor *tensor) {
    return tensor != nullptr ? Held{true, *tensor} : Held{false, {}};
}

std::vector<Held> hold(const aclTensorList *list) {
    std::vector<Held> held;
    if (list == nullptr) return held;
    for (const auto &tensor : list->tensors) held.push_back({tensor.dtype != at::ScalarType::Undefined, tensor});
    return held;
}

at::Tensor memory_of(const Held &held) {
    if (!held.present) return {};
    const auto &[sizes, strides, offset, dtype, data] = held.tensor;
    const auto options = at::TensorOptions().dtype(dtype);
    const auto size = int64_t(c10::elementSize(dtype));
    int64_t count = 1, extent = 1;
    for (size_t dim = 0; dim < sizes.size(); dim++) {
        count *= sizes[dim];
        extent += (sizes[dim] - 1) * strides[dim];
    }
    if (count == 0 || data == nullptr) return at::empty(sizes, options);
    char *start = static_cast<char *>(data) + offset * size;
    TORCH_CHECK(is_device(start), "an argument is not in the memory of the device");
    TORCH_CHECK(is_allocated(start, size_t(extent * size)), "an argument reaches beyond its allocation");
    return at::from_blob(view(start), sizes, strides, options);
}

std::vector<at::Tensor> memory_of(const std::vector<Held> &held) {
    std::vector<at::Tensor> tensors;
    for (const auto &each : held) tensors.push_back(memory_of(each));
    return tensors;
}

at::Tensor operand(const Held &held) {
    auto tensor = memory_of(held);
    const bool narrow = tensor.defined() && tensor.is_floating_point() && tensor.scalar_type() != at::kDouble;
    return widens() && narrow ? tensor.to(at::kDouble) : tensor;
}

std::vector<at::Tensor> operand(const std::vector<Held> &held) {
    std::vector<at::Tensor> tensors;
    for (const auto &each : held) tensors.push_back(operand(each));
    return tensors;
}

at::Generator generator(int64_t seed, int64_t offset) {
    return at::make_generator<at::CPUGeneratorImpl>(uint64_t(seed) * 0x9e3779b97f4a7c15u + uint64_t(offset));
}

at::Tensor undefined_if_empty(const at::Tensor &tensor) {
    return tensor.defined() && tensor.numel() == 0 ? at::Tensor() : tensor;
}

// The executor cache: torch_npu names a call by a hash of its arguments, and where there is an executor of that name it launches it
// without making handles or asking for a workspace.
namespace {

thread_local bool caches = false;
thread_local std::string key, addresses;

struct Cache {
    std::mutex lock;
    std::unordered_map<std::string, aclOpExecutor *> executors;
};

Cache &cache() {
    static auto *cache = new Cache;
    return *cache;
}

bool uses_cache() {
    static const bool uses = setting("ASCEND_SIM_CACHE", 1) != 0;
    return uses;
}

aclOpExecutor *known(uint64_t *workspace) {
    if (!uses_cache() || key.empty()) return nullptr;
    std::lock_guard<std::mutex> guard(cache().lock);
    const auto found = cache().executors.find(key + '|' + addresses);
    count("cache", found != cache().executors.end() ? "hits" : "misses");
    if (found == cache().executors.end()) return nullptr;
    *workspace = 0;
    return found->second;
}

void keep(aclOpExecutor *executor) {
    if (!uses_cache() || !caches || key.empty()) return;
    std::lock_guard<std::mutex> guard(cache().lock);
    executor->is_kept = cache().executors.emplace(key + '|' + addresses, executor).second;
}

}  // namespace

/// Whether this is the call at which memory runs out: `ASCEND_SIM_OOM` is the number of a call of any operator, or of one, as in
/// `Mul:7`, or all of one, as in `Mul:all`.
bool exhausts(const std::string &name) {
    static const std::string &wanted = setting("ASCEND_SIM_OOM");
    static auto *calls = new std::map<std::string, long>;
    static auto *lock = new std::mutex;
    if (wanted.empty()) return false;
    std::lock_guard<std::mutex> guard(*lock);
    const auto number = std::to_string((*calls)[name]++), of_all = std::to_string((*calls)[""]++);
    return wanted == of_all || wanted == name + ":" + number || wanted == name + ":all";
}

int plan(const char *name, uint64_t *workspace, aclOpExecutor **executor, std::function<void(long)> body) {
    const bool exhausted = exhausts(name);
    *workspace = exhausted ? TOO_MUCH : 0;
    *executor = new aclOpExecutor{std::move(body), false};
    if (!exhausted) keep(*executor);
    return OK;
}

int launch(const char *name, aclOpExecutor *executor, void *stream) {
    const auto pause = std::chrono::microseconds(setting("ASCEND_SIM_LAUNCH", 0));
    if (pause.count() > 0) std::this_thread::sleep_for(pause);
    // What is captured is launched by replays.
    const bool captured = is_captured(stream);
    count(captured ? "captured" : "launches", name);
    if (!captured) trace(name);
    const long call = next_call(name);
    const bool is_kept = executor->is_kept;
    auto body = is_kept ? executor->body : std::move(executor->body);
    if (!is_kept) delete executor;
    submit(stream, std::string("aclnn") + name, [body = std::move(body), call] {
        Bare bare;
        body(call);
    });
    return OK;
}

}  // namespace ascend_sim

using namespace ascend_sim;

extern "C" {

aclTensor *aclCreateTensor(const int64_t *sizes, uint64_t dims, int dtype, const int64_t *strides, int64_t offset, int format,
                           const int64_t *, uint64_t, void *data) {
    // Formats of the matrix units, which lay elements out in another way.
    constexpr int FRACTAL_NZ = 29;
    if (format == FRACTAL_NZ) {
        refuse(UNSUPPORTED, "aclCreateTensor: the format FRACTAL_NZ is not simulated");
        return nullptr;
    }
    aclTensor made{{sizes, sizes + dims}, {}, offset, at::kFloat, data};
    try {
        made.dtype = dtype_of(dtype);
    } catch (const std::exception &error) {
        refuse(UNSUPPORTED, std::string("aclCreateTensor: ") + error.what());
        return nullptr;
    }
    if (strides != nullptr) {
        made.strides.assign(strides, strides + dims);
    } else {
        made.strides.assign(dims, 1);
        for (size_t dim = dims; dim-- > 1;) made.strides[dim - 1] = made.strides[dim] * made.sizes[dim];
    }
    return new aclTensor(std::move(made));
}

aclScalar *aclCreateScalar(void *value, int dtype) {
    switch (dtype_of(dtype)) {
        case at::kDouble: return new aclScalar{*static_cast<double *>(value)};
        case at::kFloat: return new aclScalar{*static_cast<float *>(value)};
        case at::kHalf: return new aclScalar{float(*static_cast<c10::Half *>(value))};
        case at::kBFloat16: return new aclScalar{float(*static_cast<c10::BFloat16 *>(value))};
        case at::kInt: return new aclScalar{*static_cast<int32_t *>(value)};
        case at::kBool: return new aclScalar{*static_cast<bool *>(value)};
        case at::kComplexFloat: return new aclScalar{*static_cast<c10::complex<float> *>(value)};
        case at::kComplexDouble: return new aclScalar{*static_cast<c10::complex<double> *>(value)};
        default: return new aclScalar{*static_cast<int64_t *>(value)};
    }
}

aclIntArray *aclCreateIntArray(const int64_t *values, uint64_t size) { return new aclIntArray{{values, values + size}}; }
aclFloatArray *aclCreateFloatArray(const float *values, uint64_t size) { return new aclFloatArray{{values, values + size}}; }
aclBoolArray *aclCreateBoolArray(const bool *values, uint64_t size) { return new aclBoolArray{{values, values + size}}; }

aclTensorList *aclCreateTensorList(const aclTensor *const *tensors, uint64_t size) {
    auto *list = new aclTensorList;
    for (uint64_t index = 0; index < size; index++) {
        if (tensors[index] == nullptr) {
            list->tensors.push_back({{}, {}, 0, at::ScalarType::Undefined, nullptr});
            continue;
        }
        list->tensors.push_back(*tensors[index]);
        delete tensors[index];
    }
    return list;
}

aclScalarList *aclCreateScalarList(const aclScalar *const *scalars, uint64_t size) {
    auto *list = new aclScalarList;
    for (uint64_t index = 0; index < size; index++) {
        list->values.push_back(scalars[index]->value);
        delete scalars[index];
    }
    return list;
}

int aclGetViewShape(const aclTensor *handle, int64_t **sizes, uint64_t *dims) {
    // The caller frees it with `delete[]`.
    *dims = handle->sizes.size();
    *sizes = new int64_t[handle->sizes.size()];
    std::copy(handle->sizes.begin(), handle->sizes.end(), *sizes);
    return OK;
}

int aclDestroyTensor(const aclTensor *handle) { delete handle; return OK; }
int aclDestroyScalar(const aclScalar *handle) { delete handle; return OK; }
int aclDestroyIntArray(const aclIntArray *handle) { delete handle; return OK; }
int aclDestroyFloatArray(const aclFloatArray *handle) { delete handle; return OK; }
int aclDestroyBoolArray(const aclBoolArray *handle) { delete handle; return OK; }
int aclDestroyTensorList(const aclTensorList *handle) { delete handle; return OK; }
int aclDestroyScalarList(const aclScalarList *handle) { delete handle; return OK; }
int aclDestroyAclOpExecutor(aclOpExecutor *executor) {
    if (!executor->is_kept) delete executor;
    return OK;
}

int InitHugeMemThreadLocal(void *, bool) { return OK; }
void UnInitHugeMemThreadLocal(void *, bool) {}
void ReleaseHugeMem(void *, bool) {}

void InitPTACacheThreadLocal() { caches = true, key.clear(), addresses.clear(); }
void UnInitPTACacheThreadLocal() { caches = false, key.clear(), addresses.clear(); }
bool CanUsePTACache(const char *) { return uses_cache(); }
void AddTensorAddrToCachedList(void *address) { addresses += std::to_string(reinterpret_cast<uintptr_t>(address)) + ','; }
void SetPTAHashKey(uint64_t hash) { key = hash != 0 ? std::to_string(hash) : ""; }
void SetPTACacheHashKey(uint8_t *bytes, size_t size) { key = bytes != nullptr ? std::string(reinterpret_cast<char *>(bytes), size) : ""; }
aclOpExecutor *PTAGetExecCache(uint64_t, uint64_t *workspace) { return known(workspace); }
aclOpExecutor *PTAFindExecCache(uint8_t *, size_t, uint64_t *workspace) { return known(workspace); }

}  // extern "C"
