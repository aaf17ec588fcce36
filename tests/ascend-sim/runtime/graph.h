// Graphs that are captured from streams: what the files of the runtime ask while one is under way.
#pragma once

#include "device.h"

#include <memory>
#include <string>

namespace ascend_sim {

struct Capture;

/// The answer of `join_graph` where no graph has a part in it.
constexpr int NOT_CAPTURED = -1;

/// The stream behind a handle, also that of the default stream.
const void *real_stream(void *handle);

/// Takes work into the graph that is captured from this stream. False where none is.
bool take_into_graph(const void *stream, const std::string &name, Task &task);
/// The graph that is captured from this stream, or null.
std::shared_ptr<Capture> capture_of(const void *stream);
/// The stream waits for an event of a graph, and has a part in its capture from now on; the status of that.
int join_graph(const void *stream, const std::shared_ptr<Capture> &capture);

// What may not be done while a graph is captured. Each answers whether it is refused, says so, and spoils the graph.

/// Waiting for a stream, or asking whether it is idle.
bool spoils_stream(const char *what, const void *stream);
/// The same of an event.
bool spoils_event(const char *what, const std::shared_ptr<Capture> &capture);
/// Waiting for the device.
bool spoils_all(const char *what);
/// Calls that may wait for the device without saying so: of any thread where the capture is global, of its own thread where it is that thread's.
bool spoils_unsafe(const char *what);

}  // namespace ascend_sim
