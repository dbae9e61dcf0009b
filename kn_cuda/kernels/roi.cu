// Regions of images as bins: means or maxima of samples between elements, or maxima of elements.
// A thread computes a bin of a channel.
//
//     K::Acc                       type that is computed in
//     K::LARGEST                   whether a bin is the largest weighted element, not a mean
//     K::scale(), K::shift()       what coordinates are multiplied with, and moved back by
//     K::ONE_AT_LEAST              whether a region is at least 1 x 1
//     K::place(n, i, channel, o)   where the channel of the i-th result lies; o: region, row, column
//     K::end(p, n, i, result)      stores the i-th result
//     n.bins, n.size, n.x_space    along rows, then columns
//     n.roi, n.roi_number          strides of the numbers that describe regions

// Says what is wrong with a region, once.
KN_FN void roi_tell(int64_t* status, int64_t what, int64_t image, int64_t region) {
    unsigned long long* const told = reinterpret_cast<unsigned long long*>(status);
    if (atomicCAS(told, 0ull, (unsigned long long)(what)) == 0) status[1] = image, status[2] = region;
}

// Where the samples of a region lie along an axis, and what is around one of them.
template <class T, class Index> struct RoiSamples {
    T start, width, step;  // of a bin, and from one of its samples to the next
    Index count, size;     // samples of a bin; elements of the image

    KN_DEVICE RoiSamples(T from, T to, Index bins, Index samples, Index n, bool one_at_least)
        : start(from), count(samples), size(n) {
        T length = to - from;
        if (one_at_least && length < T(1)) length = T(1);
        width = length / T(bins);
        if (count == 0 && width > T(0) && width < T(1073741824)) count = Index(ceil(width));
        step = width / T(count > 0 ? count : Index(1));
    }

    // The element below a sample, and the weights of it and of the next; 0 outside of the image.
    KN_DEVICE Index around(Index bin, Index number, T (&weight)[2]) const {
        T place = start + T(bin) * width + (T(number) + T(0.5)) * step;
        const bool inside = place >= T(-1) && place <= T(size);
        place = !inside || place < T(0) ? T(0) : place > T(size - 1) ? T(size - 1) : place;
        const T below = floor(place);
        weight[0] = inside ? T(1) - (place - below) : T(0);
        weight[1] = inside ? place - below : T(0);
        return Index(below);
    }
};

template <class K>
KN_DEVICE void roi_align(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    using Acc = typename K::Acc;
    using Samples = RoiSamples<Acc, Index>;
    for (Index i = first_thread<Index>(); i < n.count; i += all_threads<Index>()) {
        Index channel[1] = {}, o[3];
        K::place(n, i, channel, o);
        const int64_t image = p.images[o[0] * n.image_step];
        if (image < 0 || image >= n.images) {
            roi_tell(p.status, 1, image, o[0]);
            continue;
        }
        Acc corner[4];
        KN_UNROLL
        for (int k = 0; k < 4; k++)
            corner[k] = Acc(widened(p.rois[o[0] * n.roi + k * n.roi_number])) * K::scale() - K::shift();
        const Samples rows(corner[1], corner[3], n.bins[0], n.samples, n.size[0], K::ONE_AT_LEAST);
        const Samples columns(corner[0], corner[2], n.bins[1], n.samples, n.size[1], K::ONE_AT_LEAST);
        const bool any = n.size[0] > 0 && n.size[1] > 0 && rows.count > 0 && columns.count > 0;
        const Index from = Index(image) * n.x_image + channel[0];
        Acc acc = K::LARGEST && any ? -Acc(__int_as_float(0x7f800000)) : Acc(0);
        for (Index t = 0; any && t < rows.count; t++)
            for (Index u = 0; u < columns.count; u++) {
                Acc a[2], b[2];
                const Index row = rows.around(o[1], t, a), column = columns.around(o[2], u, b);
                KN_UNROLL
                for (int corner = 0; corner < 4; corner++) {
                    const int down = corner / 2, across = corner % 2;
                    const Acc weight = a[down] * b[across];
                    Acc term = Acc(0);  // an element without weight is not read
                    if (weight != Acc(0)) {
                        const Index at = (row + down) * n.x_space[0] + (column + across) * n.x_space[1];
                        term = Acc(widened(p.x[from + at])) * weight;
                    }
                    acc = K::LARGEST ? Largest::of(term, acc) : acc + term;
                }
            }
        if (!K::LARGEST && any) acc = acc / (Acc(rows.count) * Acc(columns.count));
        K::end(p, n, i, acc);
    }
}

// The first element of a bin along an axis of n elements, and the one behind its last.
template <class T> struct RoiBin {
    int64_t begin, end;

    KN_DEVICE static int64_t rounded(T x) {
        const T far = T(1099511627776.0), whole = trunc(x + (x < T(0) ? T(-0.5) : T(0.5)));
        return int64_t(whole < -far ? -far : whole > far ? far : whole);
    }
    KN_DEVICE static int64_t inside(int64_t at, int64_t n) { return at < 0 ? 0 : at > n ? n : at; }

    KN_DEVICE RoiBin(T from, T to, int64_t bins, int64_t bin, int64_t n) {
        const int64_t start = rounded(from), span = rounded(to) - start + 1;
        const int64_t length = span < 1 ? 1 : span;
        begin = inside(start + bin * length / bins, n);
        end = inside(start + ((bin + 1) * length + bins - 1) / bins, n);
    }
};

template <class K>
KN_DEVICE void roi_max_pool(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    using Acc = typename K::Acc;
    for (Index i = first_thread<Index>(); i < n.count; i += all_threads<Index>()) {
        Index channel[1] = {}, o[3];
        K::place(n, i, channel, o);
        Acc number[5];
        bool finite = true;
        KN_UNROLL
        for (int k = 0; k < 5; k++) {
            number[k] = Acc(widened(p.rois[o[0] * n.roi + k * n.roi_number]));
            finite = finite && number[k] - number[k] == Acc(0);
        }
        const int64_t image = finite ? int64_t(whole_64(number[0])) : 0;
        if (!finite || image < 0 || image >= n.images) {
            roi_tell(p.status, finite ? 1 : 2, image, o[0]);
            continue;
        }
        const Acc scale = K::scale();
        const RoiBin<Acc> rows(number[2] * scale, number[4] * scale, n.bins[0], o[1], n.size[0]);
        const RoiBin<Acc> columns(number[1] * scale, number[3] * scale, n.bins[1], o[2], n.size[1]);
        const Index from = Index(image) * n.x_image + channel[0];
        const bool any = rows.begin < rows.end && columns.begin < columns.end;
        Acc acc = any ? -Acc(__int_as_float(0x7f800000)) : Acc(0);
        for (Index h = Index(rows.begin); h < Index(rows.end); h++)
            for (Index w = Index(columns.begin); w < Index(columns.end); w++)
                acc = Largest::of(Acc(widened(p.x[from + h * n.x_space[0] + w * n.x_space[1]])), acc);
        K::end(p, n, i, acc);
    }
}
