// Runs lists of steps, with the help of other threads where a step has several chunks of units.
//
// The chunks of a step are dealt in parts, one for each thread, to the caller as to everybody else. A
// thread begins with its part, the same one in each step: what it reads there it has mostly written itself,
// and moving data from the cache of one core to that of another takes longer than most steps. Who is done
// with its part goes on with those of others. The caller waits only for chunks that somebody has taken: a
// helper that is not running, or never started, costs nothing. One crew of helpers serves the process. It
// works for one run at a time; a run that comes while it is busy goes alone, with the same results, as units
// do not depend on threads.
#include "run.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_HELPERS = 255 };

static void sleep_while(_Atomic uint32_t *word, uint32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}
static void wake(_Atomic uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0); }
#else
enum { MAX_HELPERS = 0 }; // the caller does everything

static void sleep_while(_Atomic uint32_t *word, uint32_t value) { (void)word, (void)value; }
static void wake(_Atomic uint32_t *word) { (void)word; }
#endif

enum {
    MAX_PARTS = 16, // of the chunks of a step
    LINE = 64,      // of the cache: what different threads write lies on lines of its own
    SPINS = 1500,   // turns before a thread sleeps within a run: some 20 microseconds
};

static inline void pause_briefly(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// The step that is dealt. A ticket has its number in the high half, and in the low one how many chunks
// are left of its part: who counts that down has taken a chunk of just that step, and the caller does not
// touch the other fields before it is done. So what was read before a ticket that still holds belongs to
// it; a ticket of 0 chunks is of no use whatever the fields say.
static struct {
    struct {
        _Alignas(LINE) _Atomic uint64_t ticket;
    } part[MAX_PARTS];
    _Alignas(LINE) _Atomic uint32_t done; // chunks; the caller may sleep on it
    _Atomic uint32_t caller_sleeps;
    _Alignas(LINE) _Atomic uint32_t chunks;
    _Atomic uint32_t parts;
    _Atomic uint32_t wanted; // helpers that this run may use
    _Atomic uint32_t busy;   // whether a run goes on: helpers then spin before they sleep
    _Atomic(kn_kernel) run;
    _Atomic(const int64_t *) n;
    _Atomic(char *const *) p;
    _Atomic int64_t units, grain, scratch;
} step_now;

static struct helper {
    _Alignas(LINE) _Atomic uint32_t news; // goes up when there is a step to help with
    _Atomic uint32_t sleeps;
    uint32_t number;
} crew[MAX_HELPERS + 1];

static pthread_mutex_t crew_taken = PTHREAD_MUTEX_INITIALIZER; // by the run it works for
static _Atomic int crew_size;
static pthread_once_t prepared = PTHREAD_ONCE_INIT;

// ---- scratch of each thread -----------------------------------------------------------------

static pthread_key_t scratch_key; // frees the scratch of a thread that ends
static _Thread_local char *scratch;
static _Thread_local int64_t scratch_size;

// Makes the scratch of this thread large enough; returns whether it is.
static int grow_scratch(int64_t size) {
    if (size <= scratch_size) return 1;
    size = (size + 4095) & ~(int64_t)4095;
    char *larger = aligned_alloc(LINE, (size_t)size);
    if (larger == NULL) return 0;
    free(scratch);
    scratch = larger;
    scratch_size = size;
    pthread_setspecific(scratch_key, larger);
    return 1;
}

// ---- dealing --------------------------------------------------------------------------------

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Behind which chunk a part ends.
static uint32_t end_of(uint32_t part, uint32_t parts, uint32_t chunks) {
    return (uint32_t)((uint64_t)chunks * (part + 1) / parts);
}

// Takes and does chunks of one part of the step that is dealt, until there are none.
static void do_part(uint32_t number, uint32_t part) {
    _Atomic uint64_t *from = &step_now.part[part].ticket;
    uint64_t ticket = atomic_load_explicit(from, memory_order_acquire);
    for (;;) {
        kn_kernel run = atomic_load_explicit(&step_now.run, memory_order_relaxed);
        const int64_t *n = atomic_load_explicit(&step_now.n, memory_order_relaxed);
        char *const *p = atomic_load_explicit(&step_now.p, memory_order_relaxed);
        int64_t units = atomic_load_explicit(&step_now.units, memory_order_relaxed);
        int64_t grain = atomic_load_explicit(&step_now.grain, memory_order_relaxed);
        int64_t bytes = atomic_load_explicit(&step_now.scratch, memory_order_relaxed);
        uint32_t chunks = atomic_load_explicit(&step_now.chunks, memory_order_relaxed);
        uint32_t parts = atomic_load_explicit(&step_now.parts, memory_order_relaxed);
        uint32_t wanted = atomic_load_explicit(&step_now.wanted, memory_order_relaxed);
        uint32_t left = (uint32_t)ticket;
        if (left == 0 || number > wanted || !grow_scratch(bytes)) return;
        if (!atomic_compare_exchange_weak_explicit(from, &ticket, ticket - 1, memory_order_acq_rel,
                                                   memory_order_acquire))
            continue;
        int64_t chunk = (int64_t)end_of(part, parts, chunks) - left;
        run(n, p, scratch, chunk * grain, least((chunk + 1) * grain, units));
        uint32_t before = atomic_fetch_add(&step_now.done, 1);
        if (number > 0 && before + 1 == chunks && atomic_load(&step_now.caller_sleeps)) wake(&step_now.done);
        ticket = atomic_load_explicit(from, memory_order_acquire);
    }
}

// Does what there is. The caller is number 0 of those who do, helper i number i + 1.
static void do_chunks(uint32_t number) {
    uint32_t parts = atomic_load_explicit(&step_now.parts, memory_order_relaxed);
    for (uint32_t i = 0; i < parts; i++) do_part(number, (number + i) % parts);
}

static void *help(void *argument) {
    struct helper *self = argument;
    for (;;) {
        uint32_t seen = atomic_load(&self->news);
        do_chunks(self->number);
        for (int i = 0; i < SPINS && atomic_load_explicit(&step_now.busy, memory_order_relaxed); i++) {
            if (atomic_load_explicit(&self->news, memory_order_relaxed) != seen) break;
            pause_briefly();
        }
        // either the caller sees that this thread sleeps, or this thread sees its news
        atomic_store(&self->sleeps, 1);
        while (atomic_load(&self->news) == seen) sleep_while(&self->news, seen);
        atomic_store(&self->sleeps, 0);
    }
    return NULL;
}

// ---- the crew -------------------------------------------------------------------------------

// Threads do not survive a fork: neither helpers nor a run that had the crew and dealt a step.
static void forget_crew(void) {
    pthread_mutex_init(&crew_taken, NULL);
    for (int i = 0; i < MAX_PARTS; i++) atomic_store(&step_now.part[i].ticket, 0);
    atomic_store(&step_now.busy, 0);
    atomic_store(&crew_size, 0);
}

static void prepare(void) {
    pthread_key_create(&scratch_key, free);
    pthread_atfork(NULL, NULL, forget_crew);
}

// Starts helpers until there are `count`, or as many as the system gives.
static void start_helpers(int count) {
    int size = atomic_load(&crew_size);
    if (size >= count) return;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); // signals are for threads that know Python
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    for (; size < count; size++) {
        pthread_t thread;
        crew[size].number = (uint32_t)size + 1;
        if (pthread_create(&thread, &attributes, help, &crew[size]) != 0) break;
    }
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    atomic_store(&crew_size, size);
}

int kn_helpers(void) { return atomic_load(&crew_size); }

static void deal(const kn_step *s, const int64_t *n, char *const *p, int64_t chunks, int64_t grain, int wanted) {
    atomic_store_explicit(&step_now.chunks, (uint32_t)chunks, memory_order_relaxed);
    uint32_t parts = (uint32_t)least(least(wanted + 1, chunks), MAX_PARTS);
    atomic_store_explicit(&step_now.parts, parts, memory_order_relaxed);
    atomic_store_explicit(&step_now.wanted, (uint32_t)wanted, memory_order_relaxed);
    atomic_store_explicit(&step_now.run, s->run, memory_order_relaxed);
    atomic_store_explicit(&step_now.n, n, memory_order_relaxed);
    atomic_store_explicit(&step_now.p, p, memory_order_relaxed);
    atomic_store_explicit(&step_now.units, s->units, memory_order_relaxed);
    atomic_store_explicit(&step_now.grain, grain, memory_order_relaxed);
    atomic_store_explicit(&step_now.scratch, s->scratch, memory_order_relaxed);
    atomic_store(&step_now.done, 0);
    uint64_t number = (atomic_load(&step_now.part[0].ticket) >> 32) + 1;
    for (uint32_t part = 0, begin = 0; part < parts; part++) {
        uint32_t end = end_of(part, parts, (uint32_t)chunks);
        atomic_store_explicit(&step_now.part[part].ticket, number << 32 | (end - begin), memory_order_release);
        begin = end;
    }
    for (int i = 0; i < least(wanted, chunks - 1); i++) {
        atomic_fetch_add(&crew[i].news, 1);
        if (atomic_load(&crew[i].sleeps)) wake(&crew[i].news);
    }
    do_chunks(0);
    uint32_t done;
    for (int i = 0; (done = atomic_load(&step_now.done)) < chunks && i < SPINS; i++) pause_briefly();
    if (done == chunks) return;
    atomic_store(&step_now.caller_sleeps, 1);
    while ((done = atomic_load(&step_now.done)) < chunks) sleep_while(&step_now.done, done);
    atomic_store(&step_now.caller_sleeps, 0);
}

int kn_run(const kn_step *steps, int64_t count, const int64_t *numbers, char *const *pointers, int threads) {
    pthread_once(&prepared, prepare);
    int64_t bytes = 0;
    int shareable = 0;
    for (int64_t i = 0; i < count; i++) {
        if (steps[i].units > 0 && steps[i].scratch > bytes) bytes = steps[i].scratch;
        shareable |= steps[i].units > steps[i].grain;
    }
    if (!grow_scratch(bytes)) return -1;
    int wanted = (int)least(threads - 1, MAX_HELPERS);
    int together = wanted > 0 && shareable && pthread_mutex_trylock(&crew_taken) == 0;
    if (together) {
        start_helpers(wanted);
        wanted = (int)least(wanted, atomic_load(&crew_size));
        atomic_store(&step_now.busy, 1);
    }
    for (int64_t i = 0; i < count; i++) {
        const kn_step *s = &steps[i];
        if (s->units <= 0) continue;
        const int64_t *n = numbers + s->numbers;
        char *const *p = pointers + s->pointers;
        int64_t grain = s->grain > 0 ? s->grain : 1;
        if ((s->units - 1) / grain >= INT32_MAX) grain = s->units / INT32_MAX + 1;
        int64_t chunks = (s->units - 1) / grain + 1;
        if (together && wanted > 0 && chunks > 1)
            deal(s, n, p, chunks, grain, wanted);
        else
            s->run(n, p, scratch, 0, s->units);
    }
    if (together) {
        atomic_store(&step_now.busy, 0);
        pthread_mutex_unlock(&crew_taken);
    }
    return 0;
}
