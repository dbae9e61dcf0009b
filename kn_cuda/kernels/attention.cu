// Attention: means of values, weighted by e^score, where scores are products of queries and keys.
//
// Keys are met once. What is added up so far counts from the largest score so far, and is scaled
// when a larger one is met. Keys that no query of a tile sees are not read.
//
//     K::Acc             type that is computed with
//     K::DEPTH, WIDTH    elements of a key, and of a value
//     K::LEFT, RIGHT     whether there is a bound of what a query sees before it, and behind
//     K::LENGTHS         whether sequences have lengths
//     K::BIAS            what is added to scores: 0 nothing, 1 numbers, 2 minus infinity where false
//     K::scored(x)       the score of a product, without bias
//     K::lowest()        minus infinity
//     K::power(x)        e^x
//     K::end(p, n, i, result)    stores the i-th result
//     n.q, n.k, n.v, n.bias      strides of batch, head, query or key, and element

// The keys that a query sees: from `low` on, before `high`.
template <class K> struct Sight {
    using Index = typename K::Index;

    Index offset, keys, left, right;

    KN_DEVICE Sight(const typename K::Pointers& p, const typename K::Numbers& n, Index batch)
        : offset(n.offset), keys(n.keys), left(n.left), right(n.right) {
        if constexpr (K::LENGTHS) {
            const int64_t length = p.lengths[batch * n.length_step];
            offset = Index(length) - n.queries;
            keys = length < 0 ? Index(0) : length < n.keys ? Index(length) : n.keys;
        }
    }

    KN_DEVICE Index low(Index query) const {
        const Index first = query + offset - left;
        return K::LEFT && first > 0 ? first : Index(0);
    }
    KN_DEVICE Index high(Index query) const {
        const Index end = query + offset + right + 1;
        return K::RIGHT && end < keys ? end : keys;
    }
};

// What a row of scores comes to.
template <class Acc> struct Scores {
    Acc most, total;
    int sees;  // whether there was a key that no bias hides
};

// e^(x - most): nothing while the largest score is minus infinity.
template <class K> KN_FN typename K::Acc weight(typename K::Acc x, typename K::Acc most) {
    return most == K::lowest() ? typename K::Acc(0) : K::power(x - most);
}

// The mean, of a sum of weighted values.
template <class Acc> KN_FN Acc mean(Acc sum, const Scores<Acc>& of) {
    return of.sees ? sum / of.total : sum;
}

// The score of a product, with the bias at `at`; says whether the bias does not hide the key.
template <class K>
KN_FN typename K::Acc biased(
    const typename K::Pointers& p, typename K::Acc product, typename K::Index at, int& sees
) {
    using Acc = typename K::Acc;
    Acc bias = 0;
    if constexpr (K::BIAS == 1) bias = Acc(widened(p.bias[at]));
    if constexpr (K::BIAS == 2) bias = p.bias[at] ? Acc(0) : K::lowest();
    sees |= bias != K::lowest();
    return K::scored(product) + bias;
}

// ---- many queries -------------------------------------------------------------------------------

// Copies lines of a matrix to shared memory, turned: room[column * LINE + line], 0 where it ends.
template <int THREADS, int LINES, int LINE, int COLUMNS, class Acc, class T, class Index>
KN_FN void fetch_turned(
    Acc* room, const T* x, Index lines, Index columns, Index line_step, Index column_step
) {
    for (int e = threadIdx.x; e < LINES * COLUMNS; e += THREADS) {
        const Index line = e / COLUMNS, column = e % COLUMNS;
        const bool inside = line < lines && column < columns;
        room[column * LINE + line] =
            inside ? Acc(widened(x[line * line_step + column * column_step])) : Acc(0);
    }
}

// A block computes TILE queries of a head, from tiles of as many keys. Of its 16 x 16 threads, each
// has every 16th of the queries, and every 16th of the keys or of the elements of values.
template <class K>
KN_DEVICE void attention_tiles(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    using Acc = typename K::Acc;
    const int SIDE = 16, THREADS = SIDE * SIDE, EACH = K::TILE / SIDE, CHUNK = 16;
    const int WIDE = (K::WIDTH + SIDE - 1) / SIDE, LINE = K::TILE + 1;
    const int FOR_KEYS = 2 * CHUNK * LINE, FOR_VALUES = CHUNK * WIDE * SIDE;
    KN_SHARED(Acc, room, FOR_KEYS > FOR_VALUES ? FOR_KEYS : FOR_VALUES);
    KN_SHARED(Acc, weights, K::TILE * LINE);
    const int across = threadIdx.x % SIDE, down = threadIdx.x / SIDE;
    const Index strips = (n.queries + K::TILE - 1) / K::TILE;
    for (Index strip = blockIdx.x; strip < n.batch * n.heads * strips; strip += gridDim.x) {
        const Index row = strip / strips, batch = row / n.heads, head = row - batch * n.heads;
        const Index first = (strip - row * strips) * K::TILE, source = head / n.shared;
        const Index queries = n.queries - first < K::TILE ? n.queries - first : Index(K::TILE);
        const Sight<K> sight(p, n, batch);
        const Index end = sight.high(first + queries - 1);
        const auto* q = p.q + batch * n.q[0] + head * n.q[1] + first * n.q[2];
        const auto* k = p.k + batch * n.k[0] + source * n.k[1];
        const auto* v = p.v + batch * n.v[0] + source * n.v[1];

        Acc sums[EACH][WIDE] = {};
        Scores<Acc> rows[EACH];
        KN_UNROLL
        for (int i = 0; i < EACH; i++) rows[i] = {K::lowest(), Acc(0), 0};
        for (Index key = sight.low(first); key < end; key += K::TILE) {
            const Index keys = end - key < K::TILE ? end - key : Index(K::TILE);
            Acc x[EACH][EACH] = {};
            for (Index d = 0; d < K::DEPTH; d += CHUNK) {
                Acc* const other = room + CHUNK * LINE;
                fetch_turned<THREADS, K::TILE, LINE, CHUNK>(
                    room, q + d * n.q[3], queries, K::DEPTH - d, n.q[2], n.q[3]);
                fetch_turned<THREADS, K::TILE, LINE, CHUNK>(
                    other, k + key * n.k[2] + d * n.k[3], keys, K::DEPTH - d, n.k[2], n.k[3]);
                __syncthreads();
                for (int c = 0; c < CHUNK; c++)
                    KN_UNROLL
                    for (int i = 0; i < EACH; i++)
                        KN_UNROLL
                        for (int j = 0; j < EACH; j++)
                            x[i][j] += room[c * LINE + i * SIDE + down]
                                * other[c * LINE + j * SIDE + across];
                __syncthreads();
            }
            KN_UNROLL
            for (int i = 0; i < EACH; i++) {
                const Index query = first + i * SIDE + down;
                const Index low = sight.low(query), high = sight.high(query);
                const Index line = batch * n.bias[0] + head * n.bias[1] + query * n.bias[2];
                Scores<Acc>& of = rows[i];
                Acc most = of.most;
                KN_UNROLL
                for (int j = 0; j < EACH; j++) {
                    const Index at = key + j * SIDE + across;
                    const bool seen = at >= low && at < high && query < n.queries;
                    x[i][j] =
                        seen ? biased<K>(p, x[i][j], line + at * n.bias[3], of.sees) : K::lowest();
                    most = Largest::of(most, x[i][j]);
                }
                for (int far = SIDE / 2; far > 0; far /= 2)
                    most = Largest::of(most, __shfl_xor_sync(ALL_LANES, most, far));
                const Acc scale = weight<K>(of.most, most);
                of.most = most;
                of.total *= scale;
                KN_UNROLL
                for (int c = 0; c < WIDE; c++) sums[i][c] *= scale;
                KN_UNROLL
                for (int j = 0; j < EACH; j++) {
                    const Acc power = weight<K>(x[i][j], most);
                    of.total += power;
                    weights[(j * SIDE + across) * LINE + i * SIDE + down] = power;
                }
            }
            for (Index t = 0; t < keys; t += CHUNK) {
                for (int e = threadIdx.x; e < FOR_VALUES; e += THREADS) {
                    const Index line = e / (WIDE * SIDE), column = e % (WIDE * SIDE);
                    const bool inside = t + line < keys && column < K::WIDTH;
                    const auto* from = v + (key + t + line) * n.v[2] + column * n.v[3];
                    room[e] = inside ? Acc(widened(*from)) : Acc(0);
                }
                __syncthreads();
                for (int r = 0; r < CHUNK; r++)
                    KN_UNROLL
                    for (int i = 0; i < EACH; i++)
                        KN_UNROLL
                        for (int c = 0; c < WIDE; c++)
                            sums[i][c] += weights[(t + r) * LINE + i * SIDE + down]
                                * room[(r * WIDE + c) * SIDE + across];
                __syncthreads();
            }
        }
        KN_UNROLL
        for (int i = 0; i < EACH; i++) {
            const Index query = first + i * SIDE + down;
            Scores<Acc> of = rows[i];
            for (int far = SIDE / 2; far > 0; far /= 2) {
                of.total += __shfl_xor_sync(ALL_LANES, of.total, far);
                of.sees |= __shfl_xor_sync(ALL_LANES, of.sees, far);
            }
            if (query >= n.queries) continue;
            KN_UNROLL
            for (int c = 0; c < WIDE; c++) {
                const Index d = c * SIDE + across;
                if (d < K::WIDTH)
                    K::end(p, n, (row * n.queries + query) * K::WIDTH + d, mean(sums[i][c], of));
            }
        }
    }
}

// ---- few queries --------------------------------------------------------------------------------

// Adds what others have to sums of values and what these count from.
template <class K, int N>
KN_FN void join(Scores<typename K::Acc>& of, typename K::Acc (&sums)[N], int far) {
    using Acc = typename K::Acc;
    const Acc other = __shfl_xor_sync(ALL_LANES, of.most, far);
    const Acc most = Largest::of(of.most, other);
    const Acc own_scale = weight<K>(of.most, most), scale = weight<K>(other, most);
    of.total = of.total * own_scale + __shfl_xor_sync(ALL_LANES, of.total, far) * scale;
    of.sees |= __shfl_xor_sync(ALL_LANES, of.sees, far);
    of.most = most;
    KN_UNROLL
    for (int e = 0; e < N; e++)
        sums[e] = sums[e] * own_scale + __shfl_xor_sync(ALL_LANES, sums[e], far) * scale;
}

// A block computes a query. LANES threads share a key, VECTOR elements at once, and all others meet
// other keys: first those of a warp add up what they have, then the warps do.
//
//     K::KEY_VECTOR, VALUE_VECTOR    elements that are read at once
template <class K>
KN_DEVICE void attention_rows(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    using Acc = typename K::Acc;
    const int LANES = 8, PARTS = K::THREADS / LANES, WARPS = K::THREADS / 32;
    const int KV = K::KEY_VECTOR, VV = K::VALUE_VECTOR;
    const int DEEP = K::DEPTH > 0 ? (K::DEPTH + LANES * KV - 1) / (LANES * KV) : 1;
    const int WIDE = (K::WIDTH + LANES * VV - 1) / (LANES * VV);
    KN_SHARED(Acc, room, WARPS * K::WIDTH);
    KN_SHARED(Scores<Acc>, scores, WARPS);
    const int lane = threadIdx.x % LANES, part = threadIdx.x / LANES, warp = threadIdx.x / 32;
    for (Index row = blockIdx.x; row < n.batch * n.heads * n.queries; row += gridDim.x) {
        const Index group = row / n.queries, query = row - group * n.queries;
        const Index batch = group / n.heads, head = group - batch * n.heads;
        const Sight<K> sight(p, n, batch);
        const Index end = sight.high(query), source = head / n.shared;
        const Index line = batch * n.bias[0] + head * n.bias[1] + query * n.bias[2];
        const auto* q = p.q + batch * n.q[0] + head * n.q[1] + query * n.q[2];
        const auto* k = p.k + batch * n.k[0] + source * n.k[1];
        const auto* v = p.v + batch * n.v[0] + source * n.v[1];

        Acc own[DEEP][KV] = {};
        KN_UNROLL
        for (int e = 0; e < DEEP; e++) {
            const Index d = (e * LANES + lane) * KV;
            if (d < K::DEPTH)
                KN_UNROLL
                for (int i = 0; i < KV; i++) own[e][i] = Acc(widened(q[(d + i) * n.q[3]]));
        }
        Acc sums[WIDE * VV] = {};
        Scores<Acc> of = {K::lowest(), Acc(0), 0};
        for (Index key = sight.low(query); key < end; key += PARTS) {  // the same for all threads
            const Index at = key + part;
            Acc x = 0;
            KN_UNROLL
            for (int e = 0; e < DEEP; e++) {
                const Index d = (e * LANES + lane) * KV;
                if (d < K::DEPTH && at < end) {
                    const auto pack = load<KV>(k + at * n.k[2] + d * n.k[3]);
                    KN_UNROLL
                    for (int i = 0; i < KV; i++) x += own[e][i] * Acc(widened(pack.lane[i]));
                }
            }
            for (int far = LANES / 2; far > 0; far /= 2) x += __shfl_xor_sync(ALL_LANES, x, far);
            if (at >= end) continue;
            x = biased<K>(p, x, line + at * n.bias[3], of.sees);
            const Acc most = Largest::of(of.most, x), scale = weight<K>(of.most, most);
            const Acc power = weight<K>(x, most);
            of.most = most;
            of.total = of.total * scale + power;
            KN_UNROLL
            for (int e = 0; e < WIDE; e++) {
                const Index d = (e * LANES + lane) * VV;
                if (d < K::WIDTH) {
                    const auto pack = load<VV>(v + at * n.v[2] + d * n.v[3]);
                    KN_UNROLL
                    for (int i = 0; i < VV; i++) {
                        Acc& sum = sums[e * VV + i];
                        sum = sum * scale + power * Acc(widened(pack.lane[i]));
                    }
                }
            }
        }
        join<K>(of, sums, LANES);
        join<K>(of, sums, 2 * LANES);
        if (threadIdx.x % 32 == 0) scores[warp] = of;
        if (threadIdx.x % 32 < LANES)
            KN_UNROLL
            for (int e = 0; e < WIDE * VV; e++) {
                const Index d = (e / VV * LANES + lane) * VV + e % VV;
                if (d < K::WIDTH) room[warp * K::WIDTH + d] = sums[e];
            }
        __syncthreads();
        Scores<Acc> all = {K::lowest(), Acc(0), 0};
        for (int w = 0; w < WARPS; w++) all.most = Largest::of(all.most, scores[w].most);
        for (int w = 0; w < WARPS; w++) {
            all.total += scores[w].total * weight<K>(scores[w].most, all.most);
            all.sees |= scores[w].sees;
        }
        for (Index d = threadIdx.x; d < K::WIDTH; d += K::THREADS) {
            Acc sum = 0;
            for (int w = 0; w < WARPS; w++)
                sum += room[w * K::WIDTH + d] * weight<K>(scores[w].most, all.most);
            K::end(p, n, row * K::WIDTH + d, mean(sum, all));
        }
        __syncthreads();
    }
}
