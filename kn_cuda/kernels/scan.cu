// Running totals: each result combines the elements of a row up to its own, or EXCLUSIVE before it.
//
//     K::Acc                     type that is accumulated in
//     K::start()                 what changes nothing
//     K::Combine::of(a, b)       combines two, a being in front

// Returns the total of all lanes in front; `all` becomes that of the warp.
template <class K> KN_FN typename K::Acc before_lane(typename K::Acc own, typename K::Acc& all) {
    using Acc = typename K::Acc;
    const int lane = threadIdx.x % 32;
    for (int far = 1; far < 32; far *= 2) {
        const Acc other = __shfl_up_sync(ALL_LANES, own, far);
        if (lane >= far) own = K::Combine::of(other, own);
    }
    all = __shfl_sync(ALL_LANES, own, 31);
    const Acc before = __shfl_up_sync(ALL_LANES, own, 1);
    return lane > 0 ? before : K::start();
}

// A block goes along a row by THREADS * ITEMS elements at a time.
template <class K>
KN_DEVICE void scan_rows(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    using Acc = typename K::Acc;
    const int WARPS = K::THREADS / 32, warp = threadIdx.x / 32;
    KN_SHARED(Acc, totals, WARPS);
    for (Index row = blockIdx.x; row < n.rows; row += gridDim.x) {
        Index start[2] = {};
        locate(start, row, n.kept, n.kept_strides);
        Acc total = K::start();  // of all that is in front of the block
        for (Index base = 0; base < n.length; base += K::THREADS * K::ITEMS) {
            const Index first = base + Index(threadIdx.x) * K::ITEMS;
            Acc x[K::ITEMS], own = K::start();
            KN_UNROLL
            for (int k = 0; k < K::ITEMS; k++) {
                const bool inside = first + k < n.length;
                x[k] = inside ? Acc(widened(p.x[start[0] + (first + k) * n.x_step])) : K::start();
                own = K::Combine::of(own, x[k]);
            }
            Acc all;
            Acc sum = before_lane<K>(own, all);
            if (threadIdx.x % 32 == 0) totals[warp] = all;
            __syncthreads();
            Acc front = total;
            for (int w = 0; w < WARPS; w++) {
                if (w == warp) front = total;
                total = K::Combine::of(total, totals[w]);
            }
            sum = K::Combine::of(front, sum);
            KN_UNROLL
            for (int k = 0; k < K::ITEMS; k++) {
                const Acc with = K::Combine::of(sum, x[k]);
                if (first + k < n.length)
                    put(p.y[start[1] + (first + k) * n.y_step], K::EXCLUSIVE ? sum : with);
                sum = with;
            }
            __syncthreads();
        }
    }
}

// A thread goes along a row by itself: neighbours read side by side, or rows are short.
template <class K>
KN_DEVICE void scan_each(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    using Acc = typename K::Acc;
    for (Index row = first_thread<Index>(); row < n.rows; row += all_threads<Index>()) {
        Index at[2] = {};
        locate(at, row, n.kept, n.kept_strides);
        Acc sum = K::start();
        for (Index j = 0; j < n.length; j++, at[0] += n.x_step, at[1] += n.y_step) {
            const Acc with = K::Combine::of(sum, Acc(widened(p.x[at[0]])));
            put(p.y[at[1]], K::EXCLUSIVE ? sum : with);
            sum = with;
        }
    }
}
