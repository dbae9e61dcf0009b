// What moves elements to other places: padding and joining. One launch for all of a result.

// A thread writes an element: of x, or the value. Element i of a padded axis is i - n.before of x.
//
//     K::place(n, i, at, o)   which element the i-th one is, see `kn_cuda.places`
//     K::MODE                 what is outside: 0 the value, 1 the border, 2 mirrored, 3 the other side
template <class K>
KN_DEVICE void layout_pad(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    for (Index i = first_thread<Index>(); i < n.count; i += all_threads<Index>()) {
        Index at[2] = {}, o[K::RANK] = {};
        K::place(n, i, at, o);
        bool inside = true;
        KN_UNROLL
        for (int axis = 0; axis < K::RANK; axis++) {
            const Index size = n.sizes[axis];
            Index from = o[axis] - n.before[axis];
            if (K::MODE == 0) inside = inside && from >= 0 && from < size;
            if (K::MODE == 1) from = from < 0 ? 0 : from < size ? from : size - 1;
            if (K::MODE == 2) {
                from = from < 0 ? -from : from;
                from = from < size ? from : 2 * (size - 1) - from;
            }
            if (K::MODE == 3) {
                from %= size;
                from = from < 0 ? from + size : from;
            }
            at[0] += o[axis] * n.y_strides[axis];
            at[1] += from * n.x_strides[axis];
        }
        if constexpr (K::MODE == 0) p.y[at[0]] = inside ? p.x[at[1]] : p.value[0];
        else p.y[at[0]] = p.x[at[1]];
    }
}

// A thread has an element of one of several tensors that are joined along an axis.
//
//     K::place(n, i, at, o)      likewise, with the place along that axis as o[0]
//     K::part(p, n, at, o)       reads or makes the element of the part that it lies in
//     K::PLAIN                   whether it is only copied; else K::end(p, n, i, element) stores it
template <class K>
KN_DEVICE void layout_concat(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    const int SOURCES = K::SOURCES;
    for (Index i = first_thread<Index>(); i < n.count; i += all_threads<Index>()) {
        Index at[SOURCES + K::PLAIN] = {}, o[1] = {};
        K::place(n, i, at, o);
        if constexpr (K::PLAIN) p.y[at[SOURCES] + o[0] * n.y_step] = K::part(p, n, at, o[0]);
        else K::end(p, n, i, K::part(p, n, at, o[0]));
    }
}
