// A program without Python on CANN: three steps of a few operators, the last of each an `aclnnRelu`. Linked to the libraries, or, with BY_NAME, looking
// functions up; with PLUGIN, the computing is in a library of its own that is linked and loaded late; with AGAIN, all of it twice, from `aclInit` on. Prints the values of each step.

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

extern "C" {
struct aclTensor; struct aclScalar; struct aclOpExecutor; struct aclTensorDesc; struct aclDataBuffer;
int aclInit(const char *);
int aclFinalize();
int aclrtSetDevice(int32_t);
int aclrtCreateStream(void **);
int aclrtSynchronizeStream(void *);
int aclrtMalloc(void **, size_t, int);
int aclrtMemcpy(void *, size_t, const void *, size_t, int);
aclTensorDesc *aclCreateTensorDesc(int, int, const int64_t *, int);
aclDataBuffer *aclCreateDataBuffer(void *, size_t);
int aclopCompileAndExecuteV2(const char *, int, aclTensorDesc **, aclDataBuffer **, int, aclTensorDesc **, aclDataBuffer **, void *, int, int, const char *, void *);
aclTensor *aclCreateTensor(const int64_t *, uint64_t, int, const int64_t *, int64_t, int, const int64_t *, uint64_t, void *);
aclScalar *aclCreateScalar(void *, int);
int aclDestroyTensor(const aclTensor *);
int aclDestroyScalar(const aclScalar *);
int aclnnMulGetWorkspaceSize(const aclTensor *, const aclTensor *, aclTensor *, uint64_t *, aclOpExecutor **);
int aclnnMul(void *, uint64_t, aclOpExecutor *, void *);
int aclnnAddGetWorkspaceSize(const aclTensor *, const aclTensor *, const aclScalar *, aclTensor *, uint64_t *, aclOpExecutor **);
int aclnnAdd(void *, uint64_t, aclOpExecutor *, void *);
int aclnnReluGetWorkspaceSize(const aclTensor *, aclTensor *, uint64_t *, aclOpExecutor **);
int aclnnRelu(void *, uint64_t, aclOpExecutor *, void *);
}

#ifdef BY_NAME
static void *library(const char *name) { return dlopen(name, RTLD_NOW); }
#define CALL(name) (reinterpret_cast<decltype(&name)>(dlsym(library("libopapi.so"), #name)))
#else
#define CALL(name) name
#endif

constexpr int64_t SIZE = 4;
constexpr int FLOAT = 0, ND = 2, TO_DEVICE = 1, TO_HOST = 2;

static void *on_device(const std::vector<float> &values) {
    void *address = nullptr;
    if (aclrtMalloc(&address, sizeof(float) * SIZE, 0) != 0) std::abort();
    aclrtMemcpy(address, sizeof(float) * SIZE, values.data(), sizeof(float) * SIZE, TO_DEVICE);
    return address;
}

static aclTensor *tensor(void *address) { return CALL(aclCreateTensor)(&SIZE, 1, FLOAT, nullptr, 0, ND, &SIZE, 1, address); }

extern "C" int compute() {
    if (aclInit(nullptr) != 0 || aclrtSetDevice(0) != 0) return 1;
    void *stream = nullptr;
    aclrtCreateStream(&stream);
    void *a = on_device({1, 2, 3, -4}), *b = on_device({0.5, 0.25, 2, 1}), *c = on_device({0, 0, 0, 0});
    for (int step = 0; step < 3; step++) {
        uint64_t size = 0;
        aclOpExecutor *executor = nullptr;
        float one = 1;
        aclTensor *left = tensor(a), *right = tensor(b), *result = tensor(c);
        aclScalar *alpha = CALL(aclCreateScalar)(&one, FLOAT);
        CALL(aclnnMulGetWorkspaceSize)(left, right, result, &size, &executor);
        CALL(aclnnMul)(nullptr, size, executor, stream);
        executor = nullptr;
        CALL(aclnnAddGetWorkspaceSize)(left, result, alpha, left, &size, &executor);
        CALL(aclnnAdd)(nullptr, size, executor, stream);
        aclTensorDesc *kinds[] = {aclCreateTensorDesc(FLOAT, 1, &SIZE, ND), aclCreateTensorDesc(FLOAT, 1, &SIZE, ND)};
        aclDataBuffer *inputs[] = {aclCreateDataBuffer(a, 16), aclCreateDataBuffer(b, 16)}, *outputs[] = {aclCreateDataBuffer(c, 16)};
        if (aclopCompileAndExecuteV2("Mul", 2, kinds, inputs, 1, kinds, outputs, nullptr, 0, 0, nullptr, stream) != 0) return 2;
        executor = nullptr;
        CALL(aclnnReluGetWorkspaceSize)(result, left, &size, &executor);
        CALL(aclnnRelu)(nullptr, size, executor, stream);
        for (auto *each : {left, right, result}) CALL(aclDestroyTensor)(each);
        CALL(aclDestroyScalar)(alpha);
        aclrtSynchronizeStream(stream);
        float values[SIZE];
        aclrtMemcpy(values, sizeof values, a, sizeof values, TO_HOST);
        std::printf("[%g, %g, %g, %g]\n", values[0], values[1], values[2], values[3]);
    }
    return aclFinalize();
}

#ifndef PLUGIN
int main(int argc, char **arguments) {
#ifdef AGAIN
    if (const int status = compute(); status != 0) return status;
#endif
    if (argc == 1) return compute();
    void *plugin = dlopen(arguments[1], RTLD_LAZY | RTLD_LOCAL);
    if (plugin == nullptr) return std::fprintf(stderr, "%s\n", dlerror()), 3;
    return reinterpret_cast<int (*)()>(dlsym(plugin, "compute"))();
}
#endif
