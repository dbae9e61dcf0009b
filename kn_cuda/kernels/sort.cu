// Sorting rows, or the front of them. Elements are in one order only: equal ones by their places.
//
//     K::beats(a, b)   whether a belongs in front of b; neither of two equal ones does
//     K::SIZE          elements of a tile, a power of two

// Whether element a, at place i of its row, comes before b at place j.
template <class K> KN_FN bool comes_first(
    typename K::Acc a, typename K::Index i, typename K::Acc b, typename K::Index j
) {
    return K::beats(a, b) || (!K::beats(b, a) && i < j);
}

// Sorts the elements of a row from `base` on in shared memory, by a bitonic network; those behind
// the end of the row are the last. Callers read what the same thread loads the next time, so that
// there is no barrier between calls.
template <class K>
KN_FN void sort_tile(
    const typename K::Pointers& p, const typename K::Numbers& n, typename K::Index start,
    typename K::Index base, typename K::Acc* values, typename K::Index* places
) {
    using Index = typename K::Index;
    using Acc = typename K::Acc;
    for (int i = threadIdx.x; i < K::SIZE; i += K::THREADS) {
        places[i] = base + i;
        values[i] = base + i < n.length ? Acc(widened(p.x[start + (base + i) * n.x_step])) : Acc(0);
    }
    __syncthreads();
    for (int size = 2; size <= K::SIZE; size *= 2) {
        for (int far = size / 2; far > 0; far /= 2) {
            for (int k = threadIdx.x; k < K::SIZE / 2; k += K::THREADS) {
                const int i = 2 * k - (k & (far - 1)), j = i + far;  // i has a 0 where j has a 1
                const bool inside = places[i] < n.length, other = places[j] < n.length;
                const bool ordered = inside != other
                    ? inside : comes_first<K>(values[i], places[i], values[j], places[j]);
                if (ordered == ((i & size) != 0)) {
                    const Acc value = values[i];
                    const Index place = places[i];
                    values[i] = values[j], places[i] = places[j];
                    values[j] = value, places[j] = place;
                }
            }
            __syncthreads();
        }
    }
}

// Rows that fit into a tile: their first n.count elements, and where these were.
template <class K>
KN_DEVICE void sort_rows(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    KN_SHARED(typename K::Acc, values, K::SIZE);
    KN_SHARED(Index, places, K::SIZE);
    for (Index row = blockIdx.x; row < n.rows; row += gridDim.x) {
        Index at[3] = {};
        locate(at, row, n.kept, n.kept_strides);
        sort_tile<K>(p, n, at[0], Index(0), values, places);
        for (Index i = threadIdx.x; i < n.count; i += K::THREADS) {
            put(p.values[at[1] + i * n.value_step], values[i]);
            p.places[at[2] + i * n.place_step] = places[i];
        }
    }
}

// Tiles of longer rows: the places of their elements in order.
template <class K>
KN_DEVICE void sort_tiles(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    KN_SHARED(typename K::Acc, values, K::SIZE);
    KN_SHARED(Index, places, K::SIZE);
    const Index tiles = (n.length + K::SIZE - 1) / K::SIZE;
    for (Index tile = blockIdx.x; tile < n.rows * tiles; tile += gridDim.x) {
        const Index row = tile / tiles, base = (tile - row * tiles) * K::SIZE;
        sort_tile<K>(p, n, located(row, n.kept, n.kept_strides[0]), base, values, places);
        for (Index i = threadIdx.x; i < K::SIZE && base + i < n.length; i += K::THREADS)
            p.y[row * n.length + base + i] = places[i];
    }
}

// Merges runs of n.run sorted elements in pairs. Where an element goes is its place in its own run
// and the number of elements of the other that come first; behind n.count nobody looks.
template <class K>
KN_DEVICE void sort_merge(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    using Acc = typename K::Acc;
    for (Index e = first_thread<Index>(); e < n.rows * n.length; e += all_threads<Index>()) {
        const Index row = e / n.length, i = e - row * n.length;
        const Index pair = i / (2 * n.run) * (2 * n.run), own = i / n.run * n.run;
        const Index start = located(row, n.kept, n.kept_strides[0]), line = row * n.length;
        const Index other = own == pair ? own + n.run : pair;
        const Index known = n.run < n.count ? n.run : n.count;
        const Index end = other + known < n.length ? other + known : n.length;
        if (i - own >= n.count) continue;
        const Index place = Index(p.order[line + i]);
        const Acc x = Acc(widened(p.x[start + place * n.x_step]));
        Index low = other, high = end;
        while (low < high) {
            const Index middle = (low + high) / 2, there = Index(p.order[line + middle]);
            const Acc y = Acc(widened(p.x[start + there * n.x_step]));
            if (comes_first<K>(y, there, x, place)) low = middle + 1;
            else high = middle;
        }
        const Index to = i - own + (other < end ? low - other : 0);
        if (to < n.count) p.y[line + pair + to] = place;
    }
}

// The first n.count elements of rows whose order is known.
template <class K>
KN_DEVICE void sort_take(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    for (Index e = first_thread<Index>(); e < n.rows * n.count; e += all_threads<Index>()) {
        const Index row = e / n.count, i = e - row * n.count;
        Index at[3] = {};
        locate(at, row, n.kept, n.kept_strides);
        const Index place = Index(p.order[row * n.length + i]);
        p.values[at[1] + i * n.value_step] = p.x[at[0] + place * n.x_step];
        p.places[at[2] + i * n.place_step] = place;
    }
}
