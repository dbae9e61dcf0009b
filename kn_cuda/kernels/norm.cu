// Norms: rows with their mean taken away, where CENTER says so, divided by their deviation.
//
//     K::inverse_deviation(mean_of_squares)  1 / sqrt(mean_of_squares + epsilon)

// The variance is that of the differences from the mean: a large mean costs no digits.
template <class K>
KN_DEVICE void norm_rows(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    using Acc = typename K::Acc;
    KN_SHARED(Acc, room, K::THREADS / 32);
    const Acc length = Acc(n.length);
    for (Index i = first_row<K>(); i < n.rows; i += all_rows<K>()) {
        Row<K> row(p, n, i);
        Acc mean = 0;
        if constexpr (K::CENTER) {
            Acc total = 0;
            row.each([&](Acc (&x)[K::VECTOR], Index) {
                for (int v = 0; v < K::VECTOR; v++) total += x[v];
            });
            mean = group_combined<K, Sum>(total, room) / length;
        }
        Acc squares = 0;
        row.each([&](Acc (&x)[K::VECTOR], Index) {
            for (int v = 0; v < K::VECTOR; v++) squares += (x[v] - mean) * (x[v] - mean);
        });
        const Acc scale = K::inverse_deviation(group_combined<K, Sum>(squares, room) / length);
        row.each([&](Acc (&x)[K::VECTOR], Index j) {
            for (int v = 0; v < K::VECTOR; v++) x[v] = (x[v] - mean) * scale;
            row.write(x, j);
        });
    }
}
