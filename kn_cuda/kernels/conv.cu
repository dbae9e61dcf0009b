// Convolutions, and their transposes, over any number of spatial axes.
//
//     K::Acc                      type that products are added up in
//     K::add(acc, a, b)           acc + a b
//     K::TRANSPOSED               whether x[i] goes to windows, and not windows to y[i]
//     K::end(p, n, i, result)     stores the i-th result; channels count fastest
//
// Points are the results of one channel: images, then n.windows. A group has n.cols channels of the
// result and n.channels of x. Weights lie as [group, tap, channel of x, channel of the result].

// Turns the place of a result plus that of a tap, along an axis, into an element of x.
// Returns whether there is one: else it lies in the padding, or between the elements.
template <class K, class Index>
KN_FN bool conv_inside(Index& place, int axis, const typename K::Numbers& n) {
    if constexpr (K::TRANSPOSED) {
        const Index whole = place / n.step[axis];
        if (place < 0 || whole * n.step[axis] != place) return false;
        place = whole;
    }
    return place >= 0 && place < n.sizes[axis];
}

// A block computes ROWS points of COLS channels of a group; a thread DOWN of them, of four channels.
// Slabs of DEPTH products go through shared memory, as numbers to compute with.
template <class K>
KN_DEVICE void conv_tiled(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    using Acc = typename K::Acc;
    const int ROWS = K::ROWS, COLS = K::COLS, DEPTH = K::DEPTH, DOWN = K::DOWN, RANK = K::RANK;
    const int LINE = ROWS + 4;  // threads that write a column meet few banks twice
    KN_SHARED(Acc, a, DEPTH * LINE);
    KN_SHARED(Acc, b, DEPTH * COLS);
    KN_SHARED(bool, covered, K::TRANSPOSED ? DEPTH * ROWS : 1);
    KN_SHARED(Index, image, ROWS);  // where it begins in x; -1 behind the last point
    KN_SHARED(Index, row_place, ROWS * RANK);
    KN_SHARED(Index, channel, DEPTH);  // where it begins in x; -1 behind the last product
    KN_SHARED(Index, tap_place, DEPTH * RANK);
    const int column = threadIdx.x % (COLS / 4) * 4, row = threadIdx.x / (COLS / 4) * DOWN;
    const Index down = (n.points + ROWS - 1) / ROWS, across = (n.cols + COLS - 1) / COLS;

    for (Index tile = blockIdx.x; tile < n.groups * down * across; tile += gridDim.x) {
        const Index col0 = tile % across * COLS, row0 = tile / across % down * ROWS;
        const Index group = tile / across / down;
        const Index depth = n.taps * n.channels;
        const Index x0 = group * n.channels * n.x_channel, w0 = group * depth * n.cols;

        for (int r = threadIdx.x; r < ROWS; r += K::THREADS) {
            Index point = row0 + r;
            const bool inside = point < n.points;
            KN_UNROLL
            for (int axis = RANK - 1; axis >= 0; axis--) {
                const Index outer = point / n.windows[axis], o = point - outer * n.windows[axis];
                row_place[r * RANK + axis] =
                    K::TRANSPOSED ? o + n.before[axis] : o * n.step[axis] - n.before[axis];
                point = outer;
            }
            image[r] = inside ? point * n.x_image + x0 : Index(-1);
        }
        Acc acc[DOWN][4] = {};
        for (Index slab = 0; slab < depth; slab += DEPTH) {
            if (threadIdx.x < DEPTH) {
                const Index k = slab + threadIdx.x;
                Index tap = k / n.channels;
                channel[threadIdx.x] = k < depth ? (k - tap * n.channels) * n.x_channel : Index(-1);
                KN_UNROLL
                for (int axis = RANK - 1; axis >= 0; axis--) {
                    const Index outer = tap / n.kernel[axis];
                    const Index far = (tap - outer * n.kernel[axis]) * n.dilation[axis];
                    tap_place[threadIdx.x * RANK + axis] = K::TRANSPOSED ? -far : far;
                    tap = outer;
                }
            }
            __syncthreads();
            for (int e = threadIdx.x; e < DEPTH * ROWS; e += K::THREADS) {
                // threads read side by side: channels where these lie so, else points
                const int k = K::CHANNELS_LAST ? e % DEPTH : e / ROWS;
                const int r = K::CHANNELS_LAST ? e / DEPTH : e % ROWS;
                bool inside = image[r] >= 0 && channel[k] >= 0;
                Index at = image[r] + channel[k];
                KN_UNROLL
                for (int axis = 0; axis < RANK; axis++) {
                    Index place = row_place[r * RANK + axis] + tap_place[k * RANK + axis];
                    inside = conv_inside<K>(place, axis, n) && inside;
                    at += place * n.x_space[axis];
                }
                a[k * LINE + r] = inside ? Acc(widened(p.x[at])) : Acc(0);
                if constexpr (K::TRANSPOSED) covered[k * ROWS + r] = inside;
            }
            for (int e = threadIdx.x; e < DEPTH * COLS; e += K::THREADS) {
                const Index k = slab + e / COLS, c = col0 + e % COLS;
                const bool inside = k < depth && c < n.cols;
                b[e] = inside ? Acc(widened(p.w[w0 + k * n.cols + c])) : Acc(0);
            }
            __syncthreads();
            KN_UNROLL
            for (int k = 0; k < DEPTH; k++) {
                Acc left[DOWN], right[4];
                KN_UNROLL
                for (int i = 0; i < DOWN; i++) left[i] = a[k * LINE + row + i];
                KN_UNROLL
                for (int j = 0; j < 4; j++) right[j] = b[k * COLS + column + j];
                KN_UNROLL
                for (int i = 0; i < DOWN; i++) {
                    // what no element covers adds nothing, whatever the weight is
                    if constexpr (K::TRANSPOSED)
                        if (!covered[k * ROWS + row + i]) continue;
                    KN_UNROLL
                    for (int j = 0; j < 4; j++) acc[i][j] = K::add(acc[i][j], left[i], right[j]);
                }
            }
        }
        KN_UNROLL
        for (int i = 0; i < DOWN; i++) {
            KN_UNROLL
            for (int j = 0; j < 4; j++) {
                const Index point = row0 + row + i, c = col0 + column + j;
                if (point < n.points && c < n.cols)
                    K::end(p, n, (point * n.groups + group) * n.cols + c, acc[i][j]);
            }
        }
    }
}

// One channel of x a group. A thread computes POINTS results side by side along the last axis, so
// that a weight is read once for all of them. Weights lie as [tap, channel of the result].
template <class K>
KN_DEVICE void conv_depthwise(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    using Acc = typename K::Acc;
    const int RANK = K::RANK, LAST = K::RANK - 1, POINTS = K::POINTS;
    const Index channels = n.groups * n.cols, wide = n.windows[LAST];
    const Index parts = (wide + POINTS - 1) / POINTS;
    for (Index i = first_thread<Index>(); i < n.lines * parts * channels; i += all_threads<Index>()) {
        const Index c = i % channels, first = i / channels % parts * POINTS;
        const Index line = i / channels / parts;
        Index from[RANK], rest = line;
        KN_UNROLL
        for (int axis = LAST - 1; axis >= 0; axis--) {
            const Index outer = rest / n.windows[axis];
            from[axis] = (rest - outer * n.windows[axis]) * n.step[axis] - n.before[axis];
            rest = outer;
        }
        const Index start = rest * n.x_image + c / n.cols * n.x_channel;
        from[LAST] = first * n.step[LAST] - n.before[LAST];
        Acc acc[POINTS] = {};
        for (Index outer = 0; outer < n.taps / n.kernel[LAST]; outer++) {
            Index at = start, tap = outer;
            bool inside = true;
            KN_UNROLL
            for (int axis = LAST - 1; axis >= 0; axis--) {
                const Index next = tap / n.kernel[axis];
                const Index place = from[axis] + (tap - next * n.kernel[axis]) * n.dilation[axis];
                inside = inside && place >= 0 && place < n.sizes[axis];
                at += place * n.x_space[axis];
                tap = next;
            }
            for (Index t = 0; t < n.kernel[LAST]; t++) {
                const Acc w = Acc(widened(p.w[(outer * n.kernel[LAST] + t) * channels + c]));
                KN_UNROLL
                for (int j = 0; j < POINTS; j++) {
                    const Index place = from[LAST] + j * n.step[LAST] + t * n.dilation[LAST];
                    const bool there = inside && place >= 0 && place < n.sizes[LAST];
                    const Acc x = there ? Acc(widened(p.x[at + place * n.x_space[LAST]])) : Acc(0);
                    acc[j] = K::add(acc[j], x, w);
                }
            }
        }
        KN_UNROLL
        for (int j = 0; j < POINTS; j++)
            if (first + j < wide) K::end(p, n, (line * wide + first + j) * channels + c, acc[j]);
    }
}
