#include "machine.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>

namespace machine {

std::recursive_mutex lock;
unsigned seed = 0;
bool is_eager = false;
std::string trouble;
Error sticky = FINE;
thread_local bool has_context = false;
size_t bytes_left = size_t(4) << 30, launches = 0, graph_launches = 0;

static const size_t PAGE = 4096;
static std::map<uintptr_t, Piece> pieces;  // by the address of their first byte
static Stream legacy{true};
static std::vector<Stream*> streams{&legacy};

Error said(Error error, const std::string& text) {
    trouble = text;
    return error;
}

const char* name_of(int error) {
    static const std::map<int, const char*> names{
        {FINE, "no error"},
        {INVALID_VALUE, "invalid value"},
        {OUT_OF_MEMORY, "out of memory"},
        {INVALID_CONTEXT, "invalid context"},
        {WRONG_BINARY, "no binary for this GPU"},
        {INVALID_HANDLE, "invalid handle"},
        {NOT_FOUND, "not found"},
        {NOT_READY, "not ready"},
        {TOO_MANY_RESOURCES, "too many resources"},
        {ILLEGAL_ADDRESS, "illegal address"},
        {LAUNCH_FAILED, "launch failed"},
        {NOT_SUPPORTED, "not supported"},
        {CAPTURE_UNSUPPORTED, "unsupported while a stream is captured"},
        {CAPTURE_INVALIDATED, "the capture was spoilt"},
        {CAPTURE_ISOLATION, "an event that is not of the capture"},
        {CAPTURE_IMPLICIT, "the stream 0 waits for a stream that is captured"},
        {CAPTURED_EVENT, "an event of a capture"},
    };
    const auto found = names.find(error);
    return found == names.end() ? "another error" : found->second;
}

// ---- memory ------------------------------------------------------------------------------------

// Memory ends where a page begins that nobody may touch, and another one is in front.
Error allocate(void** made, size_t bytes, Kind kind) {
    const size_t rounded = std::max<size_t>((bytes + 511) / 512 * 512, 512);
    if (kind == Kind::DEVICE && rounded > bytes_left) return OUT_OF_MEMORY;
    const size_t whole = (rounded + PAGE - 1) / PAGE * PAGE;
    void* found = mmap(nullptr, whole + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED) return OUT_OF_MEMORY;
    char* inner = static_cast<char*>(found) + PAGE;
    mprotect(inner, whole, PROT_READ | PROT_WRITE);
    memset(inner, 0xff, whole);
    char* start = inner + whole - rounded;
    if (kind == Kind::DEVICE) bytes_left -= rounded;
    pieces[reinterpret_cast<uintptr_t>(start)] = {
        reinterpret_cast<uintptr_t>(start), rounded, kind};
    *made = start;
    return FINE;
}

Error give_back(void* address, Kind kind) {
    if (!address) return FINE;
    const auto found = pieces.find(reinterpret_cast<uintptr_t>(address));
    if (found == pieces.end() || found->second.kind != kind)
        return said(INVALID_VALUE, "memory is given back that nobody got");
    const Error error = drain_all();
    const Piece piece = found->second;
    pieces.erase(found);
    const uintptr_t inner = piece.start / PAGE * PAGE;
    munmap(reinterpret_cast<void*>(inner - PAGE), piece.start + piece.bytes - inner + 2 * PAGE);
    if (kind == Kind::DEVICE) bytes_left += piece.bytes;
    return error;
}

Piece piece_of(const void* address, size_t bytes) {
    const uintptr_t place = reinterpret_cast<uintptr_t>(address);
    auto found = pieces.upper_bound(place);
    if (found == pieces.begin()) return {};
    const Piece piece = std::prev(found)->second;
    return place + bytes <= piece.start + piece.bytes ? piece : Piece{};
}

// ---- streams -----------------------------------------------------------------------------------

Stream* stream_of(const void* handle) {
    if (reinterpret_cast<uintptr_t>(handle) <= 1) return &legacy;
    for (Stream* stream : streams) if (stream == handle) return stream;
    said(INVALID_HANDLE, "there is no such stream");
    return nullptr;
}

Stream* new_stream(bool is_blocking) {
    streams.push_back(new Stream{is_blocking});
    return streams.back();
}

Error end_stream(Stream* stream) {
    const Error error = drain(stream);
    streams.erase(std::find(streams.begin(), streams.end(), stream));
    return error;  // the object stays, for tickets of its work
}

void step(Stream* stream) {
    if (stream->waiting.empty() || stream->is_busy) return;
    Work work = std::move(stream->waiting.front());
    stream->waiting.pop_front();
    stream->is_busy = true;
    if (sticky == FINE) work();
    stream->is_busy = false;
}

Error drain(Stream* stream) {
    while (!stream->waiting.empty() && !stream->is_busy) step(stream);
    return sticky;
}

Error drain_all() {
    for (Stream* stream : streams) drain(stream);
    return sticky;
}

void reach(Ticket& ticket) {
    Stream* stream = ticket.stream;
    while (!ticket.done && !stream->waiting.empty() && !stream->is_busy) step(stream);
}

static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

static std::shared_ptr<Ticket> new_ticket(Stream* stream) {
    auto ticket = std::make_shared<Ticket>(Ticket{stream});
    stream->waiting.push_back([ticket] { ticket->done = true, ticket->seconds = now(); });
    return ticket;
}

static void wait_for(Stream* stream, std::shared_ptr<Ticket> ticket) {
    stream->waiting.push_back([ticket] { reach(*ticket); });
}

// The stream 0 comes behind all work of blocking streams, and they come behind its work.
static Error wait_for_legacy(Stream* stream) {
    if (!stream->is_blocking) return FINE;
    for (Stream* other : streams) {
        const bool is_pair = stream == &legacy || other == &legacy;
        if (other == stream || !other->is_blocking || !is_pair) continue;
        if (other->capture) {
            other->is_spoilt = true;
            return said(CAPTURE_IMPLICIT, "the stream 0 is used while a blocking one is captured");
        }
        if (!other->waiting.empty()) wait_for(stream, new_ticket(other));
    }
    return FINE;
}

Error add(Stream* stream, Work work) {
    if (sticky != FINE) return sticky;
    if (stream->capture) {
        if (stream->is_spoilt) return CAPTURE_INVALIDATED;
        stream->capture->works.push_back(std::move(work));
        return FINE;
    }
    const Error error = wait_for_legacy(stream);
    if (error != FINE) return error;
    stream->waiting.push_back(std::move(work));
    return is_eager ? drain(stream) : FINE;
}

Error refused_in_capture(Stream* stream) {
    if (!stream->capture) return FINE;
    stream->is_spoilt = true;
    return said(CAPTURE_UNSUPPORTED, "a stream is waited for while it is captured");
}

Error refused_in_any_capture() {
    for (Stream* stream : streams)
        if (refused_in_capture(stream) != FINE) return CAPTURE_UNSUPPORTED;
    return FINE;
}

Error record(Event* event, Stream* stream) {
    if (stream->capture) {
        event->ticket = std::make_shared<Ticket>(Ticket{stream, false, true});
        return FINE;
    }
    const Error error = wait_for_legacy(stream);
    if (error != FINE) return error;
    event->ticket = new_ticket(stream);
    return is_eager ? drain(stream) : sticky;
}

Error wait(Stream* stream, Event* event) {
    if (!event->ticket) return FINE;  // what was never recorded is no reason to wait
    if (event->ticket->captured)
        return said(NOT_SUPPORTED, "one stream waits for the capture of another");
    if (stream->capture) {
        stream->is_spoilt = true;
        return said(CAPTURE_ISOLATION, "a capture waits for an event from outside");
    }
    wait_for(stream, event->ticket);
    return is_eager ? drain(stream) : sticky;
}

}  // namespace machine
