// Streams and events. Each stream is a thread and a queue: work runs in order within a stream, and between streams only as
// events say.

#include "acl/acl.h"
#include "device.h"
#include "graph.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

namespace ascend_sim {
namespace {

thread_local int stream_of_thread = 0;

class Stream {
public:
    Stream(int device, int number) : device(device), number(number), thread_([this] { run(); }) {}

    ~Stream() {
        {
            std::lock_guard<std::mutex> guard(lock_);
            ends_ = true;
        }
        arrived_.notify_one();
        thread_.join();
    }

    /// Puts work into the queue, or into the graph that is being captured.
    void push(std::string name, Task task) {
        if (take_into_graph(this, name, task)) return;
        {
            std::lock_guard<std::mutex> guard(lock_);
            waiting_.push_back({std::move(name), std::move(task)});
        }
        arrived_.notify_one();
    }

    /// Waits until everything is done. The failure of a task is said once.
    int finish() {
        std::unique_lock<std::mutex> guard(lock_);
        idle_.wait(guard, [this] { return waiting_.empty() && !works_; });
        if (failure_.empty()) return OK;
        const auto failure = std::move(failure_);
        failure_.clear();
        guard.unlock();
        return refuse(KERNEL_FAILED, failure);
    }

    bool is_idle() {
        std::lock_guard<std::mutex> guard(lock_);
        return waiting_.empty() && !works_;
    }

    const int device;
    const int number;

private:
    struct Named {
        std::string name;
        Task task;
    };

    void run() {
        const auto latency = std::chrono::microseconds(setting("ASCEND_SIM_LATENCY", 0));
        stream_of_thread = number;
        std::unique_lock<std::mutex> guard(lock_);
        for (;;) {
            arrived_.wait(guard, [this] { return ends_ || !waiting_.empty(); });
            if (waiting_.empty()) return;
            Named next = std::move(waiting_.front());
            waiting_.pop_front();
            works_ = true;
            guard.unlock();
            if (latency.count() > 0) std::this_thread::sleep_for(latency);
            std::string failure;
            try {
                next.task();
            } catch (const std::exception &error) {
                // Torch's errors go on with where they came from.
                const std::string text = error.what();
                failure = next.name + ": " + text.substr(0, text.find('\n'));
            }
            next.task = nullptr;
            guard.lock();
            works_ = false;
            if (failure_.empty()) failure_ = std::move(failure);
            if (waiting_.empty()) idle_.notify_all();
        }
    }

    std::mutex lock_;
    std::condition_variable arrived_, idle_;
    std::deque<Named> waiting_;
    bool works_ = false, ends_ = false;
    std::string failure_;
    std::thread thread_;
};

struct Streams {
    std::mutex lock;
    std::map<Stream *, std::shared_ptr<Stream>> all;
    std::map<int, Stream *> defaults;
    int made = 0;

    Stream *make(int device) {
        auto stream = std::make_shared<Stream>(device, ++made);
        all[stream.get()] = stream;
        return stream.get();
    }
};

Streams &streams() {
    static auto *streams = new Streams;
    return *streams;
}

Stream &stream_of(void *handle) {
    if (handle != nullptr) return *static_cast<Stream *>(handle);
    std::lock_guard<std::mutex> guard(streams().lock);
    auto &made = streams().defaults[current_device()];
    if (made == nullptr) made = streams().make(current_device());
    return *made;
}

/// How often it was recorded, and which of these were not reached yet. Handles are used again, on other streams as well, where a later record may be
/// reached before an earlier one: each is waited for by itself.
struct Event {
    std::mutex lock;
    std::condition_variable reached;
    long recorded = 0;
    std::set<long> open;
    uint64_t microseconds = 0;
    /// The graph that it was recorded in last, which alone it orders.
    std::weak_ptr<Capture> capture;

    long last_recorded() {
        std::lock_guard<std::mutex> guard(lock);
        return recorded;
    }

    std::shared_ptr<Capture> captured() {
        std::lock_guard<std::mutex> guard(lock);
        return capture.lock();
    }

    bool is_done() {
        std::lock_guard<std::mutex> guard(lock);
        return open.count(recorded) == 0;
    }

    void wait(long number) {
        std::unique_lock<std::mutex> guard(lock);
        reached.wait(guard, [&] { return open.count(number) == 0; });
    }
};

/// Handles stand for shared events: work in a stream may outlive the handle.
using Shared = std::shared_ptr<Event>;
Shared &event_of(aclrtEvent handle) { return *static_cast<Shared *>(handle); }

uint64_t now() {
    using namespace std::chrono;
    return uint64_t(duration_cast<microseconds>(steady_clock::now().time_since_epoch()).count());
}

}  // namespace

int current_stream() { return stream_of_thread; }

const void *real_stream(void *handle) { return &stream_of(handle); }

void submit(void *stream, const std::string &name, Task task) { stream_of(stream).push(name, std::move(task)); }

int finish_device(int device) {
    std::map<Stream *, std::shared_ptr<Stream>> all;
    {
        std::lock_guard<std::mutex> guard(streams().lock);
        all = streams().all;
    }
    int status = OK;
    for (auto &[_, stream] : all) {
        if (stream->device != device) continue;
        const int found = stream->finish();
        if (status == OK) status = found;
    }
    return status;
}

}  // namespace ascend_sim

using namespace ascend_sim;

extern "C" {

aclError aclrtCreateStreamWithConfig(aclrtStream *stream, uint32_t, uint32_t) {
    std::lock_guard<std::mutex> guard(streams().lock);
    *stream = streams().make(current_device());
    return OK;
}

aclError aclrtCreateStream(aclrtStream *stream) { return aclrtCreateStreamWithConfig(stream, 0, 0); }

aclError aclrtDestroyStream(aclrtStream stream) {
    std::shared_ptr<Stream> last;
    std::lock_guard<std::mutex> guard(streams().lock);
    const auto found = streams().all.find(static_cast<Stream *>(stream));
    if (found == streams().all.end()) return INVALID;
    last = found->second;
    streams().all.erase(found);
    return OK;
}

aclError aclrtDestroyStreamForce(aclrtStream stream) { return aclrtDestroyStream(stream); }

aclError aclrtSynchronizeStream(aclrtStream stream) {
    count("waits", "aclrtSynchronizeStream");
    auto &waited = stream_of(stream);
    return spoils_stream("aclrtSynchronizeStream", &waited) ? int(CAPTURED) : waited.finish();
}

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t) { return aclrtSynchronizeStream(stream); }

aclError aclrtSynchronizeDevice() {
    count("waits", "aclrtSynchronizeDevice");
    if (spoils_all("aclrtSynchronizeDevice")) return CAPTURED;
    return finish_device(current_device());
}

aclError aclrtSynchronizeDeviceWithTimeout(int32_t) { return aclrtSynchronizeDevice(); }

aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus *status) {
    auto &asked = stream_of(stream);
    if (spoils_stream("aclrtStreamQuery", &asked)) return CAPTURED;
    *status = asked.is_idle() ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
    return OK;
}

aclError aclrtStreamGetId(aclrtStream stream, int32_t *number) {
    *number = stream_of(stream).number;
    return OK;
}

aclError aclrtSetStreamFailureMode(aclrtStream, uint64_t) { return OK; }

aclError aclrtCreateEventExWithFlag(aclrtEvent *event, uint32_t) {
    *event = new Shared(std::make_shared<Event>());
    return OK;
}

aclError aclrtCreateEventWithFlag(aclrtEvent *event, uint32_t flag) { return aclrtCreateEventExWithFlag(event, flag); }

aclError aclrtDestroyEvent(aclrtEvent event) {
    delete static_cast<Shared *>(event);
    return OK;
}

aclError aclrtResetEvent(aclrtEvent, aclrtStream) { return OK; }

aclError aclrtRecordEvent(aclrtEvent handle, aclrtStream stream) {
    Shared event = event_of(handle);
    auto capture = capture_of(&stream_of(stream));
    long number = 0;
    {
        std::lock_guard<std::mutex> guard(event->lock);
        event->capture = capture;
        // In a graph it orders what is captured, and nothing that runs.
        if (capture != nullptr) return OK;
        number = ++event->recorded;
        event->open.insert(number);
    }
    stream_of(stream).push("event", [event, number] {
        std::lock_guard<std::mutex> guard(event->lock);
        event->open.erase(number);
        event->microseconds = now();
        event->reached.notify_all();
    });
    return OK;
}

aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent handle) {
    Shared event = event_of(handle);
    auto &waits = stream_of(stream);
    if (const int status = join_graph(&waits, event->captured()); status != NOT_CAPTURED) return status;
    const long number = event->last_recorded();
    waits.push("wait for an event", [event, number] { event->wait(number); });
    return OK;
}

aclError aclrtSynchronizeEvent(aclrtEvent handle) {
    count("waits", "aclrtSynchronizeEvent");
    Shared event = event_of(handle);
    if (spoils_event("aclrtSynchronizeEvent", event->captured())) return CAPTURED;
    event->wait(event->last_recorded());
    return OK;
}

aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus *status) {
    if (spoils_event("aclrtQueryEventStatus", event_of(event)->captured())) return CAPTURED;
    *status = event_of(event)->is_done() ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
    return OK;
}

aclError aclQueryEventRecordedStatus(aclrtEvent event, aclrtEventRecordedStatus *status) {
    return aclrtQueryEventStatus(event, status);
}

aclError aclrtQueryEventWaitStatus(aclrtEvent event, aclrtEventWaitStatus *status) {
    if (spoils_event("aclrtQueryEventWaitStatus", event_of(event)->captured())) return CAPTURED;
    *status = event_of(event)->is_done() ? ACL_EVENT_WAIT_STATUS_COMPLETE : ACL_EVENT_WAIT_STATUS_NOT_READY;
    return OK;
}

aclError aclrtEventElapsedTime(float *milliseconds, aclrtEvent first, aclrtEvent last) {
    const auto from = event_of(first)->microseconds, to = event_of(last)->microseconds;
    *milliseconds = float(double(to) - double(from)) / 1000;
    return OK;
}

aclError aclrtEventGetTimestamp(aclrtEvent event, uint64_t *microseconds) {
    *microseconds = event_of(event)->microseconds;
    return OK;
}

}  // extern "C"
