// Products of matrices: c[i, j] = sum over k of a[i, k] b[k, j], for batches and strides of any kind.
//
//     K::Acc                     type that products are added up in
//     K::add(acc, a, b)          acc + a b
//     K::end(p, n, i, result)    stores the i-th result, in row-major order
//
// A line is a row of a, or a column of b: n.rows and n.cols of them, of n.depth products each.

// LINES lines of DEPTH products on their way to shared memory, where they lie as [product][line].
// ALONG: elements of a line lie side by side, so that threads read along it; else across lines.
template <class K, int LINES, bool ALONG>
struct GemmSlab {
    using Index = typename K::Index;
    using Acc = typename K::Acc;
    static constexpr int LINE = LINES + 4;  // threads that write along a line meet few banks twice
    static constexpr int EACH = LINES * K::DEPTH / K::THREADS;
    Acc held[EACH];

    KN_DEVICE static int line(int i) {
        const int e = threadIdx.x + i * K::THREADS;
        return ALONG ? e / K::DEPTH : e % LINES;
    }
    KN_DEVICE static int product(int i) {
        const int e = threadIdx.x + i * K::THREADS;
        return ALONG ? e % K::DEPTH : e / LINES;
    }

    // reads from x on, where `lines` and `depth` are what is left; zeros are behind that
    template <class T>
    KN_DEVICE void fetch(const T* x, Index lines, Index line_step, Index depth, Index step) {
        KN_UNROLL
        for (int i = 0; i < EACH; i++) {
            const bool inside = line(i) < lines && product(i) < depth;
            held[i] = inside ? Acc(widened(x[line(i) * line_step + product(i) * step])) : Acc(0);
        }
    }
    KN_DEVICE void put(Acc* slab) const {
        KN_UNROLL
        for (int i = 0; i < EACH; i++) slab[product(i) * LINE + line(i)] = held[i];
    }
};

// A block computes ROWS x COLS results, a thread DOWN x 4. The next slab is on its way from memory
// while products of this one are added up; two slabs take turns, so that one barrier is enough.
template <class K>
KN_DEVICE void gemm_tiled(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    using Acc = typename K::Acc;
    using Left = GemmSlab<K, K::ROWS, K::A_ALONG>;
    using Right = GemmSlab<K, K::COLS, K::B_ALONG>;
    const int ROWS = K::ROWS, COLS = K::COLS, DEPTH = K::DEPTH, DOWN = K::DOWN;
    KN_SHARED(Acc, a, 2 * DEPTH * Left::LINE);
    KN_SHARED(Acc, b, 2 * DEPTH * Right::LINE);
    const int column = threadIdx.x % (COLS / 4) * 4, row = threadIdx.x / (COLS / 4) * DOWN;
    const Index down = (n.rows + ROWS - 1) / ROWS, across = (n.cols + COLS - 1) / COLS;
    int turn = 0;

    for (Index tile = blockIdx.x; tile < n.batch * down * across; tile += gridDim.x) {
        const Index col0 = tile % across * COLS, row0 = tile / across % down * ROWS;
        const Index batch = tile / across / down;
        Index at[2] = {row0 * n.a_row, col0 * n.b_col};
        locate(at, batch, n.batches, n.batch_strides);
        Left left;
        Right right;
        const auto fetch = [&](Index k) {
            left.fetch(p.a + at[0] + k * n.a_col, n.rows - row0, n.a_row, n.depth - k, n.a_col);
            right.fetch(p.b + at[1] + k * n.b_row, n.cols - col0, n.b_col, n.depth - k, n.b_row);
        };
        Acc acc[DOWN][4] = {};
        fetch(0);
        for (Index k0 = 0; k0 < n.depth; k0 += DEPTH, turn ^= 1) {
            Acc *a_slab = a + turn * DEPTH * Left::LINE, *b_slab = b + turn * DEPTH * Right::LINE;
            left.put(a_slab);
            right.put(b_slab);
            __syncthreads();
            if (k0 + DEPTH < n.depth) fetch(k0 + DEPTH);
            KN_UNROLL
            for (int k = 0; k < DEPTH; k++) {
                Acc x[DOWN], y[4];
                KN_UNROLL
                for (int i = 0; i < DOWN; i++) x[i] = a_slab[k * Left::LINE + row + i];
                KN_UNROLL
                for (int j = 0; j < 4; j++) y[j] = b_slab[k * Right::LINE + column + j];
                KN_UNROLL
                for (int i = 0; i < DOWN; i++) {
                    KN_UNROLL
                    for (int j = 0; j < 4; j++) acc[i][j] = K::add(acc[i][j], x[i], y[j]);
                }
            }
        }
        KN_UNROLL
        for (int i = 0; i < DOWN; i++) {
            KN_UNROLL
            for (int j = 0; j < 4; j++) {
                const Index r = row0 + row + i, c = col0 + column + j;
                if (r < n.rows && c < n.cols)
                    K::end(p, n, (batch * n.rows + r) * n.cols + c, acc[i][j]);
            }
        }
    }
}

// At most ROWS rows: b is read once, and nothing is read twice. LANES threads have VECTOR columns
// each of every PARTS-th product; what the parts add up meets in shared memory.
template <class K>
KN_DEVICE void gemm_few(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    using Acc = typename K::Acc;
    const int ROWS = K::ROWS, VECTOR = K::VECTOR, LANES = 8, PARTS = K::THREADS / LANES;
    const int COLS = LANES * VECTOR;
    KN_SHARED(Acc, room, PARTS * COLS);
    const int lane = threadIdx.x % LANES, part = threadIdx.x / LANES;
    const Index across = (n.cols + COLS - 1) / COLS;

    for (Index tile = blockIdx.x; tile < n.batch * across; tile += gridDim.x) {
        const Index batch = tile / across, col0 = tile % across * COLS;
        const Index col = col0 + lane * VECTOR;
        Index at[2] = {};
        locate(at, batch, n.batches, n.batch_strides);
        Acc acc[ROWS][VECTOR] = {};
        for (Index k = part; k < n.depth && col < n.cols; k += PARTS) {
            const auto y = load<VECTOR>(p.b + at[1] + k * n.b_row + col * n.b_col);
            KN_UNROLL
            for (int r = 0; r < ROWS; r++) {
                if (r >= n.rows) continue;
                const Acc x = Acc(widened(p.a[at[0] + r * n.a_row + k * n.a_col]));
                KN_UNROLL
                for (int v = 0; v < VECTOR; v++)
                    acc[r][v] = K::add(acc[r][v], x, Acc(widened(y.lane[v])));
            }
        }
        KN_UNROLL
        for (int r = 0; r < ROWS; r++) {
            if (r >= n.rows) continue;
            KN_UNROLL
            for (int v = 0; v < VECTOR; v++) room[part * COLS + lane * VECTOR + v] = acc[r][v];
            __syncthreads();
            if (threadIdx.x < COLS && col0 + Index(threadIdx.x) < n.cols) {
                Acc total = room[threadIdx.x];
                for (int other = 1; other < PARTS; other++)
                    total = total + room[other * COLS + threadIdx.x];
                K::end(p, n, (batch * n.rows + r) * n.cols + col0 + threadIdx.x, total);
            }
            __syncthreads();
        }
    }
}

// The same where elements of b lie side by side along a column: a warp has a column.
template <class K>
KN_DEVICE void gemm_few_along(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    using Acc = typename K::Acc;
    const int ROWS = K::ROWS, VECTOR = K::VECTOR;
    const Index lane = threadIdx.x % 32;
    const Index first = first_thread<Index>() / 32, step = all_threads<Index>() / 32;
    for (Index i = first; i < n.batch * n.cols; i += step) {
        const Index batch = i / n.cols, col = i % n.cols;
        Index at[2] = {0, col * n.b_col};
        locate(at, batch, n.batches, n.batch_strides);
        Acc acc[ROWS] = {};
        for (Index k = lane * VECTOR; k < n.depth; k += 32 * VECTOR) {
            const auto y = load<VECTOR>(p.b + at[1] + k * n.b_row);
            KN_UNROLL
            for (int r = 0; r < ROWS; r++) {
                if (r >= n.rows) continue;
                KN_UNROLL
                for (int v = 0; v < VECTOR; v++) {
                    const Acc x = Acc(widened(p.a[at[0] + r * n.a_row + (k + v) * n.a_col]));
                    acc[r] = K::add(acc[r], x, Acc(widened(y.lane[v])));
                }
            }
        }
        KN_UNROLL
        for (int r = 0; r < ROWS; r++) {
            if (r >= n.rows) continue;
            const Acc total = warp_combined<Sum>(acc[r]);
            if (lane == 0) K::end(p, n, (batch * n.rows + r) * n.cols + col, total);
        }
    }
}
