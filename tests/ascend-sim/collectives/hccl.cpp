// Collectives between processes of one host, through files in shared memory. Each collective is one round: every rank lays its part
// down, reads those of the others, and goes on when all have read.

#include "hccl/hccl.h"
#include "runtime/device.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

using ascend_sim::count;
using ascend_sim::refuse;
using ascend_sim::setting;
using ascend_sim::submit;
using ascend_sim::view;

namespace {

constexpr uint32_t MAX_RANKS = 64;
using Bytes = std::vector<char>;

/// How far each rank has come.
struct Progress {
    std::atomic<uint64_t> laid_down[MAX_RANKS], read[MAX_RANKS], size[MAX_RANKS];
};

class Group {
public:
    Group(std::string name, uint32_t ranks, uint32_t rank) : name(std::move(name)), ranks(ranks), rank(rank) {
        const int file = open(path("").c_str(), O_RDWR | O_CREAT, 0600);
        TORCH_CHECK(file >= 0 && ftruncate(file, sizeof(Progress)) == 0, "no shared memory: ", std::strerror(errno));
        void *mapped = mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
        TORCH_CHECK(mapped != MAP_FAILED, "no shared memory: ", std::strerror(errno));
        progress_ = static_cast<Progress *>(mapped);
        own_ = open_part(rank);
        // Whoever comes late must find the files; who is there has them open.
        exchange({});
        unlink(path("").c_str());
        unlink(path(std::to_string(rank)).c_str());
        exchange({});
    }

    ~Group() {
        munmap(progress_, sizeof(Progress));
        close(own_);
        for (const int part : parts_) if (part >= 0) close(part);
    }

    /// The parts of all ranks, by rank.
    std::vector<Bytes> exchange(const Bytes &mine) {
        const auto round = ++round_;
        TORCH_CHECK(pwrite(own_, mine.data(), mine.size(), 0) == ssize_t(mine.size()), "no shared memory: ", std::strerror(errno));
        progress_->size[rank] = mine.size();
        progress_->laid_down[rank] = round;
        std::vector<Bytes> all(ranks);
        for (uint32_t other = 0; other < ranks; other++) {
            wait(progress_->laid_down[other], round);
            if (parts_.size() <= other) parts_.resize(other + 1, -1);
            if (parts_[other] < 0) parts_[other] = open_part(other);
            all[other].resize(progress_->size[other]);
            TORCH_CHECK(pread(parts_[other], all[other].data(), all[other].size(), 0) == ssize_t(all[other].size()), "a part is short");
        }
        progress_->read[rank] = round;
        for (uint32_t other = 0; other < ranks; other++) wait(progress_->read[other], round);
        return all;
    }

    const std::string name;
    const uint32_t ranks, rank;

private:
    std::string path(const std::string &part) const { return "/dev/shm/ascend-sim-" + name + (part.empty() ? "" : "." + part); }

    int open_part(uint32_t other) const {
        const int file = open(path(std::to_string(other)).c_str(), O_RDWR | O_CREAT, 0600);
        TORCH_CHECK(file >= 0, "no shared memory: ", std::strerror(errno));
        return file;
    }

    void wait(const std::atomic<uint64_t> &place, uint64_t round) const {
        using namespace std::chrono;
        const auto end = steady_clock::now() + seconds(setting("ASCEND_SIM_PATIENCE", 600));
        while (place < round) {
            TORCH_CHECK(steady_clock::now() < end, "another rank does not come");
            std::this_thread::sleep_for(microseconds(50));
        }
    }

    Progress *progress_;
    int own_;
    std::vector<int> parts_;
    uint64_t round_ = 0;
};

at::ScalarType dtype_of(HcclDataType code) {
    switch (code) {
        case HCCL_DATA_TYPE_INT8: return at::kChar;
        case HCCL_DATA_TYPE_INT16: return at::kShort;
        case HCCL_DATA_TYPE_INT32: return at::kInt;
        case HCCL_DATA_TYPE_FP16: return at::kHalf;
        case HCCL_DATA_TYPE_FP32: return at::kFloat;
        case HCCL_DATA_TYPE_INT64: return at::kLong;
        case HCCL_DATA_TYPE_UINT64: return at::kUInt64;
        case HCCL_DATA_TYPE_UINT8: return at::kByte;
        case HCCL_DATA_TYPE_FP64: return at::kDouble;
        case HCCL_DATA_TYPE_BFP16: return at::kBFloat16;
        default: TORCH_CHECK(false, "the element type ", int(code), " is not simulated");
    }
}

size_t size_of(HcclDataType code) { return c10::elementSize(dtype_of(code)); }

Bytes bytes_at(const void *address, size_t size) {
    const char *start = static_cast<const char *>(view(address));
    return {start, start + size};
}

/// The parts of all ranks combined, in the order of the ranks.
at::Tensor combined(std::vector<Bytes> &parts, HcclDataType code, HcclReduceOp how) {
    const auto dtype = dtype_of(code);
    at::Tensor result;
    for (auto &part : parts) {
        const auto next = at::from_blob(part.data(), {int64_t(part.size() / size_of(code))}, at::TensorOptions().dtype(dtype));
        if (!result.defined()) {
            result = next.clone();
        } else if (how == HCCL_REDUCE_SUM) {
            result.add_(next);
        } else if (how == HCCL_REDUCE_PROD) {
            result.mul_(next);
        } else {
            result = how == HCCL_REDUCE_MAX ? at::maximum(result, next) : at::minimum(result, next);
        }
    }
    return result;
}

HcclResult start(const char *name, HcclComm handle, aclrtStream stream, std::function<void(Group &)> work) {
    count("launches", name);
    auto *group = static_cast<Group *>(handle);
    submit(stream, name, [group, work = std::move(work)] {
        at::AutoDispatchBelowADInplaceOrView below;
        work(*group);
    });
    return HCCL_SUCCESS;
}

HcclResult join(uint32_t ranks, const HcclRootInfo *root, uint32_t rank, HcclComm *made) {
    if (ranks > MAX_RANKS || rank >= ranks) return HCCL_E_PARA;
    try {
        *made = new Group(root->internal, ranks, rank);
    } catch (const std::exception &error) {
        refuse(HCCL_E_INTERNAL, std::string("HcclCommInitRootInfo: ") + error.what());
        return HCCL_E_INTERNAL;
    }
    return HCCL_SUCCESS;
}

}  // namespace

extern "C" {

HcclResult HcclGetRootInfo(HcclRootInfo *root) {
    std::random_device random;
    const auto name = std::to_string(getpid()) + "-" + std::to_string(random()) + std::to_string(random());
    std::memset(root->internal, 0, sizeof root->internal);
    std::memcpy(root->internal, name.data(), name.size());
    return HCCL_SUCCESS;
}

HcclResult HcclCommInitRootInfo(uint32_t ranks, const HcclRootInfo *root, uint32_t rank, HcclComm *made) { return join(ranks, root, rank, made); }

HcclResult HcclCommInitRootInfoConfig(uint32_t ranks, const HcclRootInfo *root, uint32_t rank, const HcclCommConfig *, HcclComm *made) {
    return join(ranks, root, rank, made);
}

HcclResult HcclCommDestroy(HcclComm group) {
    delete static_cast<Group *>(group);
    return HCCL_SUCCESS;
}

HcclResult HcclGetCommAsyncError(HcclComm, HcclResult *error) {
    *error = HCCL_SUCCESS;
    return HCCL_SUCCESS;
}

HcclResult HcclGetCommName(HcclComm group, char *name) {
    std::strcpy(name, static_cast<Group *>(group)->name.c_str());
    return HCCL_SUCCESS;
}

HcclResult HcclGetRankSize(HcclComm group, uint32_t *ranks) {
    *ranks = static_cast<Group *>(group)->ranks;
    return HCCL_SUCCESS;
}

HcclResult HcclGetRankId(HcclComm group, uint32_t *rank) {
    *rank = static_cast<Group *>(group)->rank;
    return HCCL_SUCCESS;
}

HcclResult HcclBarrier(HcclComm group, aclrtStream stream) {
    return start("HcclBarrier", group, stream, [](Group &group) { group.exchange({}); });
}

HcclResult HcclAllReduce(void *from, void *to, uint64_t count, HcclDataType dtype, HcclReduceOp how, HcclComm group, aclrtStream stream) {
    return start("HcclAllReduce", group, stream, [=](Group &group) {
        auto parts = group.exchange(bytes_at(from, count * size_of(dtype)));
        std::memcpy(view(to), combined(parts, dtype, how).data_ptr(), count * size_of(dtype));
    });
}

HcclResult HcclReduceScatter(void *from, void *to, uint64_t count, HcclDataType dtype, HcclReduceOp how, HcclComm group, aclrtStream stream) {
    return start("HcclReduceScatter", group, stream, [=](Group &group) {
        const auto size = count * size_of(dtype);
        auto parts = group.exchange(bytes_at(from, size * group.ranks));
        const auto all = combined(parts, dtype, how);
        std::memcpy(view(to), static_cast<char *>(all.data_ptr()) + size * group.rank, size);
    });
}

HcclResult HcclAllGather(void *from, void *to, uint64_t count, HcclDataType dtype, HcclComm group, aclrtStream stream) {
    return start("HcclAllGather", group, stream, [=](Group &group) {
        const auto size = count * size_of(dtype);
        const auto parts = group.exchange(bytes_at(from, size));
        for (size_t rank = 0; rank < parts.size(); rank++) std::memcpy(static_cast<char *>(view(to)) + size * rank, parts[rank].data(), size);
    });
}

HcclResult HcclBroadcast(void *buffer, uint64_t count, HcclDataType dtype, uint32_t root, HcclComm group, aclrtStream stream) {
    return start("HcclBroadcast", group, stream, [=](Group &group) {
        const auto size = count * size_of(dtype);
        const auto parts = group.exchange(group.rank == root ? bytes_at(buffer, size) : Bytes());
        std::memcpy(view(buffer), parts.at(root).data(), size);
    });
}

HcclResult HcclAlltoAllV(const void *from, const void *fromCounts, const void *fromPlaces, HcclDataType fromType, const void *to, const void *toCounts,
                         const void *toPlaces, HcclDataType toType, HcclComm handle, aclrtStream stream) {
    const auto ranks = static_cast<Group *>(handle)->ranks;
    const auto numbers = [ranks](const void *array) {
        const auto *first = static_cast<const uint64_t *>(array);
        return std::vector<uint64_t>(first, first + ranks);
    };
    return start("HcclAlltoAllV", handle, stream,
                 [=, sends = numbers(fromCounts), leaves = numbers(fromPlaces), takes = numbers(toCounts), lies = numbers(toPlaces)](Group &group) {
                     // What goes to whom stands in front: each rank sees all parts and takes its own.
                     Bytes mine(ranks * sizeof(uint64_t));
                     std::memcpy(mine.data(), sends.data(), mine.size());
                     for (uint32_t other = 0; other < ranks; other++) {
                         const auto part = bytes_at(static_cast<const char *>(from) + leaves[other] * size_of(fromType), sends[other] * size_of(fromType));
                         mine.insert(mine.end(), part.begin(), part.end());
                     }
                     const auto parts = group.exchange(mine);
                     for (uint32_t other = 0; other < ranks; other++) {
                         const auto *counts = reinterpret_cast<const uint64_t *>(parts[other].data());
                         uint64_t before = 0;
                         for (uint32_t rank = 0; rank < group.rank; rank++) before += counts[rank];
                         TORCH_CHECK(counts[group.rank] == takes[other], "ranks ", other, " and ", group.rank, " do not agree on a size");
                         std::memcpy(static_cast<char *>(view(to)) + lies[other] * size_of(toType),
                                     parts[other].data() + ranks * sizeof(uint64_t) + before * size_of(fromType), takes[other] * size_of(toType));
                     }
                 });
}

HcclResult HcclAlltoAll(const void *from, uint64_t fromCount, HcclDataType fromType, const void *to, uint64_t toCount, HcclDataType toType, HcclComm handle, aclrtStream stream) {
    const auto ranks = static_cast<Group *>(handle)->ranks;
    std::vector<uint64_t> sends(ranks, fromCount), takes(ranks, toCount), leaves(ranks), lies(ranks);
    for (uint32_t rank = 0; rank < ranks; rank++) leaves[rank] = rank * fromCount, lies[rank] = rank * toCount;
    return HcclAlltoAllV(from, sends.data(), leaves.data(), fromType, to, takes.data(), lies.data(), toType, handle, stream);
}

}  // extern "C"
