// Windows over up to three axes, the last ones: their maximum, sum or mean.
//
//     K::Acc                         type that is computed in
//     K::place(n, i, lead, o)        which window the i-th result is, see `kn_cuda.places`
//     K::start()                     what changes nothing
//     K::Combine::of(a, b)           combines two
//     K::finish(acc, counted)        the result of a window of so many elements
//     K::end(p, n, i, result)        stores the i-th result
//     K::end_index(p, n, i, index)   stores where the maximum is, if K::INDEXED

// How many elements of a window that begins at `from` lie in [low, high).
template <class Index>
KN_FN Index pool_counted(Index from, Index kernel, Index dilation, Index low, Index high) {
    Index count = 0;
    for (Index t = 0; t < kernel; t++) {
        const Index place = from + t * dilation;
        count += place >= low && place < high;
    }
    return count;
}

// A thread computes a window. The maximum is the first NaN, or else the first of the largest.
template <class K>
KN_DEVICE void pool_windows(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    using Acc = typename K::Acc;
    for (Index i = first_thread<Index>(); i < n.count; i += all_threads<Index>()) {
        Index lead[2] = {}, from[3] = {};  // of the lead: where it begins in x, and its number there
        K::place(n, i, lead, from);
        KN_UNROLL
        for (int axis = 0; axis < 3; axis++)
            from[axis] = from[axis] * n.step[axis] - n.before[axis];
        Acc acc = K::start();
        Index found = -1;
        for (Index t = 0; t < n.kernel[0]; t++) {
            const Index a = from[0] + t * n.dilation[0];
            if (a < 0 || a >= n.spatial[0]) continue;
            for (Index u = 0; u < n.kernel[1]; u++) {
                const Index b = from[1] + u * n.dilation[1];
                if (b < 0 || b >= n.spatial[1]) continue;
                for (Index v = 0; v < n.kernel[2]; v++) {
                    const Index c = from[2] + v * n.dilation[2];
                    if (c < 0 || c >= n.spatial[2]) continue;
                    const Index at = a * n.x_space[0] + b * n.x_space[1] + c * n.x_space[2];
                    const Acc x = Acc(widened(p.x[lead[0] + at]));
                    if constexpr (K::INDEXED)
                        if (found < 0 || x > acc || (x != x && acc == acc))
                            found = a * n.number[0] + b * n.number[1] + c * n.number[2];
                    acc = K::Combine::of(acc, x);
                }
            }
        }
        Index counted = 1;
        if constexpr (K::COUNTED) {
            KN_UNROLL
            for (int axis = 0; axis < 3; axis++)
                counted *= pool_counted(
                    from[axis], n.kernel[axis], n.dilation[axis], -n.margin[axis],
                    n.spatial[axis] + n.margin_after[axis]);
        }
        K::end(p, n, i, K::finish(acc, counted));
        if constexpr (K::INDEXED) K::end_index(p, n, i, found < 0 ? found : found + lead[1]);
    }
}
