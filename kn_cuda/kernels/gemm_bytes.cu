// Products of matrices of bytes, whose sums wrap at 32 bits: four products are one instruction.
//
//     K::A_SIGNED, B_SIGNED      whether bytes are -128 to 127, else 0 to 255
//     K::A_WORDS                 whether four bytes along a row of a are an aligned word
//     K::end(p, n, i, result)    stores the i-th result, in row-major order

// acc + four products.
template <bool A_SIGNED, bool B_SIGNED> KN_FN uint32_t dot4(uint32_t acc, uint32_t a, uint32_t b) {
#ifdef __CUDACC_RTC__
    uint32_t sum;
    if constexpr (A_SIGNED && B_SIGNED)
        asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(acc));
    else if constexpr (A_SIGNED)
        asm("dp4a.s32.u32 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(acc));
    else if constexpr (B_SIGNED)
        asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(acc));
    else asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(acc));
    return sum;
#else
    for (int at = 0; at < 32; at += 8) {
        const uint32_t x = A_SIGNED ? uint32_t(int8_t(a >> at)) : a >> at & 255;
        acc += x * (B_SIGNED ? uint32_t(int8_t(b >> at)) : b >> at & 255);
    }
    return acc;
#endif
}

// Four bytes from number k on, `step` apart, as a word; 0 from number `end` on.
template <class T, class Index> KN_FN uint32_t word_of(const T* x, Index k, Index end, Index step) {
    uint32_t word = 0;
    KN_UNROLL
    for (int i = 0; i < 4; i++)
        if (k + i < end) word |= uint32_t(uint8_t(x[(k + i) * step])) << 8 * i;
    return word;
}

// A block computes 64 rows of 64 columns. Of its 16 x 16 threads, each has every 16th of both.
template <class K>
KN_DEVICE void gemm_bytes(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    const int SIDE = 16, EACH = 4, TILE = SIDE * EACH, LINE = TILE + 1, WORDS = 16;
    KN_SHARED(uint32_t, a, WORDS * LINE);
    KN_SHARED(uint32_t, b, WORDS * LINE);
    const int across = threadIdx.x % SIDE, down = threadIdx.x / SIDE;
    const Index strips = (n.rows + TILE - 1) / TILE, columns = (n.cols + TILE - 1) / TILE;
    for (Index tile = blockIdx.x; tile < n.batch * strips * columns; tile += gridDim.x) {
        const Index col0 = tile % columns * TILE, row0 = tile / columns % strips * TILE;
        const Index batch = tile / columns / strips;
        Index at[2] = {row0 * n.a_row, col0 * n.b_col};
        locate(at, batch, n.batches, n.batch_strides);
        uint32_t acc[EACH][EACH] = {};
        for (Index k = 0; k < n.depth; k += 4 * WORDS) {
            for (int e = threadIdx.x; e < WORDS * TILE; e += K::THREADS) {  // along rows
                const int word = e % WORDS, row = e / WORDS;
                const Index first = k + 4 * word;
                const auto* x = p.a + at[0] + row * n.a_row;
                uint32_t& slot = a[word * LINE + row];
                if (row0 + row >= n.rows || first >= n.depth) slot = 0;
                else if constexpr (K::A_WORDS) slot = *reinterpret_cast<const uint32_t*>(x + first);
                else slot = word_of(x, first, n.depth, n.a_col);
            }
            for (int e = threadIdx.x; e < WORDS * TILE; e += K::THREADS) {  // and across columns
                const int word = e / TILE, col = e % TILE;
                const auto* x = p.b + at[1] + col * n.b_col;
                const bool inside = col0 + col < n.cols;
                b[word * LINE + col] = inside ? word_of(x, k + 4 * word, n.depth, n.b_row) : 0;
            }
            __syncthreads();
            KN_UNROLL
            for (int word = 0; word < WORDS; word++) {
                KN_UNROLL
                for (int i = 0; i < EACH; i++) {
                    KN_UNROLL
                    for (int j = 0; j < EACH; j++)
                        acc[i][j] = dot4<K::A_SIGNED, K::B_SIGNED>(
                            acc[i][j], a[word * LINE + i * SIDE + down],
                            b[word * LINE + j * SIDE + across]);
                }
            }
            __syncthreads();
        }
        KN_UNROLL
        for (int i = 0; i < EACH; i++) {
            KN_UNROLL
            for (int j = 0; j < EACH; j++) {
                const Index row = row0 + i * SIDE + down, col = col0 + j * SIDE + across;
                if (row < n.rows && col < n.cols)
                    K::end(p, n, (batch * n.rows + row) * n.cols + col, acc[i][j]);
            }
        }
    }
}
