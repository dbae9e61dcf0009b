// Recurrent layers; products with the inputs are there before. Either a block steps through a
// sequence in one direction: states stay in shared memory, and recurrent weights come from the
// caches. Or all sequences go a step in some launches: states are [direction, row, unit] in memory,
// and a library multiplies them with the weights.
//
//     K::Acc                    type that is computed with
//     K::KIND                   0 rnn, 1 gru (gates z r h), 2 lstm (gates i o f c)
//     K::GATES, HIDDEN          gates, and units of each
//     K::VECTOR                 weights that a thread of a block reads at once
//     K::f, g, h(direction, x)  activations
//     K::BIAS, LENGTHS, STATE, CELL, PEEPHOLES   whether there are such operands
//     K::ROUNDED                whether a block rounds states before it multiplies them: of one sequence
//     K::REVERSE                whether the first direction goes backward; the second one does
//     K::LINEAR                 of a gru: the product comes before the reset
//     K::COUPLED                of an lstm: f = 1 - i
//     n.y, n.r ..               strides, as the axes are in `kn_graph.ops.recurrent`
//     n.round                   which step it is, of all sequences

// One direction of a sequence at one of its steps.
template <class K> struct Cell {
    using Index = typename K::Index;
    using Acc = typename K::Acc;
    static constexpr int H = K::HIDDEN;

    const typename K::Pointers& p;
    const typename K::Numbers& n;
    const Index direction;
    const Acc *inputs, *products;  // of gates: with the input, and with the state

    // Row number `row` of the input's product, or of the state's, with its bias.
    KN_DEVICE Acc given(int row) const { return inputs[row] + bias(row); }
    KN_DEVICE Acc recurred(int row) const { return products[row] + bias(K::GATES * H + row); }
    KN_DEVICE Acc gate(int number, int u) const {
        return given(number * H + u) + recurred(number * H + u);
    }

    KN_DEVICE Acc bias(int row) const {
        if constexpr (K::BIAS) return Acc(widened(p.bias[direction * n.bias[0] + row * n.bias[1]]));
        else return Acc(0);
    }
    KN_DEVICE Acc peephole(int number, int u, Acc c) const {
        if constexpr (K::PEEPHOLES) {
            const Index at = direction * n.peepholes[0] + (number * H + u) * n.peepholes[1];
            return Acc(widened(p.peepholes[at])) * c;
        } else return Acc(0);
    }

    // The next state of a unit; c becomes that of its cell.
    KN_DEVICE Acc next(int u, Acc h, Acc& c) const {
        if constexpr (K::KIND == 0) return K::f(direction, gate(0, u));
        if constexpr (K::KIND == 1) {
            const Acc z = K::f(direction, gate(0, u));
            Acc x = recurred(2 * H + u);
            if constexpr (K::LINEAR) x *= K::f(direction, gate(1, u));
            return (1 - z) * K::g(direction, given(2 * H + u) + x) + z * h;
        }
        if constexpr (K::KIND == 2) {
            const Acc i = K::f(direction, gate(0, u) + peephole(0, u, c));
            Acc forget = 1 - i;
            if constexpr (!K::COUPLED) forget = K::f(direction, gate(2, u) + peephole(2, u, c));
            c = forget * c + i * K::g(direction, gate(3, u));
            return K::f(direction, gate(1, u) + peephole(1, u, c)) * K::h(direction, c);
        }
    }
};

// Multiplies rows of the recurrent weights, from `first` to before `end`, by a state. LANES threads
// share a row.
template <class K>
KN_FN void recur(
    const typename K::Pointers& p, const typename K::Numbers& n, typename K::Index direction,
    const typename K::Acc* state, int first, int end, typename K::Acc* products
) {
    using Acc = typename K::Acc;
    const int LANES = 8, GROUPS = K::THREADS / LANES, V = K::VECTOR;
    const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
    const auto* r = p.r + direction * n.r[0];
    for (int base = first; base < end; base += GROUPS) {  // the same for all threads
        const int row = base + group;
        Acc x = 0;
        if (row < end)
            for (int d = lane * V; d < K::HIDDEN; d += LANES * V) {
                const auto pack = load<V>(r + row * n.r[1] + d * n.r[2]);
                KN_UNROLL
                for (int i = 0; i < V; i++) x += state[d + i] * Acc(widened(pack.lane[i]));
            }
        for (int far = LANES / 2; far > 0; far /= 2) x += __shfl_xor_sync(ALL_LANES, x, far);
        if (lane == 0 && row < end) products[row] = x;
    }
    __syncthreads();
}

KN_FN float nearest(float x) { return rintf(x); }
KN_FN double nearest(double x) { return rint(x); }

// From 0 to 255; a NaN stays.
template <class T> KN_FN T byte_of(T x) { return x < 0 ? T(0) : x > 255 ? T(255) : x; }

// Rounds states to the 256 numbers that DynamicQuantizeLinear chooses for those that count; others may
// become anything.
template <class K, class Counts>
KN_FN void round_together(
    const typename K::Acc* states, typename K::Acc* rounded, typename K::Index size, Counts counts
) {
    using Index = typename K::Index;
    using Acc = typename K::Acc;
    KN_SHARED(Acc, room, K::THREADS / 32);
    Acc above = 0, below = 0;  // how far they go from 0
    for (Index i = threadIdx.x; i < size; i += K::THREADS) {
        if (!counts(i)) continue;
        above = Largest::of(above, states[i]);
        below = Largest::of(below, -states[i]);
    }
    above = block_combined<K::THREADS, Largest>(above, room);
    below = block_combined<K::THREADS, Largest>(below, room);
    const Acc scale = above > -below ? (above + below) / 255 : Acc(1);
    const Acc zero = nearest(byte_of(below / scale));
    for (Index i = threadIdx.x; i < size; i += K::THREADS)
        rounded[i] = (byte_of(nearest(states[i] / scale) + zero) - zero) * scale;
    __syncthreads();
}

// How many steps a sequence has; tells of what no sequence has.
template <class K>
KN_FN typename K::Index length_of(
    const typename K::Pointers& p, const typename K::Numbers& n, typename K::Index row
) {
    if constexpr (K::LENGTHS) {
        const int64_t length = p.lengths[row * n.length_step];
        if (length >= 0 && length <= n.steps) return typename K::Index(length);
        unsigned long long* const told = reinterpret_cast<unsigned long long*>(p.status);
        if (atomicCAS(told, 0ull, 1ull) == 0) p.status[1] = length;
        return 0;
    }
    return n.steps;
}

// Where the product with the input of a sequence at one of its steps begins.
template <class K>
KN_FN const typename K::Acc* inputs_at(
    const typename K::Pointers& p, const typename K::Numbers& n, typename K::Index step,
    typename K::Index direction, typename K::Index row
) {
    return p.inputs + ((step * n.batch + row) * n.directions + direction) * (K::GATES * K::HIDDEN);
}

// Which step of a sequence comes as number t.
template <class K>
KN_FN typename K::Index step_at(
    typename K::Index t, typename K::Index direction, typename K::Index length
) {
    return (K::REVERSE || direction == 1) && t < length ? length - 1 - t : t;
}

template <class K>
KN_DEVICE void recurrent_steps(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    using Acc = typename K::Acc;
    const int H = K::HIDDEN, ROWS = K::GATES * H;
    KN_SHARED(Acc, state, H);
    KN_SHARED(Acc, cell, K::KIND == 2 ? H : 1);
    KN_SHARED(Acc, reset, K::KIND == 1 && !K::LINEAR ? H : 1);
    KN_SHARED(Acc, products, ROWS);
    KN_SHARED(Acc, rounded, K::ROUNDED ? H : 1);
    const auto multiply = [&](Index direction, const Acc* x, int first, int end) {
        if constexpr (K::ROUNDED) round_together<K>(x, rounded, H, [](Index) { return true; });
        recur<K>(p, n, direction, K::ROUNDED ? rounded : x, first, end, products);
    };
    for (Index i = blockIdx.x; i < n.batch * n.directions; i += gridDim.x) {
        const Index direction = i / n.batch, row = i - direction * n.batch;
        const Index length = length_of<K>(p, n, row);
        for (int u = threadIdx.x; u < H; u += K::THREADS) {
            state[u] = 0;
            if constexpr (K::STATE) state[u] = Acc(widened(
                p.initial_h[direction * n.initial_h[0] + row * n.initial_h[1] + u * n.initial_h[2]]));
            if constexpr (K::KIND == 2) cell[u] = 0;
            if constexpr (K::CELL) cell[u] = Acc(widened(
                p.initial_c[direction * n.initial_c[0] + row * n.initial_c[1] + u * n.initial_c[2]]));
        }
        __syncthreads();
        for (Index t = 0; t < n.steps; t++) {
            const bool over = t >= length;
            const Index step = step_at<K>(t, direction, length);
            auto* const y = p.y + step * n.y[0] + direction * n.y[1] + row * n.y[2];
            if (over) {
                for (int u = threadIdx.x; u < H; u += K::THREADS) put(y[u * n.y[3]], Acc(0));
                continue;
            }
            const Acc* const inputs = inputs_at<K>(p, n, step, direction, row);
            const Cell<K> at = {p, n, direction, inputs, products};
            if constexpr (K::KIND == 1 && !K::LINEAR) {
                multiply(direction, state, 0, 2 * H);
                for (int u = threadIdx.x; u < H; u += K::THREADS)
                    reset[u] = K::f(direction, at.gate(1, u)) * state[u];
                __syncthreads();
                multiply(direction, reset, 2 * H, ROWS);
            } else multiply(direction, state, 0, ROWS);
            for (int u = threadIdx.x; u < H; u += K::THREADS) {
                state[u] = at.next(u, state[u], cell[K::KIND == 2 ? u : 0]);
                put(y[u * n.y[3]], state[u]);
            }
            __syncthreads();
        }
        for (int u = threadIdx.x; u < H; u += K::THREADS) {
            put(p.y_h[direction * n.y_h[0] + row * n.y_h[1] + u * n.y_h[2]], state[u]);
            if constexpr (K::KIND == 2)
                put(p.y_c[direction * n.y_c[0] + row * n.y_c[1] + u * n.y_c[2]], cell[u]);
        }  // the next sequence begins with what the same threads have
    }
}

// ---- some launches a step -----------------------------------------------------------------------

// Calls handle(i, direction, row, u, step, over) for each unit of a state, which is number i: of its
// step, and of whether that is behind the end.
template <class K, class Handle>
KN_FN void each_unit(const typename K::Pointers& p, const typename K::Numbers& n, Handle handle) {
    using Index = typename K::Index;
    const Index units = n.directions * n.batch * K::HIDDEN;
    for (Index i = first_thread<Index>(); i < units; i += all_threads<Index>()) {
        const Index line = i / K::HIDDEN, direction = line / n.batch;
        const Index row = line - direction * n.batch;
        const Index length = length_of<K>(p, n, row), step = step_at<K>(n.round, direction, length);
        handle(i, direction, row, i - line * K::HIDDEN, step, n.round >= length);
    }
}

// The gates of a sequence at a step.
template <class K>
KN_FN Cell<K> cell_at(
    const typename K::Pointers& p, const typename K::Numbers& n, typename K::Index direction,
    typename K::Index row, typename K::Index step
) {
    const auto line = direction * n.batch + row;
    return {
        p, n, direction, inputs_at<K>(p, n, step, direction, row),
        p.products + line * (K::GATES * K::HIDDEN)
    };
}

// p.state goes a step; beyond the end of a sequence it stays.
template <class K>
KN_DEVICE void recurrent_cell(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    using Acc = typename K::Acc;
    each_unit<K>(p, n, [&](Index i, Index direction, Index row, int u, Index step, bool over) {
        auto& y = p.y[step * n.y[0] + direction * n.y[1] + row * n.y[2] + u * n.y[3]];
        if (over) return put(y, Acc(0));
        Acc c = 0;
        if constexpr (K::KIND == 2) c = p.cell[i];
        const Acc h = cell_at<K>(p, n, direction, row, step).next(u, p.state[i], c);
        if constexpr (K::KIND == 2) p.cell[i] = c;
        p.state[i] = h;
        put(y, h);
    });
}

// p.reset is what a gru leaves of p.state.
template <class K>
KN_DEVICE void recurrent_reset(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    each_unit<K>(p, n, [&](Index i, Index direction, Index row, int u, Index step, bool) {
        const Cell<K> at = cell_at<K>(p, n, direction, row, step);
        p.reset[i] = K::f(direction, at.gate(1, u)) * p.state[i];
    });
}

// Rounds the states of a direction together; a block has a direction. Sequences that ended before the
// last step do not count.
template <class K>
KN_DEVICE void recurrent_rounded(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    const Index size = n.batch * K::HIDDEN, start = Index(blockIdx.x) * size;
    round_together<K>(p.state + start, p.rounded + start, size, [&](Index i) {
        return n.round <= length_of<K>(p, n, i / K::HIDDEN);
    });
}
