// Numbers that come from sizes alone.

// y[i] = i
template <class K>
KN_DEVICE void fill_iota(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    for (Index i = first_thread<Index>(); i < n.count; i += all_threads<Index>())
        p.y[i * n.stride] = typename K::T(i);
}

// y[i] = values[i]
template <class K>
KN_DEVICE void fill_sizes(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    for (Index i = first_thread<Index>(); i < K::COUNT; i += all_threads<Index>())
        p.y[located(i, n.sizes, n.strides)] = typename K::T(n.values[i]);
}

// says that something is wrong
template <class K>
KN_DEVICE void fill_report(const typename K::Pointers& p, const typename K::Numbers& n) {
    if (threadIdx.x == 0) p.status[0] = n.word;
}
