// Images read at places that are data.
//
//     K::Acc                       type that sums are computed in
//     K::Position                  type that places and weights are computed in
//     K::TAPS                      neighbours along an axis: 1, 2 or 4
//     K::PADDING                   what is outside: 0 zero, 1 the border, 2 the reflected element
//     K::CORNERS, K::IN_ELEMENTS   where -1 and 1 are; whether the grid holds positions
//     K::finish(acc)               the result of a sum
//     K::end(p, n, i, result)      stores the i-th result

const double SAMPLE_FAR = 1073741824.0;  // places beyond are as good as this, and fit into integers

template <class T> KN_FN T sample_mod(T x, T width) {
    const T rest = T(fmod(x, width));
    return rest < T(0) ? rest + width : rest;
}

// Reflects a place at the outer edges, or at the centres of the outer elements, until it is inside.
template <bool CORNERS, class T> KN_FN T sample_reflected(T place, T size) {
    const T low = CORNERS ? T(0) : T(-0.5), width = CORNERS ? size - T(1) : size;
    if (width == T(0)) return T(0);
    const T folded = sample_mod(place - low, T(2) * width);
    return (folded <= width ? folded : T(2) * width - folded) + low;
}

template <int TAPS, class T> KN_FN T sample_weight(T far) {
    const T d = far < T(0) ? -far : far, a = T(-0.75);
    if (TAPS == 1) return T(1);
    if (TAPS == 2) return d < T(1) ? T(1) - d : T(0);
    if (d <= T(1)) return ((a + T(2)) * d - (a + T(3))) * d * d + T(1);
    return d < T(2) ? ((d - T(5)) * d + T(8)) * d * a - T(4) * a : T(0);
}

// The place of a number of the grid along an axis; near enough for integers.
template <class K, class T> KN_FN T sample_place(T grid, T size) {
    T place = K::IN_ELEMENTS ? grid
            : K::CORNERS     ? (grid + T(1)) / T(2) * (size - T(1))
                             : ((grid + T(1)) * size - T(1)) / T(2);
    if (K::TAPS == 1) place = T(rint(place));
    if (K::PADDING == 2) {
        const bool finite = place - place == T(0);
        return finite ? sample_reflected<K::CORNERS>(place, size) : T(0);
    }
    if (place != place) return K::PADDING == 0 ? T(-SAMPLE_FAR) : T(0);
    return place < T(-SAMPLE_FAR) ? T(-SAMPLE_FAR) : place > T(SAMPLE_FAR) ? T(SAMPLE_FAR) : place;
}

// Turns a neighbour into an element; returns whether it is one, and not 0.
template <class K, class Index> KN_FN bool sample_inside(Index& at, Index size) {
    if (K::PADDING == 2) at = Index(sample_reflected<K::CORNERS>(double(at), double(size)));
    const bool inside = at >= 0 && at < size;
    at = at < 0 ? Index(0) : at >= size ? size - 1 : at;
    return inside || K::PADDING != 0;
}

// A thread computes a result, a sum over the neighbours along all axes; missing axes have size 1.
template <class K>
KN_DEVICE void sample_grid(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    using Acc = typename K::Acc;
    using T = typename K::Position;
    const int MISSING = 3 - K::RANK, FIRST = K::TAPS == 4 ? -1 : 0;
    for (Index i = first_thread<Index>(); i < n.count; i += all_threads<Index>()) {
        Index at[2] = {}, floor_at[3] = {};
        T place[3] = {};
        locate(at, i, n.place_sizes, n.place_strides);
        KN_UNROLL
        for (int axis = MISSING; axis < 3; axis++) {
            const Index where = at[1] + (2 - axis) * n.grid_vector;
            place[axis] = sample_place<K>(T(widened(p.grid[where])), T(n.sizes[axis]));
            floor_at[axis] = Index(floor(place[axis]));
        }
        Acc acc = Acc(0);
        for (int t = 0; t < (MISSING > 0 ? 1 : K::TAPS); t++)
            for (int u = 0; u < (MISSING > 1 ? 1 : K::TAPS); u++)
                for (int v = 0; v < K::TAPS; v++) {
                    const int taps[3] = {t, u, v};
                    Index from = at[0];
                    T weight = T(1);
                    bool inside = true;
                    KN_UNROLL
                    for (int axis = MISSING; axis < 3; axis++) {
                        Index element = floor_at[axis] + FIRST + taps[axis];
                        const T far = place[axis] - floor(place[axis]) - T(FIRST + taps[axis]);
                        weight *= sample_weight<K::TAPS>(far);
                        inside = sample_inside<K>(element, n.sizes[axis]) && inside;
                        from += element * n.x_space[axis];
                    }
                    const Acc x = inside ? Acc(widened(p.x[from])) : Acc(0);
                    if constexpr (K::TAPS == 1) acc = x;
                    else acc = Acc(acc + x * weight);
                }
        K::end(p, n, i, K::finish(acc));
    }
}
