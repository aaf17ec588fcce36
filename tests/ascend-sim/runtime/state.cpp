// Switches, the last error, and what was counted.

#include "device.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>

namespace ascend_sim {
namespace {

std::mutex &lock() {
    static auto *mutex = new std::mutex;
    return *mutex;
}

std::string &error() {
    static auto *text = new std::string;
    return *text;
}

using Counts = std::map<std::string, std::map<std::string, long>>;
Counts &counts() {
    static auto *counts = new Counts;
    return *counts;
}

bool write(const char *path) {
    std::ofstream file(path);
    std::lock_guard<std::mutex> guard(lock());
    file << "{";
    const char *group_separator = "";
    for (const auto &[group, names] : counts()) {
        file << group_separator << "\n \"" << group << "\": {";
        const char *separator = "";
        for (const auto &[name, number] : names) {
            file << separator << "\n  \"" << name << "\": " << number;
            separator = ",";
        }
        file << "}";
        group_separator = ",";
    }
    file << "}\n";
    return file.good();
}

/// Writes the counts when the process ends, where that is asked for.
struct AtEnd {
    ~AtEnd() {
        const auto &path = setting("ASCEND_SIM_COUNTS");
        if (!path.empty()) write(path.c_str());
    }
} at_end;

}  // namespace

const std::string &setting(const char *name) {
    static auto *known = new std::map<std::string, std::string>;
    static auto *mutex = new std::mutex;
    std::lock_guard<std::mutex> guard(*mutex);
    auto found = known->find(name);
    if (found == known->end()) {
        const char *text = std::getenv(name);
        found = known->emplace(name, text != nullptr ? text : "").first;
    }
    return found->second;
}

long setting(const char *name, long otherwise) {
    const auto &text = setting(name);
    return text.empty() ? otherwise : std::strtol(text.c_str(), nullptr, 10);
}

int refuse(int status, const std::string &text) {
    {
        std::lock_guard<std::mutex> guard(lock());
        error() = text;
    }
    std::fprintf(stderr, "ascend-sim: %s\n", text.c_str());
    return status;
}

std::string last_error() {
    std::lock_guard<std::mutex> guard(lock());
    return error();
}

void trace(const std::string &name) {
    static std::FILE *file = setting("ASCEND_SIM_TRACE").empty() ? nullptr : std::fopen(setting("ASCEND_SIM_TRACE").c_str(), "a");
    if (file == nullptr) return;
    // One write, so that threads do not mix.
    std::fprintf(file, "%s\n", name.c_str());
    std::fflush(file);
}

void count(const char *group, const std::string &name, long amount) {
    std::lock_guard<std::mutex> guard(lock());
    counts()[group][name] += amount;
}

}  // namespace ascend_sim

/// For tests in the same process: writes what was counted so far to `path`, as JSON.
extern "C" int ascend_sim_write_counts(const char *path) { return ascend_sim::write(path) ? 0 : 1; }
/// For tests in the same process: forgets what was counted so far.
extern "C" void ascend_sim_reset_counts() {
    std::lock_guard<std::mutex> guard(ascend_sim::lock());
    ascend_sim::counts().clear();
}
