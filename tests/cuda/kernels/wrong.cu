// Kernels with one mistake each where K::WRONG is 1, and the same without it where it is 0.

// Sums blocks of 64 numbers over shared memory.
//     a barrier is missing between writing and reading
template <class K> KN_DEVICE void read_too_early(const typename K::Pointers& p, const typename K::Numbers& n) {
    KN_SHARED(float, room, 64);
    room[threadIdx.x] = p.x[threadIdx.x];
    if (!K::WRONG) __syncthreads();
    p.y[threadIdx.x] = room[63 - threadIdx.x] + room[threadIdx.x ^ 32];
}

//     a barrier is missing between reading and writing again
template <class K> KN_DEVICE void write_too_early(const typename K::Pointers& p, const typename K::Numbers& n) {
    KN_SHARED(float, room, 64);
    float sum = 0;
    for (int round = 0; round < 4; round++) {
        room[threadIdx.x] = p.x[threadIdx.x] + round;
        __syncthreads();
        sum += room[63 - threadIdx.x];
        if (!K::WRONG) __syncthreads();
    }
    p.y[threadIdx.x] = sum;
}

//     half of the threads come to a barrier
template <class K> KN_DEVICE void barrier_in_branch(const typename K::Pointers& p, const typename K::Numbers& n) {
    if (!K::WRONG || threadIdx.x < 32) __syncthreads();
    p.y[threadIdx.x] = p.x[threadIdx.x];
}

//     some threads return in front of a barrier
template <class K> KN_DEVICE void returns_early(const typename K::Pointers& p, const typename K::Numbers& n) {
    p.y[threadIdx.x] = p.x[threadIdx.x];
    if (K::WRONG && int(threadIdx.x) >= n.count) return;
    __syncthreads();
}

//     an exchange leaves lanes out that take part
template <class K> KN_DEVICE void partial_mask(const typename K::Pointers& p, const typename K::Numbers& n) {
    p.y[threadIdx.x] = __shfl_xor_sync(K::WRONG ? 0xffffu : ALL_LANES, p.x[threadIdx.x], 1);
}

//     shared memory is read that nobody wrote
template <class K> KN_DEVICE void never_written(const typename K::Pointers& p, const typename K::Numbers& n) {
    KN_SHARED(float, room, 64);
    if (!K::WRONG || threadIdx.x != 5) room[threadIdx.x] = p.x[threadIdx.x];
    __syncthreads();
    p.y[threadIdx.x] = room[63 - threadIdx.x];
}

//     one element more than there is room for
template <class K> KN_DEVICE void beside_shared(const typename K::Pointers& p, const typename K::Numbers& n) {
    KN_SHARED(float, room, 64);
    room[threadIdx.x + K::WRONG] = p.x[threadIdx.x];
    __syncthreads();
    p.y[threadIdx.x] = room[threadIdx.x + K::WRONG];
}

//     the launch asks for less dynamic shared memory than is used
template <class K> KN_DEVICE void beside_dynamic(const typename K::Pointers& p, const typename K::Numbers& n) {
    KN_DYNAMIC(float, room);
    room[threadIdx.x + K::WRONG] = p.x[threadIdx.x];
    __syncthreads();
    p.y[threadIdx.x] = room[threadIdx.x + K::WRONG];
}

//     a result behind the end
template <class K> KN_DEVICE void beside_result(const typename K::Pointers& p, const typename K::Numbers& n) {
    p.y[threadIdx.x + K::WRONG] = p.x[threadIdx.x];
}

//     two threads write one element
template <class K> KN_DEVICE void order_decides(const typename K::Pointers& p, const typename K::Numbers& n) {
    p.y[K::WRONG ? threadIdx.x / 2 : threadIdx.x] = p.x[threadIdx.x];
}

//     two blocks write one element, and the same; of two blocks only the first one should
template <class K> KN_DEVICE void blocks_share(const typename K::Pointers& p, const typename K::Numbers& n) {
    if (K::WRONG || blockIdx.x == 0) p.y[threadIdx.x] = p.x[threadIdx.x];
}

//     a result that no thread writes
template <class K> KN_DEVICE void missing_result(const typename K::Pointers& p, const typename K::Numbers& n) {
    if (!K::WRONG || threadIdx.x != 63) p.y[threadIdx.x] = p.x[threadIdx.x];
}

//     an index behind a thread's own array
template <class K> KN_DEVICE void beside_own(const typename K::Pointers& p, const typename K::Numbers& n) {
    float own[4] = {};
    for (int i = 0; i < 4 + K::WRONG; i++) own[(i * n.count / 40) & 7] = p.x[threadIdx.x];
    p.y[threadIdx.x] = own[n.count / 40] + own[n.count / 20];
}

//     a number that no integer holds
template <class K> KN_DEVICE void too_large(const typename K::Pointers& p, const typename K::Numbers& n) {
    const float x = (p.x[threadIdx.x] + 1) * 1e10f;
    p.y[threadIdx.x] = K::WRONG ? float(int32_t(x)) : float(whole_32(x));
}

//     four elements at once that are not aligned
template <class K> KN_DEVICE void not_aligned(const typename K::Pointers& p, const typename K::Numbers& n) {
    const auto pack = load<4>(p.x + (threadIdx.x < 32 ? threadIdx.x / 4 * 4 + K::WRONG : 0));
    p.y[threadIdx.x] = pack.lane[threadIdx.x % 4];
}

//     an element behind the end of what is read
template <class K> KN_DEVICE void reads_behind(const typename K::Pointers& p, const typename K::Numbers& n) {
    const float x = p.x[threadIdx.x + K::WRONG];
    p.y[threadIdx.x] = x < 0 ? 0 : p.x[threadIdx.x];
}

//     an element in front of what is read
template <class K> KN_DEVICE void reads_in_front(const typename K::Pointers& p, const typename K::Numbers& n) {
    const float x = p.x[int(threadIdx.x) - K::WRONG];
    p.y[threadIdx.x] = x < 0 ? 0 : p.x[threadIdx.x];
}
