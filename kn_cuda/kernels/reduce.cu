// Reductions: many elements become one, which goes through the program behind it.
//
//     K::Acc                     type that is accumulated in
//     K::start()                 what changes nothing
//     K::Combine::of(a, b)       combines two
//     K::finish(acc, n)          the result of n.reduced elements
//     K::end(p, n, i, result)    stores the i-th result

// GROUP threads, a warp or the whole block, reduce a row together.
template <class K>
KN_DEVICE void reduce_rows(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    using Acc = typename K::Acc;
    const Index lane = threadIdx.x % K::GROUP, group = threadIdx.x / K::GROUP;
    const Index groups = K::THREADS / K::GROUP;
    // rounded up: all threads of a block meet at its barriers
    const Index end = (n.rows + groups - 1) / groups * groups;
    KN_SHARED(Acc, room, K::THREADS / 32);
    for (Index row = Index(blockIdx.x) * groups + group; row < end; row += Index(gridDim.x) * groups) {
        const bool inside = row < n.rows;
        const Index first = inside ? located(row, n.kept, n.x_kept) : Index(0);
        Acc acc = K::start();
        for (Index j = inside ? lane : n.reduced; j < n.reduced; j += K::GROUP) {
            const Index at = first + located(j, n.gone, n.x_gone);
            acc = K::Combine::of(acc, Acc(widened(p.x[at])));
        }
        if constexpr (K::GROUP == 32) acc = warp_combined<typename K::Combine>(acc);
        else acc = block_combined<K::THREADS, typename K::Combine>(acc, room);
        if (inside && lane == 0) K::end(p, n, row, K::finish(acc, n));
    }
}

// A thread reduces all elements of a result by itself: neighbours read side by side, or there are few.
template <class K>
KN_DEVICE void reduce_each(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    using Acc = typename K::Acc;
    for (Index row = first_thread<Index>(); row < n.rows; row += all_threads<Index>()) {
        const Index first = located(row, n.kept, n.x_kept);
        Acc acc = K::start();
        for (Index j = 0; j < n.reduced; j++)
            acc = K::Combine::of(acc, Acc(widened(p.x[first + located(j, n.gone, n.x_gone)])));
        K::end(p, n, row, K::finish(acc, n));
    }
}
