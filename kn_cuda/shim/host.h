// CUDA kernels on the host: a way to test them, not to run them fast.
//
// A thread is a fiber. The fibers of a block run one warp at a time, as far as each can go, so that
// a warp which runs ahead of the others meets what they have not written yet. They stop at
// barriers and exchanges only, which all threads of a block or warp have to reach. Which warp and
// which lane goes first follows from a seed. Shared memory holds a pattern when a block begins: 0xFF,
// NaN, in the natural order, another in others. Who touches memory that is not there is told of.
//
// Not modelled: masks that leave lanes out, tensor cores, asynchronous copies, clusters, the order in
// which memory becomes visible, and time.
#pragma once
#include <signal.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "checkers.h"

#define KN_HOST 1
#define KN_FN static inline
#define KN_DEVICE inline
#define KN_UNROLL
#define KN_SHARED(type, name, count)                                         \
    static char name##_site;                                                 \
    type* const name = static_cast<type*>(                                   \
        kn_host::shared_memory(&name##_site, sizeof(type) * (count)))
#define KN_DYNAMIC(type, name) type* const name = reinterpret_cast<type*>(kn_host::dynamic_memory)
#define KN_KERNEL(name, threads, entry, K)                                    \
    static void name##_body(const void* p, const void* n) {                  \
        entry<K>(*static_cast<const K::Pointers*>(p), *static_cast<const K::Numbers*>(n)); \
    }                                                                        \
    extern "C" const char* name(                                             \
        const unsigned* grid, const unsigned* block, size_t dynamic, const void* p,        \
        const void* n, unsigned seed) {                                      \
        return kn_host::launch(name##_body, grid, block, dynamic, p, n, seed, threads);    \
    }

struct dim3 { unsigned x, y, z; };
static dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace kn_host {

const unsigned WARP = 32, MOST_THREADS = 1024;
const size_t STACK_BYTES = 64 << 10, SHARED_BYTES = 48 << 10, GUARD_BYTES = 64;
const size_t MOST_DYNAMIC = 227 << 10;
const unsigned MOST_SITES = 64;
const size_t PAGE = 4096;
constexpr size_t whole_pages(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

// Of two orders that a barrier makes, one is that of threads that have not left the one before.
struct Barrier { unsigned arrived, generation; char orders[2]; };

struct Fiber {
    void* stack;   // where it goes on
    void* thread_of_checker;
    dim3 thread;
    unsigned lane, warp;
    bool done;
};

// Two sets of slots: one barrier an exchange is enough.
struct Warp {
    Barrier barrier;
    unsigned lanes;
    alignas(16) unsigned char slots[2][WARP][16];
};

struct Site { const void* place; size_t offset, bytes; };

static Fiber fibers[MOST_THREADS];
static Warp warps[MOST_THREADS / WARP];
static Barrier block_barrier;
static Fiber* current;
static void *scheduler, *scheduler_of_checker;
static char* stacks;
static unsigned threads, alive, progress, random_state;
static unsigned char fresh;  // fills shared memory
static char error[240];

alignas(PAGE) static unsigned char static_memory[
    whole_pages(SHARED_BYTES + MOST_SITES * GUARD_BYTES)];
alignas(PAGE) static unsigned char dynamic_memory[whole_pages(MOST_DYNAMIC + GUARD_BYTES)];
static Site sites[MOST_SITES];
static unsigned site_count;
static size_t static_end, static_bytes;

static void (*body)(const void*, const void*);
static const void *body_pointers, *body_numbers;

// ---- fibers -----------------------------------------------------------------------------------

// Saves the registers that a call preserves and the stack in `from`, and goes on at `to`.
extern "C" void kn_host_switch(void** from, void* to);
#if defined(__x86_64__)
__asm__(
    ".text\n.globl kn_host_switch\n.hidden kn_host_switch\n"
    ".type kn_host_switch,@function\nkn_host_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n");
static void* fresh_stack(char* top, void (*start)()) {
    void** stack = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t(15));
    *--stack = nullptr;  // keeps the stack aligned as behind a call
    *--stack = reinterpret_cast<void*>(start);
    return stack - 6;
}
#elif defined(__aarch64__)
__asm__(
    ".text\n.globl kn_host_switch\n.hidden kn_host_switch\n"
    ".type kn_host_switch,%function\nkn_host_switch:\nsub sp,sp,#160\n"
    "stp x19,x20,[sp]\nstp x21,x22,[sp,#16]\nstp x23,x24,[sp,#32]\nstp x25,x26,[sp,#48]\n"
    "stp x27,x28,[sp,#64]\nstp x29,x30,[sp,#80]\nstp d8,d9,[sp,#96]\nstp d10,d11,[sp,#112]\n"
    "stp d12,d13,[sp,#128]\nstp d14,d15,[sp,#144]\nmov x9,sp\nstr x9,[x0]\nmov sp,x1\n"
    "ldp x19,x20,[sp]\nldp x21,x22,[sp,#16]\nldp x23,x24,[sp,#32]\nldp x25,x26,[sp,#48]\n"
    "ldp x27,x28,[sp,#64]\nldp x29,x30,[sp,#80]\nldp d8,d9,[sp,#96]\nldp d10,d11,[sp,#112]\n"
    "ldp d12,d13,[sp,#128]\nldp d14,d15,[sp,#144]\nadd sp,sp,#160\nret\n");
static void* fresh_stack(char* top, void (*start)()) {
    char* stack = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t(15)) - 160;
    memset(stack, 0, 160);
    reinterpret_cast<void**>(stack)[11] = reinterpret_cast<void*>(start);
    return stack;
}
#else
#error "there is no switch of stacks for this processor"
#endif

KN_UNSEEN static void pause() {
    becomes(scheduler_of_checker);
    kn_host_switch(&current->stack, scheduler);
}

KN_UNSEEN static void run_thread() {
    body(body_pointers, body_numbers);
    arrives(&scheduler);
    current->done = true;
    alive--;
    progress++;
    for (;;) pause();
}

// Waits for all: a GPU forgives threads that have returned, and waits forever for others.
KN_UNSEEN static void meet(Barrier& barrier, unsigned count, bool orders) {
    const unsigned generation = barrier.generation;
    char* const order = barrier.orders + generation % 2;
    if (orders) arrives(order);
    if (++barrier.arrived == count) {
        barrier.arrived = 0;
        barrier.generation++;
        progress++;
    } else while (barrier.generation == generation) pause();
    if (orders) leaves(order);
}

// ---- shared memory ----------------------------------------------------------------------------

// All threads of a block that come to a declaration get the same memory.
KN_UNSEEN static void* shared_memory(const void* place, size_t bytes) {
    for (unsigned i = 0; i < site_count; i++)
        if (sites[i].place == place) return static_memory + sites[i].offset;
    static_bytes += bytes;
    if (static_bytes > SHARED_BYTES || site_count == MOST_SITES) {
        snprintf(error, sizeof error, "%zu bytes of static shared memory, at most %zu are there",
                 static_bytes, SHARED_BYTES);
        pause();
    }
    sites[site_count++] = {place, static_end, bytes};
    unsigned char* found = static_memory + static_end;
    static_end += (bytes + 15) / 16 * 16 + GUARD_BYTES;
    allow(found, bytes);
    return found;
}

KN_UNSEEN static bool untouched(const unsigned char* from, const unsigned char* to) {
    while (from < to) if (*from++ != fresh) return false;
    return true;
}

KN_UNSEEN static void check_shared(size_t dynamic) {
    for (unsigned i = 0; i < site_count && !error[0]; i++) {
        const unsigned char* end = static_memory + sites[i].offset + sites[i].bytes;
        const unsigned char* next =
            static_memory + (i + 1 < site_count ? sites[i + 1].offset : static_end);
        if (!untouched(end, next))
            snprintf(error, sizeof error, "block %u wrote behind the %zu bytes of a shared array",
                     blockIdx.x, sites[i].bytes);
    }
    if (!error[0] && !untouched(dynamic_memory + dynamic, dynamic_memory + dynamic + GUARD_BYTES))
        snprintf(error, sizeof error, "block %u wrote behind its %zu bytes of dynamic shared memory",
                 blockIdx.x, dynamic);
}

// ---- blocks -----------------------------------------------------------------------------------

static unsigned random_below(unsigned count) {
    if (!random_state) return 0;
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state % count;
}

KN_UNSEEN static void begin_block(size_t dynamic) {
    renew(static_memory, sizeof static_memory);
    renew(dynamic_memory, sizeof dynamic_memory);
    renew(stacks, threads * STACK_BYTES);
    allow(static_memory, sizeof static_memory);
    allow(dynamic_memory, sizeof dynamic_memory);
    allow(stacks, threads * STACK_BYTES);
    memset(static_memory, fresh, static_end ? static_end : sizeof static_memory);
    memset(dynamic_memory, fresh, dynamic + GUARD_BYTES);
    forbid(static_memory, sizeof static_memory);
    forbid(dynamic_memory + dynamic, sizeof dynamic_memory - dynamic);
    site_count = 0;
    static_end = static_bytes = 0;
    block_barrier = {};
    for (unsigned w = 0; w * WARP < threads; w++) warps[w].lanes = 0, warps[w].barrier = {};
    for (unsigned i = 0; i < threads; i++) {
        Fiber& fiber = fibers[i];
        fiber.thread = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
        fiber.lane = i % WARP;
        fiber.warp = i / WARP;
        fiber.done = false;
        fiber.stack = fresh_stack(stacks + (i + 1) * STACK_BYTES, run_thread);
        fiber.thread_of_checker = new_thread();
        warps[fiber.warp].lanes++;
    }
    alive = threads;
}

// Runs the lanes of a warp until none gets any further.
KN_UNSEEN static void run_warp(unsigned w) {
    const unsigned lanes = warps[w].lanes, first = random_below(lanes);
    for (unsigned seen = progress - 1; seen != progress && !error[0];) {
        seen = progress;
        for (unsigned k = 0; k < lanes && !error[0]; k++) {
            Fiber& fiber = fibers[w * WARP + (first + k) % lanes];
            if (fiber.done) continue;
            current = &fiber;
            threadIdx = fiber.thread;
            becomes(fiber.thread_of_checker);
            kn_host_switch(&scheduler, fiber.stack);
            current = nullptr;
        }
    }
}

KN_UNSEEN static void run_block(size_t dynamic) {
    begin_block(dynamic);
    const unsigned count = (threads + WARP - 1) / WARP;
    while (alive && !error[0]) {
        const unsigned before = progress, first = random_below(count);
        const unsigned step = random_below(2) ? count - 1 : 1;
        for (unsigned k = 0; k < count && !error[0]; k++) run_warp((first + k * step) % count);
        if (alive && before == progress && !error[0])
            snprintf(error, sizeof error,
                     "block %u: %u of %u threads wait at a barrier that the others never reach",
                     blockIdx.x, alive, threads);
    }
    for (unsigned i = 0; i < threads; i++) end_thread(fibers[i].thread_of_checker);
    check_shared(dynamic);
}

// While kernels run: who touches a page that is not there stops, and so does the launch. Traps of
// the compiler stand where the text does what C++ leaves undefined.
struct Watch {
    static const int COUNT = 4;
    static constexpr int signals[COUNT] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP};
    struct sigaction before[COUNT];

    static void caught(int number, siginfo_t* about, void*) {
        if (!current) {  // not a kernel's fault
            signal(number, SIG_DFL);
            return;
        }
        const bool memory = number == SIGSEGV || number == SIGBUS;
        snprintf(error, sizeof error, "thread %u of block %u %s, at %p",
                 unsigned(current - fibers), blockIdx.x,
                 memory ? "touched memory that is not there" : "did what C++ leaves undefined",
                 about->si_addr);
        pause();
    }
    Watch() {
        struct sigaction own = {};
        own.sa_sigaction = caught;
        own.sa_flags = SA_SIGINFO | SA_NODEFER;  // the handler never returns
        for (int i = 0; i < COUNT; i++) sigaction(signals[i], &own, &before[i]);
    }
    ~Watch() {
        for (int i = 0; i < COUNT; i++) sigaction(signals[i], &before[i], nullptr);
    }
};

// Returns what went wrong, or null.
KN_UNSEEN static const char* launch(
    void (*kernel)(const void*, const void*), const unsigned* grid, const unsigned* block,
    size_t dynamic, const void* pointers, const void* numbers, unsigned seed, unsigned bound
) {
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    const unsigned long long blocks = 1ull * grid[0] * grid[1] * grid[2];
    threads = block[0] * block[1] * block[2];
    if (!blocks || !threads || threads > MOST_THREADS || block[2] > 64 || grid[0] > 0x7fffffff ||
        grid[1] > 65535 || grid[2] > 65535)
        return "no GPU launches such a grid";
    if (threads > bound) return "there are more threads than the kernel is compiled for";
    if (dynamic > MOST_DYNAMIC) return "no GPU has as much shared memory";
    if (!stacks) stacks = static_cast<char*>(aligned_alloc(4096, MOST_THREADS * STACK_BYTES));
    body = kernel, body_pointers = pointers, body_numbers = numbers;
    random_state = seed;
    fresh = seed ? 0x7f : 0xff;
    static_end = 0;
    error[0] = 0;
    scheduler_of_checker = own_thread();
    const Watch watch;
    const unsigned long long first = seed ? random_below(unsigned(blocks)) : 0;
    for (unsigned long long k = 0; k < blocks && !error[0]; k++) {
        const unsigned long long i = (first + k) % blocks;
        blockIdx = {unsigned(i % grid[0]), unsigned(i / grid[0] % grid[1]),
                    unsigned(i / grid[0] / grid[1])};
        run_block(dynamic);
    }
    leaves(&scheduler);
    return error[0] ? error : nullptr;
}

// Every lane gives a value and takes that of another lane.
template <class T> KN_UNSEEN static T exchange(unsigned mask, T x, unsigned from, bool orders) {
    static_assert(sizeof(T) <= 16, "at most 16 bytes go from lane to lane");
    Warp& warp = warps[current->warp];
    const unsigned all = warp.lanes == WARP ? ~0u : (1u << warp.lanes) - 1;
    if ((mask & all) != all)
        snprintf(error, sizeof error, "warp mask %08x is not all %u lanes", mask, warp.lanes);
    if (warp.lanes != WARP)
        snprintf(error, sizeof error, "an exchange in a warp of %u lanes", warp.lanes);
    auto& slots = warp.slots[warp.barrier.generation & 1];
    memcpy(slots[current->lane], &x, sizeof x);
    meet(warp.barrier, warp.lanes, orders);
    T taken;
    memcpy(&taken, slots[from % WARP], sizeof taken);
    return taken;
}

}  // namespace kn_host

#include "intrinsics.h"
