// Images of other sizes: every element is a weighted sum of some, along up to three axes.
//
//     K::Acc                           type that is computed in
//     K::place(n, i, lead, o)          which element the i-th result is, see `kn_cuda.places`
//     K::source(p, n, axis, o, t)      the t-th element that results at o are made of, along an axis
//     K::weight(p, n, axis, o, t)      its weight
//     K::finish(acc)                   the result of a sum
//     K::end(p, n, i, result)          stores the i-th result
template <class K>
KN_DEVICE void resize_taps(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    using Acc = typename K::Acc;
    for (Index i = first_thread<Index>(); i < n.count; i += all_threads<Index>()) {
        Index lead[1] = {}, o[3] = {};
        K::place(n, i, lead, o);
        Acc acc = Acc(0);
        for (Index t = 0; t < n.taps[0]; t++) {
            const Index a = lead[0] + K::source(p, n, 0, o[0], t) * n.x_space[0];
            const Acc part_a = K::weight(p, n, 0, o[0], t);
            for (Index u = 0; u < n.taps[1]; u++) {
                const Index b = a + K::source(p, n, 1, o[1], u) * n.x_space[1];
                const Acc part_b = part_a * K::weight(p, n, 1, o[1], u);
                for (Index v = 0; v < n.taps[2]; v++) {
                    const Acc x = Acc(widened(p.x[b + K::source(p, n, 2, o[2], v) * n.x_space[2]]));
                    if constexpr (K::WEIGHTED) acc += x * (part_b * K::weight(p, n, 2, o[2], v));
                    else acc = x;
                }
            }
        }
        K::end(p, n, i, K::finish(acc));
    }
}
