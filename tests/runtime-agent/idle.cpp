// What the agent costs an operator while nothing is recorded: handles, both functions and the release, as torch_npu calls them for an addition. In time of the
// processor, so that others at work on the machine do not count. `PROBE_RUNTIME='{"output": "unused", "steps": "1000000", "step_on": "aclnnMul"}'` counts launches meanwhile.
// Run it with and without the agent in front: `run.sh FOLDER` builds what it needs, then `idle FOLDER/libopapi.so`. A second argument makes it a program that is not on torch_npu,
// whose handles are followed while steps are to come.

#include <dlfcn.h>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <vector>
#include <algorithm>

static double spent() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return double(now.tv_sec) * 1e9 + double(now.tv_nsec);
}

int main(int count, char **arguments) {
    void *cann = dlopen(arguments[1], RTLD_NOW);
    auto create = (void *(*)(const int64_t *, uint64_t, int, const int64_t *, int64_t, int, const int64_t *, uint64_t, void *))dlsym(cann, "aclCreateTensor");
    auto destroy = (int (*)(void *))dlsym(cann, "aclDestroyTensor");
    auto scalar = (void *(*)(void *, int))dlsym(cann, "aclCreateScalar");
    auto destroy_scalar = (int (*)(void *))dlsym(cann, "aclDestroyScalar");
    auto plan = (int (*)(void *, void *, void *, void *, uint64_t *, void **))dlsym(cann, "aclnnAddGetWorkspaceSize");
    auto launch = (int (*)(void *, uint64_t, void *, void *))dlsym(cann, "aclnnAdd");
    auto release = (int (*)(void *))dlsym(cann, "aclDestroyAclOpExecutor");
    auto uses_cache = (bool (*)(const char *))dlsym(cann, "CanUsePTACache");
    int64_t two[] = {2}, three[] = {3}, four[] = {4}; float one = 1;
    std::vector<double> all;
    for (int round = 0; round < 400; round++) {
        const double began = spent();
        for (int n = 0; n < 1000; n++) {
            uint64_t size = 0; void *executor = nullptr;
            if (count == 2 && uses_cache("aclnnAdd")) return 1;
            void *a = create(two, 1, 0, two, 0, 2, two, 1, nullptr), *b = create(three, 1, 0, two, 0, 2, two, 1, nullptr), *c = create(four, 1, 0, two, 0, 2, two, 1, nullptr), *s = scalar(&one, 0);
            plan(a, b, s, c, &size, &executor);
            launch(nullptr, size, executor, (void *)0x77);
            release(executor); destroy(a); destroy(b); destroy(c); destroy_scalar(s);
        }
        all.push_back((spent() - began) / 1000);
    }
    std::sort(all.begin(), all.end());
    std::printf("%.0f ns an op (median of 400), least %.0f\n", all[200], all[0]);
}
