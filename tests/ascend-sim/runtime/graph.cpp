// Graphs: work that is put into a stream while it is captured does not run, but is kept in order and runs with every replay.
// Strict where hardware might be lenient: what waits for a stream, an event or the device meanwhile is refused and spoils the graph.

#include "graph.h"
#include "acl/acl.h"
#include "device.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace ascend_sim {

struct Node {
    std::string name;
    Task task;
};

/// A graph that can be replayed. Handles stand for shared ones: a replay that is under way outlives its handle.
struct Graph {
    std::vector<Node> nodes;
};

struct Capture {
    std::shared_ptr<Graph> graph = std::make_shared<Graph>();
    /// What the client holds from the beginning on.
    std::shared_ptr<Graph> *handle = new std::shared_ptr<Graph>(graph);
    const void *origin;
    int device;
    int mode;
    std::thread::id thread = std::this_thread::get_id();
    std::set<const void *> streams;
    /// Nodes of a group that is open, from this one on.
    long group = -1;
    bool spoiled = false;
};

namespace {

/// Nodes of a graph whose arguments the client replaces later.
struct Group {
    std::shared_ptr<Graph> graph;
    size_t first, last;
};

struct Update {
    Group *group;
    size_t next;
};

struct State {
    std::mutex lock;
    std::vector<std::shared_ptr<Capture>> captures;
    std::map<const void *, Update> updates;
};

State &state() {
    static auto *state = new State;
    return *state;
}

thread_local aclmdlRICaptureMode mode_of_thread = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;

std::shared_ptr<Graph> &graph_of(aclmdlRI handle) { return *static_cast<std::shared_ptr<Graph> *>(handle); }

/// With the lock held.
std::shared_ptr<Capture> find(const void *stream) {
    for (const auto &each : state().captures) {
        if (each->streams.count(stream) != 0) return each;
    }
    return nullptr;
}

bool spoil(const char *what, const std::vector<std::shared_ptr<Capture>> &captures) {
    for (const auto &each : captures) each->spoiled = true;
    if (!captures.empty()) refuse(CAPTURED, std::string(what) + ": not while a graph is captured; the graph is spoiled");
    return !captures.empty();
}

template <class Meant> std::vector<std::shared_ptr<Capture>> those(Meant meant) {
    std::vector<std::shared_ptr<Capture>> found;
    for (const auto &each : state().captures) {
        if (meant(*each)) found.push_back(each);
    }
    return found;
}

bool is_unsafe(const Capture &capture) {
    if (mode_of_thread == ACL_MODEL_RI_CAPTURE_MODE_RELAXED || capture.mode == ACL_MODEL_RI_CAPTURE_MODE_RELAXED) return false;
    return capture.mode == ACL_MODEL_RI_CAPTURE_MODE_GLOBAL || capture.thread == std::this_thread::get_id();
}

}  // namespace

std::shared_ptr<Capture> capture_of(const void *stream) {
    std::lock_guard<std::mutex> guard(state().lock);
    return find(stream);
}

bool is_captured(void *stream) {
    std::lock_guard<std::mutex> guard(state().lock);
    return find(real_stream(stream)) != nullptr || state().updates.count(real_stream(stream)) != 0;
}

bool take_into_graph(const void *stream, const std::string &name, Task &task) {
    std::lock_guard<std::mutex> guard(state().lock);
    if (const auto update = state().updates.find(stream); update != state().updates.end()) {
        auto &[group, next] = update->second;
        if (next < group->last) group->graph->nodes[next] = {name, std::move(task)};
        next++;
        return true;
    }
    const auto capture = find(stream);
    if (capture == nullptr) return false;
    capture->graph->nodes.push_back({name, std::move(task)});
    return true;
}

int join_graph(const void *stream, const std::shared_ptr<Capture> &capture) {
    std::lock_guard<std::mutex> guard(state().lock);
    const auto own = find(stream);
    const bool live = capture != nullptr && std::count(state().captures.begin(), state().captures.end(), capture) != 0;
    if (own == nullptr && !live) return NOT_CAPTURED;
    if (own == nullptr) {
        capture->streams.insert(stream);
        return OK;
    }
    if (own == capture) return OK;
    own->spoiled = true;
    return refuse(CAPTURED, "aclrtStreamWaitEvent: a captured stream waits for an event of another time; the graph is spoiled");
}

bool spoils_stream(const char *what, const void *stream) {
    std::lock_guard<std::mutex> guard(state().lock);
    return spoil(what, those([&](const Capture &each) { return each.streams.count(stream) != 0; }));
}

bool spoils_event(const char *what, const std::shared_ptr<Capture> &capture) {
    std::lock_guard<std::mutex> guard(state().lock);
    return spoil(what, those([&](const Capture &each) { return &each == capture.get() || is_unsafe(each); }));
}

bool spoils_all(const char *what) {
    std::lock_guard<std::mutex> guard(state().lock);
    return spoil(what, those([](const Capture &each) { return each.device == current_device(); }));
}

bool spoils_unsafe(const char *what) {
    std::lock_guard<std::mutex> guard(state().lock);
    return spoil(what, those(is_unsafe));
}

}  // namespace ascend_sim

using namespace ascend_sim;

extern "C" {

aclError aclmdlRICaptureBegin(aclrtStream stream, aclmdlRICaptureMode mode) {
    const auto *captured = real_stream(stream);
    std::lock_guard<std::mutex> guard(state().lock);
    if (stream == nullptr) return refuse(INVALID, "aclmdlRICaptureBegin: the default stream cannot be captured");
    if (find(captured) != nullptr) return refuse(INVALID, "aclmdlRICaptureBegin: the stream is captured already");
    auto capture = std::make_shared<Capture>();
    capture->origin = captured;
    capture->device = current_device();
    capture->mode = mode;
    capture->streams = {captured};
    state().captures.push_back(capture);
    count("graphs", "captures");
    return OK;
}

aclError aclmdlRICaptureGetInfo(aclrtStream stream, aclmdlRICaptureStatus *status, aclmdlRI *graph) {
    std::lock_guard<std::mutex> guard(state().lock);
    const auto capture = find(real_stream(stream));
    *status = capture == nullptr  ? ACL_MODEL_RI_CAPTURE_STATUS_NONE
              : capture->spoiled ? ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED
                                 : ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE;
    *graph = capture == nullptr ? nullptr : capture->handle;
    return OK;
}

aclError aclmdlRICaptureEnd(aclrtStream stream, aclmdlRI *graph) {
    std::lock_guard<std::mutex> guard(state().lock);
    *graph = nullptr;
    const auto capture = find(real_stream(stream));
    if (capture == nullptr || capture->origin != real_stream(stream)) return refuse(INVALID, "aclmdlRICaptureEnd: no capture began on this stream");
    auto &all = state().captures;
    all.erase(std::find(all.begin(), all.end(), capture));
    if (capture->spoiled) {
        delete capture->handle;
        return refuse(CAPTURED, "aclmdlRICaptureEnd: the graph is spoiled");
    }
    *graph = capture->handle;
    count("graphs", "nodes", long(capture->graph->nodes.size()));
    return OK;
}

aclError aclmdlRICaptureThreadExchangeMode(aclmdlRICaptureMode *mode) {
    std::swap(*mode, mode_of_thread);
    return OK;
}

aclError aclmdlRIExecuteAsync(aclmdlRI handle, aclrtStream stream) {
    if (is_captured(stream)) return refuse(UNSUPPORTED, "aclmdlRIExecuteAsync: graphs in graphs are not simulated");
    auto graph = graph_of(handle);
    count("graphs", "replays");
    for (const auto &node : graph->nodes) {
        if (node.name.rfind("aclnn", 0) != 0) continue;
        count("launches", node.name.substr(5));
        trace(node.name.substr(5));
    }
    const auto latency = std::chrono::microseconds(setting("ASCEND_SIM_LATENCY", 0));
    submit(stream, "a graph", [graph, latency] {
        for (const auto &node : graph->nodes) {
            if (latency.count() > 0) std::this_thread::sleep_for(latency);
            try {
                node.task();
            } catch (const std::exception &error) {
                throw std::runtime_error(node.name + ": " + error.what());
            }
        }
    });
    return OK;
}

aclError aclmdlRIExecute(aclmdlRI handle, int32_t) {
    const auto status = aclmdlRIExecuteAsync(handle, nullptr);
    return status != OK ? status : aclrtSynchronizeStream(nullptr);
}

aclError aclmdlRIDestroy(aclmdlRI handle) {
    delete static_cast<std::shared_ptr<Graph> *>(handle);
    count("graphs", "destroyed");
    return OK;
}

aclError aclmdlRICaptureTaskGrpBegin(aclrtStream stream) {
    std::lock_guard<std::mutex> guard(state().lock);
    const auto capture = find(real_stream(stream));
    if (capture == nullptr || capture->group >= 0) return refuse(INVALID, "aclmdlRICaptureTaskGrpBegin: nothing is captured there, or a group is open");
    capture->group = long(capture->graph->nodes.size());
    return OK;
}

aclError aclmdlRICaptureTaskGrpEnd(aclrtStream stream, aclrtTaskGrp *handle) {
    std::lock_guard<std::mutex> guard(state().lock);
    const auto capture = find(real_stream(stream));
    if (capture == nullptr || capture->group < 0) return refuse(INVALID, "aclmdlRICaptureTaskGrpEnd: no group is open");
    *handle = new Group{capture->graph, size_t(capture->group), capture->graph->nodes.size()};
    capture->group = -1;
    return OK;
}

aclError aclmdlRICaptureTaskUpdateBegin(aclrtStream stream, aclrtTaskGrp handle) {
    auto *group = static_cast<Group *>(handle);
    std::lock_guard<std::mutex> guard(state().lock);
    if (!state().updates.emplace(real_stream(stream), Update{group, group->first}).second) {
        return refuse(INVALID, "aclmdlRICaptureTaskUpdateBegin: the stream updates a group already");
    }
    return OK;
}

aclError aclmdlRICaptureTaskUpdateEnd(aclrtStream stream) {
    std::lock_guard<std::mutex> guard(state().lock);
    const auto update = state().updates.find(real_stream(stream));
    if (update == state().updates.end()) return refuse(INVALID, "aclmdlRICaptureTaskUpdateEnd: nothing is updated there");
    const bool fits = update->second.next == update->second.group->last;
    state().updates.erase(update);
    return fits ? int(OK) : refuse(INVALID, "aclmdlRICaptureTaskUpdateEnd: other work than the group holds");
}

}  // extern "C"
