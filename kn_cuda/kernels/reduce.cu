// Reductions: many elements become one, which goes through the program behind it.
//
//     K::Acc                     type that is accumulated in
//     K::start()                 what changes nothing
//     K::Combine::of(a, b)       combines two
//     K::finish(acc, n)          the result of all elements
//     K::begin<N>(p, at, x)      gives N elements, from the offsets `at` on; see `kn_cuda.elements`
//     K::end(p, n, i, result)    stores the i-th result
//
// With SPLIT a row is reduced in n.parts of n.chunk elements, which are rows of their own.

// Combines every step-th vector of a row. What is added up are totals of a few: errors stay small.
template <class K>
KN_FN typename K::Acc accumulated(
    const typename K::Pointers& p, const typename K::Numbers& n, typename K::Index row,
    typename K::Index first, typename K::Index step
) {
    using Index = typename K::Index;
    using Acc = typename K::Acc;
    const int FEW = 16;
    Index begin = 0, end = n.length;
    if constexpr (K::SPLIT) {  // neighbours are the same part of different rows
        begin = row / n.rows * n.chunk;
        row %= n.rows;
        if (begin + n.chunk < end) end = begin + n.chunk;
    }
    Index start[K::OPERANDS] = {};
    locate(start, row, n.kept, n.kept_strides);
    Acc total = K::start();
    for (Index j = begin + first * K::VECTOR; j < end;) {
        Acc few = K::start();
        for (int k = 0; k < FEW && j < end; k++, j += step * K::VECTOR) {
            Index at[K::OPERANDS];
            KN_UNROLL
            for (int o = 0; o < K::OPERANDS; o++) at[o] = start[o];
            locate(at, j, n.gone, n.gone_strides);
            Acc x[K::VECTOR];
            K::template begin<K::VECTOR>(p, at, x);
            for (int v = 0; v < K::VECTOR; v++) few = K::Combine::of(few, x[v]);
        }
        total = K::Combine::of(total, few);
    }
    return total;
}

// A warp or a block reduces a row: its elements lie side by side.
template <class K>
KN_DEVICE void reduce_rows(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    using Acc = typename K::Acc;
    KN_SHARED(Acc, room, K::THREADS / 32);
    const Index lane = threadIdx.x % K::GROUP;
    for (Index row = first_row<K>(); row < n.rows * n.parts; row += all_rows<K>()) {
        const Acc own = accumulated<K>(p, n, row, lane, Index(K::GROUP));
        const Acc acc = group_combined<K, typename K::Combine>(own, room);
        if (lane == 0) K::end(p, n, row, K::finish(acc, n));
    }
}

// A block reduces 32 rows that lie side by side, each with a thread of every warp.
template <class K>
KN_DEVICE void reduce_columns(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    using Acc = typename K::Acc;
    const int SIDE = 32, LINES = K::THREADS / SIDE;
    KN_SHARED(Acc, room, K::THREADS);
    const Index lane = threadIdx.x % SIDE, line = threadIdx.x / SIDE;
    const Index rows = n.rows * n.parts;
    for (Index first = Index(blockIdx.x) * SIDE; first < rows; first += Index(gridDim.x) * SIDE) {
        const Index row = first + lane;
        if (row < rows) room[threadIdx.x] = accumulated<K>(p, n, row, line, Index(LINES));
        __syncthreads();
        if (row < rows && line == 0) {
            Acc acc = room[lane];
            for (int other = 1; other < LINES; other++)
                acc = K::Combine::of(acc, room[other * SIDE + lane]);
            K::end(p, n, row, K::finish(acc, n));
        }
        __syncthreads();
    }
}

// A thread reduces a row by itself: there are few elements.
template <class K>
KN_DEVICE void reduce_each(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    const Index end = n.rows * n.parts;
    for (Index row = first_thread<Index>(); row < end; row += all_threads<Index>())
        K::end(p, n, row, K::finish(accumulated<K>(p, n, row, Index(0), Index(1)), n));
}
