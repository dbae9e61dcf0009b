// What sanitizers have to know of fibers and of shared memory; nothing where none is at work.
//
// For that of threads each thread of a grid is one of its own. Only barriers order what threads of a
// block do, and nothing orders blocks: their memory is new to it when they begin. For that of
// addresses, what lies behind shared arrays is forbidden.
#pragma once
#include <sys/mman.h>

#include <cstddef>

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define KN_THREADS_CHECKED 1
#else
#define KN_THREADS_CHECKED 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define KN_ADDRESSES_CHECKED 1
#else
#define KN_ADDRESSES_CHECKED 0
#endif

// The shim's own work, which is none of the kernel's.
#if KN_THREADS_CHECKED || KN_ADDRESSES_CHECKED
#define KN_UNSEEN __attribute__((noinline, no_sanitize("thread", "address", "undefined")))
#else
#define KN_UNSEEN
#endif

extern "C" {
void* __tsan_get_current_fiber(void);
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* at);
void __tsan_release(void* at);
void __asan_poison_memory_region(void const volatile* at, size_t bytes);
void __asan_unpoison_memory_region(void const volatile* at, size_t bytes);
}

namespace kn_host {

#if KN_THREADS_CHECKED
static void* own_thread() { return __tsan_get_current_fiber(); }
static void* new_thread() { return __tsan_create_fiber(0); }
static void end_thread(void* thread) { __tsan_destroy_fiber(thread); }
KN_UNSEEN static void becomes(void* thread) { __tsan_switch_to_fiber(thread, 1); }  // orders nothing
static void arrives(void* at) { __tsan_release(at); }
static void leaves(void* at) { __tsan_acquire(at); }
static void renew(void* at, size_t bytes) {
    mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}
#else
static void* own_thread() { return nullptr; }
static void* new_thread() { return nullptr; }
static void end_thread(void*) {}
static void becomes(void*) {}
static void arrives(void*) {}
static void leaves(void*) {}
static void renew(void*, size_t) {}
#endif

#if KN_ADDRESSES_CHECKED
static void forbid(void* at, size_t bytes) { __asan_poison_memory_region(at, bytes); }
static void allow(void* at, size_t bytes) { __asan_unpoison_memory_region(at, bytes); }
#else
static void forbid(void*, size_t) {}
static void allow(void*, size_t) {}
#endif

}  // namespace kn_host
