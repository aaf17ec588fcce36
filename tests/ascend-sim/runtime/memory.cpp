// Memory of the devices. Each has one sparse file, mapped twice: where clients see it nothing can be read or written, so
// that host code that follows a device address is ended, as on hardware; where the simulator sees it, kernels work.

#include "acl/acl.h"
#include "device.h"
#include "graph.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>

namespace ascend_sim {

int finish_device(int device);  // stream.cpp

namespace {

constexpr size_t MEMORY = size_t(16) << 30;
constexpr size_t SPACING = size_t(32) << 30;
constexpr size_t ALIGNMENT = 512;
constexpr int POISON = 0xEE;
const uintptr_t BASE = 0x120000000000;

struct Arena {
    char *seen = nullptr;
    size_t used = 0;
    /// Size of each gap and of each allocation, by its offset.
    std::map<size_t, size_t> gaps, allocated;
};

struct Memory {
    std::mutex lock;
    Arena arenas[MAX_DEVICES];
};

Memory &memory() {
    static auto *memory = new Memory;
    return *memory;
}

char *start_of(int device) { return reinterpret_cast<char *>(BASE + size_t(device) * SPACING); }

int device_of(const void *address) {
    const auto place = reinterpret_cast<uintptr_t>(address);
    if (place < BASE || place >= BASE + MAX_DEVICES * SPACING) return -1;
    const auto offset = place - BASE;
    return offset % SPACING < MEMORY ? int(offset / SPACING) : -1;
}

void map(int device, Arena &arena) {
    if (arena.seen != nullptr) return;
    const int file = memfd_create("ascend-sim", 0);
    if (file < 0 || ftruncate(file, MEMORY) != 0) {
        std::perror("ascend-sim: memory of a device");
        std::abort();
    }
    void *seen = mmap(nullptr, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    void *shown = mmap(start_of(device), MEMORY, PROT_NONE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, file, 0);
    if (seen == MAP_FAILED || shown != start_of(device)) {
        std::perror("ascend-sim: address space of a device");
        std::abort();
    }
    close(file);
    arena.seen = static_cast<char *>(seen);
    arena.gaps[0] = MEMORY;
}

void *allocate(int device, size_t size) {
    std::lock_guard<std::mutex> guard(memory().lock);
    auto &arena = memory().arenas[device];
    map(device, arena);
    size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (size == 0) size = ALIGNMENT;
    for (auto gap = arena.gaps.begin(); gap != arena.gaps.end(); ++gap) {
        const auto [offset, room] = *gap;
        if (room < size) continue;
        arena.gaps.erase(gap);
        if (room > size) arena.gaps[offset + size] = room - size;
        arena.allocated[offset] = size;
        arena.used += size;
        return start_of(device) + offset;
    }
    return nullptr;
}

bool release(void *address) {
    const int device = device_of(address);
    if (device < 0) return false;
    // Work that was put into streams before still uses it.
    finish_device(device);
    std::lock_guard<std::mutex> guard(memory().lock);
    auto &arena = memory().arenas[device];
    const size_t offset = static_cast<char *>(address) - start_of(device);
    const auto found = arena.allocated.find(offset);
    if (found == arena.allocated.end()) return false;
    const size_t size = found->second;
    arena.allocated.erase(found);
    arena.used -= size;
    std::memset(arena.seen + offset, POISON, size);
    auto gap = arena.gaps.emplace(offset, size).first;
    const auto next = std::next(gap);
    if (next != arena.gaps.end() && offset + size == next->first) {
        gap->second += next->second;
        arena.gaps.erase(next);
    }
    if (gap != arena.gaps.begin()) {
        const auto before = std::prev(gap);
        if (before->first + before->second == offset) {
            before->second += gap->second;
            arena.gaps.erase(gap);
        }
    }
    return true;
}

/// Why `size` bytes cannot be copied or set from `source` to `target`; empty where they can.
std::string fault_of(const void *target, size_t room, const void *source, size_t size) {
    if (size > room) return "more bytes than the target has room for";
    if (!is_allocated(target, size)) return "the target is not in one allocation";
    if (source != nullptr && !is_allocated(source, size)) return "the source is not in one allocation";
    return "";
}

}  // namespace

bool is_device(const void *address) { return device_of(address) >= 0; }

void *view(const void *address) {
    const int device = device_of(address);
    if (device < 0) return const_cast<void *>(address);
    return memory().arenas[device].seen + (static_cast<const char *>(address) - start_of(device));
}

bool is_allocated(const void *address, size_t size) {
    const int device = device_of(address);
    if (device < 0 || size == 0) return true;
    std::lock_guard<std::mutex> guard(memory().lock);
    const auto &allocated = memory().arenas[device].allocated;
    const size_t offset = static_cast<const char *>(address) - start_of(device);
    auto after = allocated.upper_bound(offset);
    if (after == allocated.begin()) return false;
    const auto [start, length] = *std::prev(after);
    return offset + size <= start + length;
}

}  // namespace ascend_sim

using namespace ascend_sim;

extern "C" {

aclError aclrtMalloc(void **address, size_t size, aclrtMemMallocPolicy) {
    *address = allocate(current_device(), size);
    return *address != nullptr ? OK : OUT_OF_MEMORY;
}

aclError aclrtMallocAlign32(void **address, size_t size, aclrtMemMallocPolicy policy) {
    return aclrtMalloc(address, size, policy);
}

aclError aclrtFree(void *address) {
    if (spoils_unsafe("aclrtFree")) return CAPTURED;
    return release(address) ? int(OK) : refuse(INVALID, "aclrtFree: no allocation begins there");
}

aclError aclrtMallocHost(void **address, size_t size) {
    if (spoils_unsafe("aclrtMallocHost")) return CAPTURED;
    return posix_memalign(address, 64, size > 0 ? size : 64) == 0 ? OK : OUT_OF_MEMORY;
}

aclError aclrtMallocHostWithCfg(void **address, uint64_t size, aclrtMallocConfig *) {
    return aclrtMallocHost(address, size);
}

aclError aclrtFreeHost(void *address) {
    std::free(address);
    return OK;
}

aclError aclrtGetMemInfo(aclrtMemAttr, size_t *unused, size_t *total) {
    std::lock_guard<std::mutex> guard(memory().lock);
    *total = MEMORY;
    *unused = MEMORY - memory().arenas[current_device()].used;
    return OK;
}

aclError aclrtPointerGetAttributes(const void *address, aclrtPtrAttributes *attributes) {
    std::memset(attributes, 0, sizeof *attributes);
    attributes->location.type = is_device(address) ? ACL_MEM_LOCATION_TYPE_DEVICE : ACL_MEM_LOCATION_TYPE_UNREGISTERED;
    return OK;
}

aclError aclrtMemcpy(void *target, size_t room, const void *source, size_t size, aclrtMemcpyKind kind) {
    count("waits", "aclrtMemcpy");
    if (spoils_unsafe("aclrtMemcpy")) return CAPTURED;
    const auto fault = fault_of(target, room, source, size);
    if (!fault.empty()) return refuse(INVALID, "aclrtMemcpy: " + fault);
    if (kind == ACL_MEMCPY_DEVICE_TO_HOST || kind == ACL_MEMCPY_DEVICE_TO_DEVICE) finish_device(current_device());
    std::memcpy(view(target), view(source), size);
    return OK;
}

aclError aclrtMemcpyAsync(void *target, size_t room, const void *source, size_t size, aclrtMemcpyKind kind, aclrtStream stream) {
    const auto fault = fault_of(target, room, source, size);
    if (!fault.empty()) return refuse(INVALID, "aclrtMemcpyAsync: " + fault);
    const char *kinds[] = {"host to host", "host to device", "device to host", "device to device"};
    const auto name = unsigned(kind) < 4 ? kinds[kind] : "other";
    count("copies", name);
    submit(stream, name, [=] { std::memcpy(view(target), view(source), size); });
    return OK;
}

aclError aclrtMemcpyAsyncWithCondition(void *target, size_t room, const void *source, size_t size, aclrtMemcpyKind kind, aclrtStream stream) {
    return aclrtMemcpyAsync(target, room, source, size, kind, stream);
}

aclError aclrtMemset(void *target, size_t room, int32_t value, size_t size) {
    if (spoils_unsafe("aclrtMemset")) return CAPTURED;
    const auto fault = fault_of(target, room, nullptr, size);
    if (!fault.empty()) return refuse(INVALID, "aclrtMemset: " + fault);
    finish_device(current_device());
    std::memset(view(target), value, size);
    return OK;
}

aclError aclrtMemsetAsync(void *target, size_t room, int32_t value, size_t size, aclrtStream stream) {
    const auto fault = fault_of(target, room, nullptr, size);
    if (!fault.empty()) return refuse(INVALID, "aclrtMemsetAsync: " + fault);
    submit(stream, "memset", [=] { std::memset(view(target), value, size); });
    return OK;
}

}  // extern "C"
