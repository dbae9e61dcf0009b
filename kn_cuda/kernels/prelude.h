// What all kernels share. The same text compiles with NVRTC and, behind shim/host.h, for the host.
//
// A kernel is a template over its constants K, which `kn_cuda.source` generates:
//     K::Index     type of sizes, strides and offsets: int or long long
//     K::Pointers  what is read and written
//     K::Numbers   sizes and strides; they are arguments, so that one kernel serves all sizes
// and whatever types, numbers and functions the kernel asks for.
#pragma once

#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;

#define KN_FN static __device__ __forceinline__
#define KN_DEVICE __device__ __forceinline__
#define KN_UNROLL _Pragma("unroll")
#define KN_SHARED(type, name, count) __shared__ type name[count]
#define KN_DYNAMIC(type, name)                                    \
    extern __shared__ __align__(16) unsigned char kn_dynamic[];   \
    type* const name = reinterpret_cast<type*>(kn_dynamic)
#define KN_KERNEL(name, threads, entry, K)                        \
    extern "C" __global__ void __launch_bounds__(threads, 1) name( \
        const __grid_constant__ K::Pointers p, const __grid_constant__ K::Numbers n) {      \
        entry<K>(p, n);                                           \
    }
#endif

// ---- numbers of 16 bits -------------------------------------------------------------------------

struct half_t { uint16_t bits; };
struct bfloat_t { uint16_t bits; };

// A number of a scalar program, among the pointers and as large as one.
template <class T> struct alignas(8) Given { T value; };

#ifdef __CUDACC_RTC__
KN_FN float widened(half_t x) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
    return wide;
}
KN_FN half_t to_half(float x) {
    half_t narrow;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(x));
    return narrow;
}
KN_FN half_t to_half(double x) {
    half_t narrow;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(narrow.bits) : "d"(x));
    return narrow;
}
#else
KN_FN float widened(half_t x) { return float(bits_as<_Float16>(x.bits)); }
KN_FN half_t to_half(float x) { return {bits_as<uint16_t>(_Float16(x))}; }
KN_FN half_t to_half(double x) { return {bits_as<uint16_t>(_Float16(x))}; }
#endif

// sm_75 has no instruction for this type
KN_FN float widened(bfloat_t x) { return __uint_as_float(uint32_t(x.bits) << 16); }
KN_FN bfloat_t to_bfloat(float x) {
    const uint32_t bits = __float_as_uint(x);
    const uint32_t even = 0x7fff + (bits >> 16 & 1);
    return {uint16_t(x != x ? 0x7fff : (bits + even) >> 16)};
}

// ---- numbers of 8 bits --------------------------------------------------------------------------

// A float with M bits of mantissa: MOST is the code of the largest number, BEYOND that of what is
// larger, NONE that of NaN. With a code of 0x80 for NaN there is no -0.
template <int M, int BIAS, unsigned MOST, unsigned BEYOND, unsigned NONE> struct small_t { uint8_t bits; };
using float8e4m3fn_t = small_t<3, 7, 0x7e, 0x7f, 0x7f>;
using float8e4m3fnuz_t = small_t<3, 8, 0x7f, 0x80, 0x80>;
using float8e5m2_t = small_t<2, 15, 0x7b, 0x7c, 0x7e>;
using float8e5m2fnuz_t = small_t<2, 16, 0x7f, 0x80, 0x80>;

template <int M, int BIAS, unsigned MOST, unsigned BEYOND, unsigned NONE>
KN_FN float widened(small_t<M, BIAS, MOST, BEYOND, NONE> x) {
    const uint32_t size = x.bits & 0x7f, sign = uint32_t(x.bits & 0x80) << 24;
    if (NONE == 0x80 ? x.bits == NONE : size > MOST)
        return __uint_as_float(size == BEYOND && BEYOND != NONE ? 0x7f800000 | sign : 0x7fc00000);
    const float least = __uint_as_float(uint32_t(128 - BIAS - M) << 23);  // of all that are not 0
    const uint32_t normal = (size << (23 - M)) + (uint32_t(127 - BIAS) << 23);
    return __uint_as_float((size >> M ? normal : __float_as_uint(float(size) * least)) | sign);
}

// A signed integer in the low bits of a byte.
template <int BITS> struct few_t { uint8_t bits; };
using int4_t = few_t<4>;
using int2_t = few_t<2>;

template <int BITS> KN_FN int8_t widened(few_t<BITS> x) {
    const int half = 1 << (BITS - 1);
    return int8_t(((x.bits & (2 * half - 1)) ^ half) - half);
}

template <class S> struct Small;
template <int M, int BIAS, unsigned MOST, unsigned BEYOND, unsigned NONE>
struct Small<small_t<M, BIAS, MOST, BEYOND, NONE>> {
    using Type = small_t<M, BIAS, MOST, BEYOND, NONE>;

    KN_DEVICE static Type of(float x) {
        const uint32_t bits = __float_as_uint(x), size = bits & 0x7fffffff;
        uint32_t sign = bits >> 24 & 0x80, code;
        if (size < uint32_t(128 - BIAS) << 23) {  // a multiple of the least number
            code = uint32_t(rint(__uint_as_float(size) * __uint_as_float(uint32_t(126 + BIAS + M) << 23)));
        } else {
            const uint32_t even = (1u << (22 - M)) - 1 + (size >> (23 - M) & 1);
            code = ((size + even) >> (23 - M)) - (uint32_t(127 - BIAS) << M);
            if (code > MOST) code = size > 0x7f800000 ? NONE : BEYOND;
        }
        if (NONE == 0x80 && (code == 0 || code == NONE)) sign = 0;
        return {uint8_t(code | sign)};
    }
    KN_DEVICE static float most() { return widened(Type{uint8_t(MOST)}); }

    // Of what is too large, the largest number is left.
    KN_DEVICE static float clamped(float x) { return x > most() ? most() : x < -most() ? -most() : x; }
};

template <class T> KN_FN T widened(T x) { return x; }

template <class T> KN_FN void put(T& slot, T x) { slot = x; }
KN_FN void put(half_t& slot, float x) { slot = to_half(x); }
KN_FN void put(bfloat_t& slot, float x) { slot = to_bfloat(x); }
template <int BITS> KN_FN void put(few_t<BITS>& slot, int8_t x) {
    slot.bits = uint8_t(x & ((1 << BITS) - 1));
}
template <int M, int BIAS, unsigned MOST, unsigned BEYOND, unsigned NONE>
KN_FN void put(small_t<M, BIAS, MOST, BEYOND, NONE>& slot, float x) {
    slot = Small<small_t<M, BIAS, MOST, BEYOND, NONE>>::of(x);
}

// the number that is left of a float when it is stored in a type
template <class T> struct Rounded {
    template <class V> KN_DEVICE static V of(V x) { return x; }
};
template <> struct Rounded<half_t> {
    KN_DEVICE static float of(float x) { return widened(to_half(x)); }
};
template <> struct Rounded<bfloat_t> {
    KN_DEVICE static float of(float x) { return widened(to_bfloat(x)); }
};
template <int M, int BIAS, unsigned MOST, unsigned BEYOND, unsigned NONE>
struct Rounded<small_t<M, BIAS, MOST, BEYOND, NONE>> {
    KN_DEVICE static float of(float x) {
        return widened(Small<small_t<M, BIAS, MOST, BEYOND, NONE>>::of(x));
    }
};

// ---- conversions --------------------------------------------------------------------------------

// Floats that no integer holds become the lowest one of 32 or 64 bits, as on x86, and NaN does too.
KN_FN int32_t whole_32(float x) {
    return x >= -2147483648.0f && x < 2147483648.0f ? int32_t(x) : int32_t(0x80000000u);
}
KN_FN int32_t whole_32(double x) {
    return x > -2147483649.0 && x < 2147483648.0 ? int32_t(x) : int32_t(0x80000000u);
}
template <class F> KN_FN int64_t whole_64(F x) {
    const F end = F(9223372036854775808.0);
    return x >= -end && x < end ? int64_t(x) : int64_t(0x8000000000000000ull);
}
template <class F> KN_FN uint64_t whole_u64(F x) {
    const F end = F(9223372036854775808.0);
    return x < end ? uint64_t(whole_64(x)) : uint64_t(whole_64(x - end)) ^ 0x8000000000000000ull;
}

// ---- memory -------------------------------------------------------------------------------------

template <class P> struct ElementOf;
template <class T> struct ElementOf<T*> { using type = T; };
template <class P> using Element = typename ElementOf<P>::type;

template <class T, int N> struct alignas(sizeof(T) * N) Pack { T lane[N]; };

template <int N, class T> KN_FN Pack<T, N> load(const T* p) {
    return *reinterpret_cast<const Pack<T, N>*>(p);
}
template <int N, class T> KN_FN void store(T* p, const Pack<T, N>& x) {
    *reinterpret_cast<Pack<T, N>*>(p) = x;
}

// Adds to the offset in each operand where the element with a row-major number lies.
template <int RANK, int OPERANDS, class Index>
KN_FN void locate(
    Index (&at)[OPERANDS], Index element, const Index (&sizes)[RANK],
    const Index (&strides)[OPERANDS][RANK]
) {
    KN_UNROLL
    for (int axis = RANK - 1; axis > 0; axis--) {
        const Index outer = element / sizes[axis], place = element - outer * sizes[axis];
        KN_UNROLL
        for (int k = 0; k < OPERANDS; k++) at[k] += place * strides[k][axis];
        element = outer;
    }
    KN_UNROLL
    for (int k = 0; k < OPERANDS; k++) at[k] += element * strides[k][0];
}

// The same for one operand.
template <int RANK, class Index>
KN_FN Index located(Index element, const Index (&sizes)[RANK], const Index (&strides)[RANK]) {
    Index at = 0;
    KN_UNROLL
    for (int axis = RANK - 1; axis > 0; axis--) {
        const Index outer = element / sizes[axis];
        at += (element - outer * sizes[axis]) * strides[axis];
        element = outer;
    }
    return at + element * strides[0];
}

// ---- threads ------------------------------------------------------------------------------------

const unsigned ALL_LANES = 0xffffffffu;

template <class Index> KN_FN Index first_thread() {
    return Index(blockIdx.x) * Index(blockDim.x) + Index(threadIdx.x);
}
template <class Index> KN_FN Index all_threads() { return Index(gridDim.x) * Index(blockDim.x); }

// Combines what the threads of a warp have; every one gets the result.
template <class Combine, class T> KN_FN T warp_combined(T x) {
    for (int far = 16; far > 0; far /= 2) x = Combine::of(x, __shfl_xor_sync(ALL_LANES, x, far));
    return x;
}

// Combines what the threads of a block have, whole warps; every one gets the result.
// `room` holds one number a warp, and may be used again at once.
template <int THREADS, class Combine, class T> KN_FN T block_combined(T x, T* room) {
    const int warp = threadIdx.x / 32, warps = THREADS / 32;
    x = warp_combined<Combine>(x);
    if (threadIdx.x % 32 == 0) room[warp] = x;
    __syncthreads();
    x = room[0];
    for (int other = 1; other < warps; other++) x = Combine::of(x, room[other]);
    __syncthreads();
    return x;
}

// ---- rows ---------------------------------------------------------------------------------------

// Elements that GROUP threads (1, a warp, or a block of THREADS) compute together; see `kn_cuda.rows`.
// A thread has VECTOR elements that lie side by side, then those GROUP * VECTOR further on.
//
//     K::Acc                 type that is computed with
//     K::KEEP                vectors of a row that a thread holds in registers; 0: they are read again
//     K::begin<N>(p, at, x)  gives N elements, from the offsets `at` on
//     K::end<N>(p, at, x)    stores N results
//     n.kept, n.gone         sizes of the axes that tell rows apart, and of those along a row
template <class K> KN_FN typename K::Index first_row() {
    return (typename K::Index(blockIdx.x) * K::THREADS + threadIdx.x) / K::GROUP;
}
template <class K> KN_FN typename K::Index all_rows() {
    return typename K::Index(gridDim.x) * (K::THREADS / K::GROUP);
}

// Combines what the threads of a group have; every one gets the result.
template <class K, class Combine, class T> KN_FN T group_combined(T x, T* room) {
    if constexpr (K::GROUP == 1) return x;
    else if constexpr (K::GROUP == 32) return warp_combined<Combine>(x);
    else return block_combined<K::THREADS, Combine>(x, room);
}

template <class K> struct Row {
    using Index = typename K::Index;
    using Acc = typename K::Acc;

    const typename K::Pointers& p;
    const typename K::Numbers& n;
    Index start[K::OPERANDS];
    Acc held[K::KEEP > 0 ? K::KEEP : 1][K::VECTOR];

    KN_DEVICE Row(const typename K::Pointers& p, const typename K::Numbers& n, Index row) : p(p), n(n) {
        KN_UNROLL
        for (int k = 0; k < K::OPERANDS; k++) start[k] = 0;
        locate(start, row, n.kept, n.kept_strides);
        if constexpr (K::KEEP > 0)
            visit([&](Acc (&x)[K::VECTOR], Index j) { read(x, j); });
    }

    // calls handle(x, j) for all elements x[..] of this thread, which are the j-th of the row and on
    template <class Handle> KN_DEVICE void each(const Handle& handle) {
        if constexpr (K::KEEP > 0) visit(handle);
        else for (Index j = lane() * K::VECTOR; j < n.length; j += K::GROUP * K::VECTOR) {
            Acc x[K::VECTOR];
            read(x, j);
            handle(x, j);
        }
    }

    KN_DEVICE void write(const Acc (&x)[K::VECTOR], Index j) {
        Index at[K::OPERANDS];
        place(at, j);
        K::template end<K::VECTOR>(p, at, x);
    }

private:
    KN_DEVICE static Index lane() { return threadIdx.x % K::GROUP; }

    template <class Handle> KN_DEVICE void visit(const Handle& handle) {
        KN_UNROLL
        for (int k = 0; k < K::KEEP; k++) {
            const Index j = (lane() + k * K::GROUP) * K::VECTOR;
            if (j < n.length) handle(held[k], j);
        }
    }

    KN_DEVICE void place(Index (&at)[K::OPERANDS], Index j) {
        KN_UNROLL
        for (int k = 0; k < K::OPERANDS; k++) at[k] = start[k];
        locate(at, j, n.gone, n.gone_strides);
    }

    KN_DEVICE void read(Acc (&x)[K::VECTOR], Index j) {
        Index at[K::OPERANDS];
        place(at, j);
        K::template begin<K::VECTOR>(p, at, x);
    }
};

struct Sum { template <class T> KN_DEVICE static T of(T a, T b) { return a + b; } };

// A NaN stays what it is.
struct Largest {
    template <class T> KN_DEVICE static T of(T a, T b) { return a > b || a != a ? a : b; }
};
