// Dumps of operators: the file that CANN makes of each, written below the configured path, or handed in pieces to the callback that was registered. The
// file is encoded here, from the published layout; nothing of `probe` has a part in it.

#include "acl/acl.h"
#include "acl/acl_dump.h"
#include "device.h"

#include <sys/stat.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <vector>

namespace ascend_sim {
namespace {

using Callback = int32_t (*)(const acldumpChunk *, int32_t);

struct State {
    std::mutex lock;
    bool initialised = false;
    std::string path;
    Callback callback = nullptr;
    std::map<int, long> tasks;
    long files = 0;
    /// Last pieces that wait until those of other files have come.
    std::vector<std::pair<std::string, std::vector<std::string>>> held;
};

State &state() {
    static auto *state = new State;
    return *state;
}

std::atomic<bool> dumping{false};

/// The number behind a word of the switch, or `otherwise`: `lost=3`.
long word(const std::string &name, long otherwise) {
    std::istringstream words(setting("ASCEND_SIM_DUMP"));
    for (std::string each; std::getline(words, each, ',');) {
        if (each == name) return 1;
        if (each.rfind(name + "=", 0) == 0) return std::strtol(each.c_str() + name.size() + 1, nullptr, 10);
    }
    return otherwise;
}

// Protobuf: numbers of seven bits each, and fields with a length in front.
std::string varint(uint64_t number) {
    std::string bytes;
    for (; number > 0x7f; number >>= 7) bytes += char((number & 0x7f) | 0x80);
    return bytes + char(number);
}
std::string number(int field, uint64_t value) { return varint(uint64_t(field) << 3) + varint(value); }
std::string text(int field, const std::string &bytes) { return varint(uint64_t(field) << 3 | 2) + varint(bytes.size()) + bytes; }

std::string shape(int field, const std::vector<int64_t> &sizes) {
    std::string packed;
    for (const int64_t size : sizes) packed += varint(uint64_t(size));
    return text(field, text(1, packed));
}

/// Inputs and outputs number the fields behind the shape differently.
std::string described(const Dumped &tensor) {
    constexpr int ND = 2;
    const int size = tensor.is_output ? 6 : 5, original = tensor.is_output ? 7 : 6;
    return text(tensor.is_output ? 3 : 4, number(1, uint64_t(tensor.type)) + number(2, ND) + shape(3, tensor.sizes) + number(size, tensor.bytes.size()) +
                                              shape(original, tensor.sizes));
}

std::string encoded(const std::string &name, uint64_t time, const std::vector<Dumped> &tensors) {
    std::string head = text(1, "2.0") + number(2, time), payload;
    for (const bool outputs : {true, false}) {
        for (const auto &tensor : tensors) {
            if (tensor.is_output == outputs) head += described(tensor);
        }
    }
    head += text(6, name);
    for (const bool outputs : {false, true}) {
        for (const auto &tensor : tensors) {
            if (tensor.is_output == outputs) payload += tensor.bytes;
        }
    }
    const uint64_t length = head.size();
    return std::string(reinterpret_cast<const char *>(&length), sizeof length) + head + payload;
}

void make_folders(const std::string &path) {
    for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) mkdir(path.substr(0, at).c_str(), 0777);
}

/// Calls back with one piece. What it claims to hold may be more than there is.
void hand_over(Callback callback, const std::string &name, const std::string &piece, int64_t offset, bool is_last, size_t claimed) {
    std::vector<char> memory(sizeof(acldumpChunk) + piece.size());
    auto *chunk = reinterpret_cast<acldumpChunk *>(memory.data());
    std::snprintf(chunk->fileName, sizeof chunk->fileName, "%s", name.c_str());
    chunk->bufLen = uint32_t(claimed);
    chunk->isLastChunk = is_last;
    chunk->offset = offset;
    std::memcpy(chunk->dataBuf, piece.data(), piece.size());
    count("dump", "pieces");
    callback(chunk, int32_t(memory.size()));
}

void flush(State &state) {
    for (const auto &[name, pieces] : state.held) {
        for (const auto &piece : pieces) hand_over(state.callback, name, piece, -1, &piece == &pieces.back(), piece.size());
    }
    state.held.clear();
}

void deliver(State &state, const std::string &name, const std::string &file) {
    const long number = state.files++;
    const size_t size = size_t(word("pieces", 4096));
    const bool lies = number == word("lying", -1), is_lost = number == word("lost", -1), placed = word("placed", 0) != 0;
    std::vector<std::string> held;
    for (size_t start = 0; start < file.size(); start += size) {
        const auto piece = file.substr(start, size);
        const bool is_last = start + size >= file.size();
        if (is_last && is_lost) break;
        // All but the first piece come when others have begun.
        if (word("mixed", 0) != 0 && start > 0) {
            held.push_back(piece);
            continue;
        }
        hand_over(state.callback, name, piece, placed ? int64_t(start) : -1, is_last, piece.size() + (lies && start == 0 ? 1000 : 0));
    }
    if (!held.empty()) state.held.emplace_back(name, std::move(held));
    constexpr size_t MIXED = 100;
    if (state.held.size() >= MIXED) flush(state);
}

}  // namespace

bool is_dumping() { return dumping.load(); }

void dump(const char *kind, long call, const std::vector<Dumped> &tensors) {
    auto &all = state();
    std::lock_guard<std::mutex> guard(all.lock);
    if (all.path.empty()) return;
    using namespace std::chrono;
    const auto time = uint64_t(duration_cast<microseconds>(system_clock::now().time_since_epoch()).count());
    const int stream = current_stream();
    const auto name = "aclnn" + std::string(kind) + "_" + std::to_string(call);
    const auto path = all.path + "/" + kind + "." + name + "." + std::to_string(all.tasks[stream]++) + "." + std::to_string(stream) + "." + std::to_string(time);
    const auto file = encoded(name, time, tensors);
    count("dump", "files");
    if (all.callback != nullptr) return deliver(all, path, file);
    make_folders(path);
    std::ofstream(path, std::ios::binary) << file;
}

}  // namespace ascend_sim

using namespace ascend_sim;

extern "C" {

aclError aclmdlInitDump() {
    std::lock_guard<std::mutex> guard(state().lock);
    if (state().initialised) return refuse(INVALID, "aclmdlInitDump: dumps are initialised already");
    state().initialised = true;
    return OK;
}

aclError aclmdlSetDump(const char *configuration) {
    std::ifstream file(configuration);
    std::stringstream whole;
    whole << file.rdbuf();
    const auto text = whole.str();
    const auto value = [&](const std::string &key) {
        const auto found = text.find('"' + key + '"');
        const auto start = found == std::string::npos ? found : text.find('"', text.find(':', found));
        return start == std::string::npos ? std::string() : text.substr(start + 1, text.find('"', start + 1) - start - 1);
    };
    std::lock_guard<std::mutex> guard(state().lock);
    struct stat about;
    if (!state().initialised) return refuse(INVALID, "aclmdlSetDump: dumps are not initialised");
    if (value("dump_op_switch") != "on" || value("dump_mode") != "all") return refuse(UNSUPPORTED, "aclmdlSetDump: only single operators, with all tensors, are simulated");
    if (stat(value("dump_path").c_str(), &about) != 0) return refuse(INVALID, "aclmdlSetDump: there is no folder " + value("dump_path"));
    char time[32];
    const std::time_t now = std::time(nullptr);
    std::strftime(time, sizeof time, "%Y%m%d%H%M%S", std::localtime(&now));
    state().path = value("dump_path") + "/" + time + "/" + std::to_string(current_device());
    dumping = true;
    return OK;
}

aclError aclmdlFinalizeDump() {
    std::lock_guard<std::mutex> guard(state().lock);
    if (!state().initialised) return refuse(INVALID, "aclmdlFinalizeDump: dumps are not initialised");
    state().initialised = false;
    state().path.clear();
    dumping = false;
    return OK;
}

aclError acldumpRegCallback(int32_t (*const callback)(const acldumpChunk *, int32_t), int32_t flag) {
    if (callback == nullptr || flag != 0) return refuse(INVALID, "acldumpRegCallback: no callback, or a flag that is not 0");
    std::lock_guard<std::mutex> guard(state().lock);
    state().callback = callback;
    return OK;
}

void acldumpUnregCallback() {
    std::lock_guard<std::mutex> guard(state().lock);
    if (state().callback != nullptr) flush(state());
    state().callback = nullptr;
}

}  // extern "C"
