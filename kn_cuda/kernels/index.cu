// Elements chosen by indices that are data: read there, or written there.
//
//     K::DEPTH     how many indices choose an element; those of a tuple lie n.index_step apart
//     n.bounds     sizes of the axes that they point into
//     n.jumps      strides along these
//     p.status     tells of an index that does not exist, and of its place in the tuple
//     K::end(p, n, i, result)    stores the i-th result

// Adds to an offset how far the indices at `tuple` point; returns whether they exist.
template <class K>
KN_FN bool follow(
    const typename K::Pointers& p, const typename K::Numbers& n, typename K::Index tuple,
    typename K::Index& at
) {
    using Index = typename K::Index;
    KN_UNROLL
    for (int k = 0; k < K::DEPTH; k++) {
        const int64_t given = int64_t(p.indices[tuple + k * n.index_step]), bound = n.bounds[k];
        if (given < -bound || given >= bound) {
            unsigned long long* const told = reinterpret_cast<unsigned long long*>(p.status);
            if (atomicCAS(told, 0ull, 1ull) == 0) p.status[1] = given, p.status[2] = k;
            return false;
        }
        at += Index(given < 0 ? given + bound : given) * n.jumps[k];
    }
    return true;
}

// A thread reads an element of the result.
template <class K>
KN_DEVICE void gather_each(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    for (Index i = first_thread<Index>(); i < n.count; i += all_threads<Index>()) {
        Index at[2] = {};  // in x, and of the indices
        locate(at, i, n.sizes, n.strides);
        if (follow<K>(p, n, at[1], at[0])) K::end(p, n, i, widened(p.x[at[0]]));
    }
}

// ---- writing ------------------------------------------------------------------------------------

// Writing goes by targets, so that what comes out depends on no order of threads. For each target
// p.head has an update, or a list of updates that p.next links. Updates have the numbers of their
// index tuples; there is no update -1.

KN_FN int32_t swapped(int32_t* slot, int32_t x) { return atomicExch(slot, x); }
KN_FN int64_t swapped(int64_t* slot, int64_t x) {
    return int64_t(atomicExch(reinterpret_cast<unsigned long long*>(slot), (unsigned long long)(x)));
}

// Every target is without an update.
template <class K>
KN_DEVICE void scatter_clear(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    for (Index i = first_thread<Index>(); i < n.count; i += all_threads<Index>()) p.head[i] = -1;
}

// A thread adds an update to the list of its target, or takes the place of an earlier one.
template <class K>
KN_DEVICE void scatter_link(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    using Link = typename K::Link;
    for (Index i = first_thread<Index>(); i < n.count; i += all_threads<Index>()) {
        Index at[2] = {};  // the number of the target, and where the indices are
        locate(at, i, n.sizes, n.strides);
        if (!follow<K>(p, n, at[1], at[0])) continue;
        if constexpr (K::LINKED) p.next[i] = swapped(p.head + at[0], Link(i));
        else atomicMax(p.head + at[0], Link(i));
    }
}

// A thread puts a list in order: runs of 1, 2, 4 .. updates are merged in pairs.
template <class K>
KN_DEVICE void scatter_sort(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    using Link = typename K::Link;
    for (Index i = first_thread<Index>(); i < n.count; i += all_threads<Index>()) {
        Link head = p.head[i];
        Index merges = head < 0 ? 0 : 2;  // how many pairs a pass met; behind one, all is in order
        for (Index run = 1; merges > 1; run *= 2) {
            Link left = head, last = -1;
            for (merges = 0; left >= 0; merges++) {
                Link right = left;
                Index lefts = 0, rights = run;
                for (; lefts < run && right >= 0; lefts++) right = p.next[right];
                while (lefts > 0 || (rights > 0 && right >= 0)) {
                    const bool more = rights > 0 && right >= 0;
                    const bool from_left = lefts > 0 && (!more || left < right);
                    const Link taken = from_left ? left : right;
                    if (from_left) left = p.next[left], lefts--;
                    else right = p.next[right], rights--;
                    if (last < 0) head = taken;
                    else p.next[last] = taken;
                    last = taken;
                }
                left = right;
            }
            p.next[last] = -1;
        }
        p.head[i] = head;
    }
}

// A thread computes an element of the result: what was there, and the updates of its target.
//
//     K::combined(a, b)    what becomes of an element and an update
template <class K>
KN_DEVICE void scatter_apply(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    for (Index i = first_thread<Index>(); i < n.count; i += all_threads<Index>()) {
        const Index target = i / n.slice, place = i - target * n.slice;
        auto result = widened(p.x[located(i, n.x_sizes, n.x_strides)]);
        const Index inside = located(place, n.slice_sizes, n.slice_strides);
        for (auto update = p.head[target]; update >= 0;) {
            const Index at = located(Index(update), n.tuple_sizes, n.tuple_strides);
            result = K::combined(result, widened(p.updates[at + inside]));
            if constexpr (K::LINKED) update = p.next[update];
            else break;
        }
        K::end(p, n, i, result);
    }
}
