// A program that uses CANN by name, with the agent loaded in front of it: every call arrives as it was made, and is told of as it was.

#include <dlfcn.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

struct aclTensor; struct aclScalar; struct aclIntArray; struct aclOpExecutor;

static std::vector<std::string> told;
static std::mutex lock;
static void watcher(const char *text) { std::lock_guard<std::mutex> guard(lock); told.push_back(text); }

static void *cann;
template <class Function> static Function *find(const char *name) {
    auto *found = reinterpret_cast<Function *>(dlsym(cann, name));
    if (found == nullptr) { std::fprintf(stderr, "WRONG: %s is not found\n", name); std::exit(1); }
    return found;
}

static void expect(const char *text, size_t count = 1) {
    std::lock_guard<std::mutex> guard(lock);
    if (told.size() != count || (count > 0 && told.back() != text)) {
        std::fprintf(stderr, "WRONG: `%s` expected %zu times, but told:\n", text, count);
        for (const auto &each : told) std::fprintf(stderr, "  %s\n", each.c_str());
        std::exit(1);
    }
    told.clear();
    std::printf("ok %s\n", text);
}

using Launch = int(void *, uint64_t, aclOpExecutor *, void *);
using Add = int(const aclTensor *, const aclTensor *, const aclScalar *, aclTensor *, uint64_t *, aclOpExecutor **);
using Mixed = int(const aclTensor *, int64_t, double, bool, const aclTensor *, float, const aclIntArray *, int8_t, double, const aclTensor *, int32_t, bool, const aclTensor *, float,
                  aclTensor *, uint64_t *, aclOpExecutor **);
using One = int(const aclTensor *, aclTensor *, uint64_t *, aclOpExecutor **);
using Create = aclTensor *(const int64_t *, uint64_t, int, const int64_t *, int64_t, int, const int64_t *, uint64_t, void *);

static void *const STREAM = reinterpret_cast<void *>(0x77);
static aclTensor *tensor(int64_t size) {
    const int64_t shape[] = {size};
    return find<Create>("aclCreateTensor")(shape, 1, 0, nullptr, 0, 2, shape, 1, nullptr);
}

static void add() {
    uint64_t workspace = 0;
    aclOpExecutor *executor = nullptr;
    // Locals beyond the arguments that hold handles must not be taken for arguments.
    aclTensor *volatile beyond[] = {tensor(8), tensor(9)};
    auto *alpha = find<aclScalar *(void *, int)>("aclCreateScalar")(const_cast<aclTensor **>(&beyond[0]), 0);
    find<Add>("aclnnAddGetWorkspaceSize")(tensor(2), tensor(3), alpha, tensor(4), &workspace, &executor);
    find<Launch>("aclnnAdd")(nullptr, workspace, executor, STREAM);
}

static ucontext_t here, there;
static void on_another_stack() { add(); }

int main(int, char **arguments) {
    cann = dlopen((std::string(arguments[0]).substr(0, std::string(arguments[0]).rfind('/')) + "/libopapi.so").c_str(), RTLD_NOW);
    if (cann == nullptr) { std::fprintf(stderr, "%s\n", dlerror()); return 1; }
    auto *watch = reinterpret_cast<void (*)(void (*)(const char *))>(dlsym(RTLD_DEFAULT, "probe_agent_watch"));
    if (watch == nullptr) { std::fprintf(stderr, "WRONG: the agent is not loaded\n"); return 1; }

    // Stubs that nobody listens to let everything through.
    add();
    expect("nothing", 0);
    watch(watcher);

    add();
    expect("Add [2] [3] scalar:0 >[4]");

    const int64_t numbers[] = {1, 2, 3};
    auto *list = find<aclIntArray *(const int64_t *, uint64_t)>("aclCreateIntArray")(numbers, 3);
    uint64_t workspace = 0;
    aclOpExecutor *executor = nullptr;
    find<Mixed>("aclnnMixedGetWorkspaceSize")(tensor(2), -5, 0.5, true, tensor(3), 1.25f, list, -7, -2.5, tensor(4), -9, false, tensor(5), 8.5f, tensor(6), &workspace, &executor);
    find<Launch>("aclnnMixed")(nullptr, workspace, executor, STREAM);
    expect("Mixed (no table) ?[2] ?[3] [1, 2, 3] ?[4] ?[5] ?[6]");

    // Exceptions pass through, and what comes after them is seen.
    for (const char *name : {"aclnnThrowingGetWorkspaceSize", "aclnnThrowing"}) {
        bool caught = false;
        try {
            if (std::strcmp(name, "aclnnThrowing") == 0) find<Launch>(name)(nullptr, 0, nullptr, STREAM);
            else find<One>(name)(tensor(2), tensor(3), &workspace, &executor);
        } catch (const std::runtime_error &) {
            caught = true;
        }
        if (!caught) { std::fprintf(stderr, "WRONG: the exception of %s did not arrive\n", name); return 1; }
    }
    expect("Throwing ?");
    add();
    expect("Add [2] [3] scalar:0 >[4]");

    // An executor at the address of the one before, in the same variable: nothing changes there.
    auto *release = find<int(aclOpExecutor *)>("aclDestroyAclOpExecutor");
    auto *alpha = find<aclScalar *(void *, int)>("aclCreateScalar")(&workspace, 9);
    aclTensor *left = tensor(2), *right = tensor(3), *sum = tensor(4), *five = tensor(5), *six = tensor(6);
    for (int n = 0; n < 3; n++) {
        find<Add>("aclnnAddGetWorkspaceSize")(left, right, alpha, sum, &workspace, &executor);
        find<Launch>("aclnnAdd")(nullptr, workspace, executor, STREAM);
        release(executor);
    }
    expect("Add [2] [3] scalar:9 >[4]", 3);
    for (int n = 0; n < 3; n++) {
        find<Mixed>("aclnnMixedGetWorkspaceSize")(left, -5, 0.5, true, right, 1.25f, list, -7, -2.5, sum, -9, false, five, 8.5f, six, &workspace, &executor);
        find<Launch>("aclnnMixed")(nullptr, workspace, executor, STREAM);
        release(executor);
    }
    expect("Mixed (no table) ?[2] ?[3] [1, 2, 3] ?[4] ?[5] ?[6]", 3);

    // Results of functions that fail arrive.
    if (find<One>("aclnnFailingGetWorkspaceSize")(tensor(2), tensor(3), &workspace, &executor) != 161002) return 1;
    if (find<Launch>("aclnnFailing")(nullptr, 0, nullptr, STREAM) != 561103) return 1;
    expect("Failing ?");

    // An executor that is launched again; one that lies on the heap, which only the table leads to.
    auto *heap = new aclOpExecutor *(nullptr);
    find<Add>("aclnnAddGetWorkspaceSize")(tensor(2), tensor(3), alpha, tensor(4), new uint64_t(0), heap);
    find<int(aclOpExecutor *)>("aclSetAclOpExecutorRepeatable")(*heap);
    for (int time = 0; time < 3; time++) find<Launch>("aclnnAdd")(nullptr, 0, *heap, STREAM);
    expect("Add [2] [3] scalar:9 >[4]", 3);

    // By version, in which only the C library's functions are looked up: nothing is found, and nothing breaks.
    if (dlvsym(cann, "aclnnAdd", "NONE_1.0") != nullptr) return 1;
    if (dlvsym(RTLD_DEFAULT, "dlopen", "GLIBC_2.34") == nullptr && dlvsym(RTLD_DEFAULT, "dlopen", "GLIBC_2.2.5") == nullptr && dlvsym(RTLD_DEFAULT, "dlopen", "GLIBC_2.17") == nullptr) return 1;

    // A stack that is none of a thread's.
    std::vector<char> stack(1 << 20);
    getcontext(&there);
    there.uc_stack.ss_sp = stack.data();
    there.uc_stack.ss_size = stack.size();
    there.uc_link = &here;
    makecontext(&there, on_another_stack, 0);
    swapcontext(&here, &there);
    {
        std::lock_guard<std::mutex> guard(lock);
        if (told.size() != 1) { std::fprintf(stderr, "WRONG: on another stack %zu were told\n", told.size()); return 1; }
        std::printf("ok on another stack: %s\n", told[0].c_str());
        told.clear();
    }

    // Many threads at once.
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 8; thread++) threads.emplace_back([] { for (int time = 0; time < 200; time++) add(); });
    for (auto &thread : threads) thread.join();
    expect("Add [2] [3] scalar:0 >[4]", 1600);

    // A process that was forked off goes on without being listened to, and so does its parent.
    const pid_t child = fork();
    if (child == 0) { add(); _exit(0); }
    int status = 1;
    waitpid(child, &status, 0);
    if (status != 0) { std::fprintf(stderr, "WRONG: the child ended with %d\n", status); return 1; }
    add();
    expect("Add [2] [3] scalar:0 >[4]");
    std::puts("all well");
}
