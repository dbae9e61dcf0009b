// Softmax: exponentials of rows, divided by their sum; with LOG the logarithm of that.
//
//     K::lowest()      minus infinity
//     K::power(x)      e^x
//     K::logarithm(x)

// A row whose elements are held in registers, which become shifted, then exponentials.
template <class K>
KN_DEVICE void softmax_held(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    using Acc = typename K::Acc;
    KN_SHARED(Acc, room, K::THREADS / 32);
    for (Index i = first_row<K>(); i < n.rows; i += all_rows<K>()) {
        Row<K> row(p, n, i);
        Acc most = K::lowest();
        row.each([&](Acc (&x)[K::VECTOR], Index) {
            for (int v = 0; v < K::VECTOR; v++) most = Largest::of(most, x[v]);
        });
        most = group_combined<K, Largest>(most, room);
        Acc total = 0;
        row.each([&](Acc (&x)[K::VECTOR], Index) {
            for (int v = 0; v < K::VECTOR; v++) {
                x[v] -= most;
                const Acc power = K::power(x[v]);
                if constexpr (!K::LOG) x[v] = power;
                total += power;
            }
        });
        total = group_combined<K, Sum>(total, room);
        if constexpr (K::LOG) total = K::logarithm(total);
        row.each([&](Acc (&x)[K::VECTOR], Index j) {
            for (int v = 0; v < K::VECTOR; v++) x[v] = K::LOG ? x[v] - total : x[v] / total;
            row.write(x, j);
        });
    }
}

// e^(x - most) where most is the largest of numbers so far: nothing while that is minus infinity.
template <class K, class Acc> KN_FN Acc shifted_power(Acc x, Acc most) {
    return most == K::lowest() ? Acc(0) : K::power(x - most);
}

// A row of any length, read twice: the sum so far is scaled whenever a larger element is met.
template <class K>
KN_DEVICE void softmax_online(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    using Acc = typename K::Acc;
    KN_SHARED(Acc, room, K::THREADS / 32);
    for (Index i = first_row<K>(); i < n.rows; i += all_rows<K>()) {
        Row<K> row(p, n, i);
        Acc most = K::lowest(), total = 0;
        row.each([&](Acc (&x)[K::VECTOR], Index) {
            for (int v = 0; v < K::VECTOR; v++) {
                const Acc larger = Largest::of(most, x[v]);
                if (larger != most) total *= shifted_power<K>(most, larger);
                total += shifted_power<K>(x[v], larger);
                most = larger;
            }
        });
        const Acc largest = group_combined<K, Largest>(most, room);
        total = group_combined<K, Sum>(total * shifted_power<K>(most, largest), room);
        if constexpr (K::LOG) total = K::logarithm(total);
        row.each([&](Acc (&x)[K::VECTOR], Index j) {
            for (int v = 0; v < K::VECTOR; v++) {
                const Acc shifted = x[v] - largest;
                x[v] = K::LOG ? shifted - total : K::power(shifted) / total;
            }
            row.write(x, j);
        });
    }
}
