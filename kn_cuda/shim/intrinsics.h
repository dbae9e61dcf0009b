// The functions of CUDA that our kernels call, on the host; see host.h. An exchange orders no memory.
#pragma once

static inline void __syncthreads() { kn_host::meet(kn_host::block_barrier, kn_host::threads, true); }
static inline void __syncwarp(unsigned mask = ~0u) { kn_host::exchange(mask, 0, 0, true); }
static inline void __threadfence() {}

template <class T> static T __shfl_sync(unsigned mask, T x, unsigned lane) {
    return kn_host::exchange(mask, x, lane, false);
}
template <class T> static T __shfl_xor_sync(unsigned mask, T x, unsigned flip) {
    return kn_host::exchange(mask, x, kn_host::current->lane ^ flip, false);
}
template <class T> static T __shfl_down_sync(unsigned mask, T x, unsigned far) {
    const unsigned lane = kn_host::current->lane;
    return kn_host::exchange(mask, x, lane + far < kn_host::WARP ? lane + far : lane, false);
}
template <class T> static T __shfl_up_sync(unsigned mask, T x, unsigned far) {
    const unsigned lane = kn_host::current->lane;
    return kn_host::exchange(mask, x, lane >= far ? lane - far : lane, false);
}
static inline unsigned __ballot_sync(unsigned mask, int vote) {
    unsigned votes = 0;
    for (unsigned lane = 0; lane < kn_host::WARP; lane++)
        votes |= unsigned(kn_host::exchange(mask, vote, lane, false) != 0) << lane;
    return votes;
}

template <class T, class Next> static T exchanged(T* p, const Next& next) {
    T old, made;
    __atomic_load(p, &old, __ATOMIC_RELAXED);
    do made = next(old);
    while (!__atomic_compare_exchange(p, &old, &made, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
}
template <class T> static T atomicAdd(T* p, T x) {
    return exchanged(p, [x](T old) { return T(old + x); });
}
template <class T> static T atomicMax(T* p, T x) {
    return exchanged(p, [x](T old) { return x > old ? x : old; });
}
template <class T> static T atomicMin(T* p, T x) {
    return exchanged(p, [x](T old) { return x < old ? x : old; });
}
template <class T> static T atomicExch(T* p, T x) {
    return exchanged(p, [x](T) { return x; });
}
template <class T> static T atomicCAS(T* p, T want, T x) {
    return exchanged(p, [want, x](T old) { return old == want ? x : old; });
}

template <class T> static T __ldg(const T* p) { return *p; }

template <class To, class From> static To bits_as(From x) {
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    To y;
    memcpy(&y, &x, sizeof y);
    return y;
}
static inline int __float_as_int(float x) { return bits_as<int>(x); }
static inline unsigned __float_as_uint(float x) { return bits_as<unsigned>(x); }
static inline float __int_as_float(int x) { return bits_as<float>(x); }
static inline float __uint_as_float(unsigned x) { return bits_as<float>(x); }
static inline long long __double_as_longlong(double x) { return bits_as<long long>(x); }
static inline double __longlong_as_double(long long x) { return bits_as<double>(x); }
static inline double cospi(double x) { return cos(M_PI * x); }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline unsigned __umulhi(unsigned a, unsigned b) {
    return unsigned((unsigned long long)(a) * b >> 32);
}
