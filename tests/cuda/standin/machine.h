// A GPU that is none, for what is built on CUDA's driver and runtime: memory of the host, streams
// that put work off, and kernels that somebody has compiled for the host.
//
// Work of a stream is done when something waits for it, and not before: whoever reads a result too
// early, or changes too early what is still to be read, gets it wrong here each time. With
// `is_eager` it is done at once instead. Not modelled: several devices, work that runs side by
// side, and capture of more than one stream.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace machine {

using Work = std::function<void()>;

// Errors of CUDA that are found here; the driver and the runtime have the same numbers.
enum Error : int {
    FINE = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_CONTEXT = 201,
    WRONG_BINARY = 209,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    TOO_MANY_RESOURCES = 701,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_FAILED = 719,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_ISOLATION = 905,
    CAPTURE_IMPLICIT = 906,
    CAPTURED_EVENT = 907,
};

enum class Kind { UNKNOWN, DEVICE, PINNED };

// What is known of an address.
struct Piece {
    uintptr_t start = 0;
    size_t bytes = 0;
    Kind kind = Kind::UNKNOWN;
};

struct Stream;

// A place among the work of a stream.
struct Ticket {
    Stream* stream;
    bool done = false, captured = false;
    double seconds = 0;
};

struct Event {
    bool is_timed;
    std::shared_ptr<Ticket> ticket;
};

struct Graph {
    std::vector<Work> works;
};

struct Stream {
    bool is_blocking;  // waits for the stream 0, and that for it
    std::deque<Work> waiting;
    std::unique_ptr<Graph> capture;
    bool is_spoilt = false;
    bool is_busy = false;  // work in Python may let go of what waits for all streams when it ends
};

// A kernel for the host, and what a GPU would have to give it.
struct Kernel {
    // grid, block, dynamic shared memory, pointers, numbers, order of threads; returns an error
    const char* (*run)(
        const unsigned*, const unsigned*, size_t, const void*, const void*, unsigned);
    size_t pointer_bytes, number_bytes, static_shared;
    unsigned registers;
    size_t most_dynamic = 48 << 10;
};

// Held by every function of the driver and the runtime.
extern std::recursive_mutex lock;
// Orders of threads in blocks, as `host.h` takes them.
extern unsigned seed;
// Whether work is done at once.
extern bool is_eager;
// What went wrong last; what a kernel did stays, and fails all that comes behind it.
extern std::string trouble;
extern Error sticky;
// Whether the thread has a context: the driver asks for one, and the runtime makes one.
extern thread_local bool has_context;
// The same for everything else that a test counts.
extern size_t bytes_left, launches, graph_launches;

Error said(Error error, const std::string& text);
const char* name_of(int error);

// ---- memory ------------------------------------------------------------------------------------

Error allocate(void** made, size_t bytes, Kind kind);
Error give_back(void* address, Kind kind);
// What holds all the bytes; of kind UNKNOWN where nothing does.
Piece piece_of(const void* address, size_t bytes);

// ---- streams -----------------------------------------------------------------------------------

Stream* stream_of(const void* handle);  // null where there is none
Stream* new_stream(bool is_blocking);
Error end_stream(Stream* stream);
// Adds work, to the stream or to what it captures.
Error add(Stream* stream, Work work);
// Does one piece of a stream's work, if there is some.
void step(Stream* stream);
// Does all work of a stream.
Error drain(Stream* stream);
Error drain_all();
// Does what is in front of a ticket.
void reach(Ticket& ticket);
// Whether something must not be asked since a capture goes on; it spoils that.
Error refused_in_capture(Stream* stream);
Error refused_in_any_capture();

Error record(Event* event, Stream* stream);
Error wait(Stream* stream, Event* event);

}  // namespace machine
