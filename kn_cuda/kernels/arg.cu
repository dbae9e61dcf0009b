// Where the extreme of a row is: a NaN counts as one, and of equal ones the first, or the LAST.
//
//     K::beats(a, b)             whether a is further out than b
//     K::end(p, n, i, place)     stores the i-th result

// An element and its place; no element where the place is negative.
template <class K> struct Extreme {
    typename K::Acc value;
    typename K::Index place;

    KN_DEVICE void meet(typename K::Acc other, typename K::Index at) {
        if (at < 0) return;
        const bool equal = !K::beats(value, other) && !K::beats(other, value);
        const bool first = K::LAST ? at > place : at < place;
        if (place >= 0 && !K::beats(other, value) && !(equal && first)) return;
        value = other;
        place = at;
    }
};

// GROUP threads, one or the whole block, search a row together.
template <class K>
KN_DEVICE void arg_rows(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    using Acc = typename K::Acc;
    const int WARPS = K::THREADS / 32;
    KN_SHARED(Acc, values, WARPS);
    KN_SHARED(Index, places, WARPS);
    const Index lane = threadIdx.x % K::GROUP;
    for (Index row = first_row<K>(); row < n.rows; row += all_rows<K>()) {
        const Index start = located(row, n.kept, n.x_kept);
        Extreme<K> found = {Acc(0), Index(-1)};
        for (Index j = lane; j < n.length; j += K::GROUP)
            found.meet(Acc(widened(p.x[start + j * n.stride])), j);
        if constexpr (K::GROUP > 1) {
            for (int far = 16; far > 0; far /= 2) {
                const Acc value = __shfl_xor_sync(ALL_LANES, found.value, far);
                found.meet(value, __shfl_xor_sync(ALL_LANES, found.place, far));
            }
            if (lane % 32 == 0) values[lane / 32] = found.value, places[lane / 32] = found.place;
            __syncthreads();
            for (int w = 0; w < WARPS; w++) found.meet(values[w], places[w]);
            __syncthreads();
        }
        if (lane == 0) K::end(p, n, row, int64_t(found.place));
    }
}
