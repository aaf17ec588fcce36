// What the libraries of the simulated device share: memory, streams, errors, counts and switches.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ascend_sim {

/// Codes of the runtime that torch_npu tells apart, or that are simply not zero.
enum Status : int {
    OK = 0,
    INVALID = 107000,
    OUT_OF_MEMORY = 207001,
    UNSUPPORTED = 207000,
    KERNEL_FAILED = 507035,
    /// Not permitted while a graph is captured, which is spoiled.
    CAPTURED = 107029,
};

/// The text of a switch; empty where it is not set.
const std::string &setting(const char *name);
/// The number of a switch, or `otherwise`.
long setting(const char *name, long otherwise);

/// Notes `text` as the last error, says it on standard error, and returns `status`.
int refuse(int status, const std::string &text);
/// The last error of this process.
std::string last_error();

/// Whether an address is one of a device.
bool is_device(const void *address);
/// Where the simulator sees what a client sees at `address`. Addresses of the host stay as they are.
void *view(const void *address);
/// Whether `size` bytes from `address` on lie in one allocation; always so on the host.
bool is_allocated(const void *address, size_t size);

/// Most devices of a process.
constexpr int MAX_DEVICES = 8;

using Task = std::function<void()>;
/// Puts work into a stream. What it throws fails the stream: the next synchronisation returns it, as on hardware.
void submit(void *stream, const std::string &name, Task task);
/// Number of the device that this thread uses.
int current_device();
/// Number of the stream whose work this thread does; 0 where it does none.
int current_stream();

/// A tensor of an operator as it goes into a dump.
struct Dumped {
    bool is_output;
    /// In the enumeration of dump files.
    int type;
    std::vector<int64_t> sizes;
    std::string bytes;
};
/// Whether operators are dumped.
bool is_dumping();
/// Dumps call `call` of an operator, by the thread that did its work.
void dump(const char *kind, long call, const std::vector<Dumped> &tensors);

/// Whether what is put into a stream becomes part of a graph, or changes one, and runs with its replays alone.
bool is_captured(void *stream);
/// Writes the name of an operator to the file of `ASCEND_SIM_TRACE`, where that is asked for.
void trace(const std::string &name);

/// Counts something under a name, such as a launch.
void count(const char *group, const std::string &name, long amount = 1);

/// Adds the time of its life to what the host has spent under a name, in nanoseconds.
class Timed {
public:
    explicit Timed(const char *name) : name_(name), since_(std::chrono::steady_clock::now()) {}
    ~Timed() { count("host_ns", name_, std::chrono::nanoseconds(std::chrono::steady_clock::now() - since_).count()); }

private:
    const char *name_;
    std::chrono::steady_clock::time_point since_;
};

}  // namespace ascend_sim
