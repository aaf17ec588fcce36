// Functions in the manner of CANN, with arguments of every kind: each checks that what it was given arrives as it was passed.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

struct aclTensor { int64_t first; };
struct aclScalar { int32_t dtype; };
struct aclIntArray { uint64_t count; };
struct aclOpExecutor { int number; };

static int executors = 0;
// One that was released, and is given out again.
static aclOpExecutor *spare = nullptr;

static void expect(bool holds, const char *what) {
    if (holds) return;
    std::fprintf(stderr, "WRONG: %s\n", what);
    std::abort();
}

static int made(uint64_t *workspace, aclOpExecutor **executor) {
    *workspace = 0;
    *executor = spare != nullptr ? spare : new aclOpExecutor;
    spare = nullptr;
    (*executor)->number = ++executors;
    return 0;
}

extern "C" {

aclTensor *aclCreateTensor(const int64_t *shape, uint64_t, int, const int64_t *, int64_t, int, const int64_t *, uint64_t, void *) {
    return new aclTensor{shape[0]};
}
int aclDestroyTensor(const aclTensor *tensor) { delete tensor; return 0; }
aclScalar *aclCreateScalar(void *, int dtype) { return new aclScalar{dtype}; }
int aclDestroyScalar(const aclScalar *scalar) { delete scalar; return 0; }
aclIntArray *aclCreateIntArray(const int64_t *, uint64_t count) { return new aclIntArray{count}; }
int aclDestroyIntArray(const aclIntArray *array) { delete array; return 0; }
int aclSetAclOpExecutorRepeatable(aclOpExecutor *) { return 0; }
int aclDestroyAclOpExecutor(aclOpExecutor *executor) {
    if (executor != spare) delete spare;
    spare = executor;
    return 0;
}

bool CanUsePTACache(const char *) { return false; }

// In the table.
int aclnnAddGetWorkspaceSize(const aclTensor *self, const aclTensor *other, const aclScalar *, aclTensor *out, uint64_t *workspace, aclOpExecutor **executor) {
    expect(self->first == 2 && other->first == 3 && out->first == 4, "Add");
    return made(workspace, executor);
}
int aclnnAdd(void *, uint64_t, aclOpExecutor *, void *stream) {
    expect(stream == reinterpret_cast<void *>(0x77), "the stream of Add");
    return 0;
}

// With numbers of floating point, truth values and small integers between, and most of it on the stack. Not in the table.
int aclnnMixedGetWorkspaceSize(const aclTensor *a, int64_t i, double d, bool b, const aclTensor *c, float f, const aclIntArray *list, int8_t n, double e, const aclTensor *g,
                               int32_t m, bool last, const aclTensor *h, float k, aclTensor *out, uint64_t *workspace, aclOpExecutor **executor) {
    expect(a->first == 2 && i == -5 && d == 0.5 && b && c->first == 3 && f == 1.25f && list->count == 3 && n == -7 && e == -2.5 && g->first == 4, "Mixed, first part");
    expect(m == -9 && !last && h->first == 5 && k == 8.5f && out->first == 6, "Mixed, second part");
    return made(workspace, executor);
}
int aclnnMixed(void *, uint64_t, aclOpExecutor *, void *) { return 0; }

// Leave by an exception.
int aclnnThrowingGetWorkspaceSize(const aclTensor *, aclTensor *, uint64_t *, aclOpExecutor **) { throw std::runtime_error("planned"); }
int aclnnThrowing(void *, uint64_t, aclOpExecutor *, void *) { throw std::runtime_error("launched"); }

// Fails, and makes no executor.
int aclnnFailingGetWorkspaceSize(const aclTensor *, aclTensor *, uint64_t *, aclOpExecutor **) { return 161002; }
int aclnnFailing(void *, uint64_t, aclOpExecutor *, void *) { return 561103; }

}  // extern "C"
