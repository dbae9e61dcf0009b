// Random numbers from a counter: every thread makes its own, and all devices make the same. What they
// are is said in `kn_graph.ops.random` and `kn_graph.random_bits`.
//
//     K::T, Acc    type of the numbers, and what a program behind them computes with
//     K::NORMAL    whether they are normal, or else uniform
//     K::BITS      significant bits of a uniform number
//     K::WORDS     words of 32 bits that a number is made of
//     p.draw       the seed, the stream, and the number of its first block
//     K::end(p, n, i, x)   stores the i-th number

struct Block { uint32_t word[4]; };

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers, SC 2011).
KN_FN Block philox(uint64_t seed, uint64_t stream, uint64_t number) {
    uint32_t a = uint32_t(number), b = uint32_t(number >> 32);
    uint32_t c = uint32_t(stream), d = uint32_t(stream >> 32);
    uint32_t key = uint32_t(seed), other = uint32_t(seed >> 32);
    KN_UNROLL
    for (int round = 0; round < 10; round++) {
        const uint32_t high = __umulhi(0xD2511F53u, a), low = 0xD2511F53u * a;
        const uint32_t up = __umulhi(0xCD9E8D57u, c), down = 0xCD9E8D57u * c;
        a = up ^ b ^ key, b = down, c = high ^ d ^ other, d = low;
        key += 0x9E3779B9u, other += 0xBB67AE85u;
    }
    return {{a, b, c, d}};
}

// A number that is rounded once to what a type holds.
template <class T> struct Held {
    KN_DEVICE static T of(double x) { return T(x); }
};
template <> struct Held<half_t> {
    KN_DEVICE static float of(double x) { return widened(to_half(x)); }
};
template <> struct Held<bfloat_t> {
    KN_DEVICE static float of(double x) { return widened(to_bfloat(float(x))); }
};

template <class K> KN_FN typename K::Acc number_of(const uint32_t* word) {
    using Acc = typename K::Acc;
    if constexpr (K::NORMAL) {
        const double unit = 1.0 / 4294967296.0;
        const double radius = sqrt(-2.0 * log((double(word[0]) + 0.5) * unit));
        return Held<typename K::T>::of(radius * cospi(2.0 * (double(word[1]) * unit)));
    } else if constexpr (K::WORDS == 2) {
        const double high = double(word[0] >> 5), low = double(word[1] >> 6);
        return Acc((high * 67108864.0 + low) * (1.0 / 9007199254740992.0));
    } else return Acc(word[0] >> (32 - K::BITS)) * (Acc(1) / Acc(1u << K::BITS));
}

template <class K>
KN_DEVICE void random_numbers(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    const int EACH = 4 / K::WORDS;
    const Index blocks = (n.count + EACH - 1) / EACH;
    for (Index block = first_thread<Index>(); block < blocks; block += all_threads<Index>()) {
        const Block made = philox(p.draw[0], p.draw[1], p.draw[2] + uint64_t(block));
        KN_UNROLL
        for (int k = 0; k < EACH; k++) {
            const Index i = block * EACH + k;
            if (i < n.count) K::end(p, n, i, number_of<K>(made.word + k * K::WORDS));
        }
    }
}
