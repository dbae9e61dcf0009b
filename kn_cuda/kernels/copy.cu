// Copies that turn planes: rows of the result are columns of what is read.

// A block moves tiles of 32 x 32 elements through shared memory, so that reads and writes both go
// along memory. The extra column keeps the 32 threads of a warp in different banks.
template <class K>
KN_DEVICE void copy_turned(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    using T = typename K::T;
    const int SIDE = 32, STEP = 8;
    KN_SHARED(T, tile, SIDE * (SIDE + 1));
    const Index across = (n.columns + SIDE - 1) / SIDE, down = (n.rows + SIDE - 1) / SIDE;
    const Index lane = threadIdx.x % SIDE, line = threadIdx.x / SIDE;
    for (Index i = blockIdx.x; i < n.planes * down * across; i += gridDim.x) {
        const Index column = i % across * SIDE, row = i / across % down * SIDE;
        Index at[2] = {};
        locate(at, i / across / down, n.sizes, n.strides);
        // read along rows, which lie side by side in x
        for (Index k = line; k < SIDE; k += STEP)
            if (row + lane < n.rows && column + k < n.columns)
                tile[k * (SIDE + 1) + lane] = p.x[at[1] + (row + lane) + (column + k) * n.x_column];
        __syncthreads();
        // write along columns, which lie side by side in y
        for (Index k = line; k < SIDE; k += STEP)
            if (row + k < n.rows && column + lane < n.columns)
                p.y[at[0] + (row + k) * n.y_row + (column + lane)] = tile[lane * (SIDE + 1) + k];
        __syncthreads();
    }
}
