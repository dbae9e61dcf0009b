// Scalar programs: every element of the result is computed from those at the same place.

// A thread computes VECTOR elements that lie side by side, then goes on behind those of all threads.
//
//     K::apply<N>(p, at)  loads, computes and stores N elements of each operand, from its offset on
template <class K>
KN_DEVICE void scalar_map(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    const Index step = all_threads<Index>() * K::VECTOR;
    for (Index i = first_thread<Index>() * K::VECTOR; i < n.count; i += step) {
        if (i + K::VECTOR <= n.count) {
            Index at[K::OPERANDS] = {};
            locate(at, i, n.sizes, n.strides);
            K::template apply<K::VECTOR>(p, at);
        } else {
            for (Index j = i; j < n.count; j++) {
                Index at[K::OPERANDS] = {};
                locate(at, j, n.sizes, n.strides);
                K::template apply<1>(p, at);
            }
        }
    }
}
