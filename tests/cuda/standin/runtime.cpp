// The runtime: memory, streams, events and graphs. See machine.h.
#include <cuda_runtime_api.h>

#include <cstring>
#include <vector>

#include "machine.h"

using namespace machine;
using Guard = std::lock_guard<std::recursive_mutex>;

static_assert(cudaErrorCapturedEvent == cudaError_t(CAPTURED_EVENT), "the same numbers");

static const size_t BYTES = size_t(80) << 30;
static cudaError_t last = cudaSuccess;

// Every result goes through here: what failed is remembered until it is asked for.
static cudaError_t result(Error error) {
    has_context = true;
    if (error != FINE) last = cudaError_t(error);
    return cudaError_t(error);
}

// Asks a stream for something.
template <class Ask> static cudaError_t in_stream(cudaStream_t handle, Ask ask) {
    Guard guard(lock);
    Stream* stream = stream_of(handle);
    return result(stream ? ask(stream) : INVALID_HANDLE);
}

// ---- devices -----------------------------------------------------------------------------------

extern "C" cudaError_t cudaGetLastError() {
    const cudaError_t found = last;
    last = cudaSuccess;
    return found;
}

extern "C" const char* cudaGetErrorName(cudaError_t error) { return name_of(error); }
extern "C" const char* cudaGetErrorString(cudaError_t) { return trouble.c_str(); }

extern "C" cudaError_t cudaDriverGetVersion(int* version) { return *version = 12090, cudaSuccess; }
extern "C" cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 12090, cudaSuccess; }
extern "C" cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
extern "C" cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }

extern "C" cudaError_t cudaSetDevice(int device) {
    return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

extern "C" cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    switch (attribute) {
        case cudaDevAttrComputeCapabilityMajor: return *value = 9, cudaSuccess;
        case cudaDevAttrComputeCapabilityMinor: return *value = 0, cudaSuccess;
        default: return *value = 0, cudaSuccess;
    }
}

extern "C" cudaError_t cudaDeviceSynchronize() {
    Guard guard(lock);
    const Error error = refused_in_any_capture();
    return result(error ? error : drain_all());
}

// ---- memory ------------------------------------------------------------------------------------

static cudaError_t allocated(void** made, size_t bytes, Kind kind) {
    Guard guard(lock);
    return result(allocate(made, bytes, kind));
}

static cudaError_t returned(void* address, Kind kind) {
    Guard guard(lock);
    return result(give_back(address, kind));
}

extern "C" cudaError_t cudaMalloc(void** made, size_t bytes) {
    return allocated(made, bytes, Kind::DEVICE);
}
extern "C" cudaError_t cudaHostAlloc(void** made, size_t bytes, unsigned) {
    return allocated(made, bytes, Kind::PINNED);
}
extern "C" cudaError_t cudaFree(void* address) { return returned(address, Kind::DEVICE); }
extern "C" cudaError_t cudaFreeHost(void* address) { return returned(address, Kind::PINNED); }

extern "C" cudaError_t cudaMemGetInfo(size_t* left, size_t* all) {
    Guard guard(lock);
    *left = bytes_left, *all = BYTES;
    return result(FINE);
}

extern "C" cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* found, const void* address) {
    Guard guard(lock);
    const Kind kind = piece_of(address, 0).kind;
    void* given = const_cast<void*>(address);
    *found = {};
    found->type = kind == Kind::DEVICE   ? cudaMemoryTypeDevice
                  : kind == Kind::PINNED ? cudaMemoryTypeHost
                                         : cudaMemoryTypeUnregistered;
    found->device = kind == Kind::UNKNOWN ? cudaInvalidDeviceId : 0;
    found->devicePointer = kind == Kind::DEVICE ? given : nullptr;
    found->hostPointer = kind == Kind::DEVICE ? nullptr : given;
    return result(FINE);
}

// Whether an address is on the side that a copy takes it to be on.
static bool is_there(const void* address, size_t bytes, bool on_device) {
    const Kind kind = piece_of(address, bytes).kind;
    return on_device ? kind == Kind::DEVICE : piece_of(address, 0).kind != Kind::DEVICE;
}

static Error copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, Stream* stream) {
    const bool is_up = kind == cudaMemcpyHostToDevice, is_down = kind == cudaMemcpyDeviceToHost;
    if (!is_up && !is_down && kind != cudaMemcpyDeviceToDevice)
        return said(NOT_SUPPORTED, "copies within the host, and of a kind that nobody says");
    if (!bytes) return FINE;
    if (!is_there(to, bytes, !is_down) || !is_there(from, bytes, !is_up))
        return said(INVALID_VALUE, "an address of a copy is not on the side that it is said to be");
    const bool is_pageable = (is_up && piece_of(from, bytes).kind == Kind::UNKNOWN) ||
                             (is_down && piece_of(to, bytes).kind == Kind::UNKNOWN);
    if (!is_pageable) return add(stream, [=] { memcpy(to, from, bytes); });
    if (refused_in_capture(stream))
        return said(CAPTURE_UNSUPPORTED, "pageable memory in a capture");
    if (is_up) {  // it is staged before the call returns
        const char* first = static_cast<const char*>(from);
        std::vector<char> staged(first, first + bytes);
        return add(stream, [=] { memcpy(to, staged.data(), bytes); });
    }
    const Error error = add(stream, [=] { memcpy(to, from, bytes); });
    return error ? error : drain(stream);
}

extern "C" cudaError_t cudaMemcpyAsync(
    void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t handle
) {
    return in_stream(handle, [&](Stream* stream) { return copy(to, from, bytes, kind, stream); });
}

extern "C" cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return in_stream(nullptr, [&](Stream* stream) {
        const Error error = copy(to, from, bytes, kind, stream);
        return error ? error : drain(stream);
    });
}

extern "C" cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t handle) {
    return in_stream(handle, [=](Stream* stream) {
        if (!is_there(to, bytes, true)) return said(INVALID_VALUE, "bytes of the host are set");
        return add(stream, [=] { memset(to, value, bytes); });
    });
}

extern "C" cudaError_t cudaMemset(void* to, int value, size_t bytes) {
    return cudaMemsetAsync(to, value, bytes, nullptr);
}

// ---- streams -----------------------------------------------------------------------------------

extern "C" cudaError_t cudaStreamCreateWithFlags(cudaStream_t* made, unsigned flags) {
    Guard guard(lock);
    *made = reinterpret_cast<cudaStream_t>(new_stream(!(flags & cudaStreamNonBlocking)));
    return result(FINE);
}
extern "C" cudaError_t cudaStreamCreate(cudaStream_t* made) {
    return cudaStreamCreateWithFlags(made, cudaStreamDefault);
}
extern "C" cudaError_t cudaStreamCreateWithPriority(cudaStream_t* made, unsigned flags, int) {
    return cudaStreamCreateWithFlags(made, flags);
}

extern "C" cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    return in_stream(handle, end_stream);
}

extern "C" cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    return in_stream(handle, [](Stream* stream) {
        const Error error = refused_in_capture(stream);
        return error ? error : drain(stream);
    });
}

// Nothing goes on by itself, and so each question has one piece of work done: who asks often enough
// is told yes. "Not yet" is no error that is remembered.
extern "C" cudaError_t cudaStreamQuery(cudaStream_t handle) {
    bool is_done = false;
    const cudaError_t error = in_stream(handle, [&](Stream* stream) {
        const Error refused = refused_in_capture(stream);
        if (refused) return refused;
        step(stream);
        is_done = stream->waiting.empty();
        return sticky;
    });
    return error || is_done ? error : cudaErrorNotReady;
}

extern "C" cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
    return in_stream(
        handle, [=](Stream* stream) { return wait(stream, reinterpret_cast<Event*>(event)); });
}

// ---- events ------------------------------------------------------------------------------------

extern "C" cudaError_t cudaEventCreateWithFlags(cudaEvent_t* made, unsigned flags) {
    *made = reinterpret_cast<cudaEvent_t>(new Event{!(flags & cudaEventDisableTiming), nullptr});
    return result(FINE);
}
extern "C" cudaError_t cudaEventCreate(cudaEvent_t* made) {
    return cudaEventCreateWithFlags(made, 0);
}

extern "C" cudaError_t cudaEventDestroy(cudaEvent_t event) {
    Guard guard(lock);
    delete reinterpret_cast<Event*>(event);
    return result(FINE);
}

extern "C" cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
    return in_stream(
        handle, [=](Stream* stream) { return record(reinterpret_cast<Event*>(event), stream); });
}

extern "C" cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
    Guard guard(lock);
    auto ticket = reinterpret_cast<Event*>(handle)->ticket;
    if (!ticket) return result(FINE);
    if (ticket->captured)
        return result(said(CAPTURED_EVENT, "an event of a capture is waited for"));
    reach(*ticket);
    return result(sticky);
}

extern "C" cudaError_t cudaEventQuery(cudaEvent_t handle) {
    Guard guard(lock);
    auto ticket = reinterpret_cast<Event*>(handle)->ticket;
    if (!ticket) return result(FINE);
    if (ticket->captured)
        return result(said(CAPTURED_EVENT, "an event of a capture is asked for"));
    if (!ticket->done) step(ticket->stream);
    return ticket->done ? result(sticky) : cudaErrorNotReady;
}

extern "C" cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
    Guard guard(lock);
    const Event &a = *reinterpret_cast<Event*>(from), &b = *reinterpret_cast<Event*>(to);
    if (!a.is_timed || !b.is_timed || !a.ticket || !b.ticket) return result(INVALID_HANDLE);
    if (!a.ticket->done || !b.ticket->done)
        return result(said(NOT_READY, "events are not there yet"));
    *milliseconds = float((b.ticket->seconds - a.ticket->seconds) * 1e3);
    return result(FINE);
}

// ---- graphs ------------------------------------------------------------------------------------

extern "C" cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
    return in_stream(handle, [=](Stream* stream) {
        if (stream == stream_of(nullptr) || stream->capture)
            return said(CAPTURE_UNSUPPORTED, "this stream cannot be captured now");
        if (mode != cudaStreamCaptureModeRelaxed)
            return said(NOT_SUPPORTED, "only relaxed captures are modelled");
        stream->capture = std::make_unique<Graph>();
        stream->is_spoilt = false;
        return FINE;
    });
}

extern "C" cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* made) {
    *made = nullptr;
    return in_stream(handle, [=](Stream* stream) {
        if (!stream->capture) return said(INVALID_VALUE, "nothing is captured");
        std::unique_ptr<Graph> graph = std::move(stream->capture);
        if (stream->is_spoilt) return CAPTURE_INVALIDATED;
        *made = reinterpret_cast<cudaGraph_t>(graph.release());
        return FINE;
    });
}

extern "C" cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
    return in_stream(handle, [=](Stream* stream) {
        *status = !stream->capture    ? cudaStreamCaptureStatusNone
                  : stream->is_spoilt ? cudaStreamCaptureStatusInvalidated
                                      : cudaStreamCaptureStatusActive;
        return FINE;
    });
}

extern "C" cudaError_t cudaGraphInstantiate(
    cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long
) {
    *made = reinterpret_cast<cudaGraphExec_t>(new Graph(*reinterpret_cast<Graph*>(graph)));
    return result(FINE);
}

extern "C" cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t handle) {
    return in_stream(handle, [=](Stream* stream) {
        graph_launches++;
        Error error = FINE;
        for (const Work& work : reinterpret_cast<Graph*>(graph)->works)
            if (error == FINE) error = add(stream, work);
        return error;
    });
}

extern "C" cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete reinterpret_cast<Graph*>(graph);
    return result(FINE);
}
extern "C" cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
    delete reinterpret_cast<Graph*>(graph);
    return result(FINE);
}
