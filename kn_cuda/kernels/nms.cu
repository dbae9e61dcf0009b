// Choosing boxes that do not overlap: which of ordered boxes overlap none that is kept before them.
//
//     K::Acc            type of corners, which is computed in
//     p.kept            starts as p.candidates, in the order of boxes
//     n.*_strides       along images, classes and boxes; of p.corners along images, boxes and numbers

template <class T> struct NmsBox {
    T low[2], high[2], area;

    KN_DEVICE NmsBox(const T* corners, int64_t step) {
        KN_UNROLL
        for (int k = 0; k < 2; k++) low[k] = corners[k * step], high[k] = corners[(2 + k) * step];
        area = (high[0] - low[0]) * (high[1] - low[1]);
    }

    // An empty box overlaps nothing, nor does one that is not a number.
    KN_DEVICE bool overlaps(const NmsBox& other, T iou) const {
        T common = T(1);
        KN_UNROLL
        for (int k = 0; k < 2; k++) {
            const T begin = low[k] > other.low[k] ? low[k] : other.low[k];
            const T end = high[k] < other.high[k] ? high[k] : other.high[k];
            common *= end - begin > T(0) ? end - begin : T(0);
        }
        const T whole = area + other.area - common;
        return area > T(0) && other.area > T(0) && whole > T(0) && common / whole > iou;
    }
};

// A block goes along the boxes of a class of an image: each that is kept takes out later ones.
template <class K>
KN_DEVICE void nms_kept(const typename K::Pointers& p, const typename K::Numbers& n) {
    using Index = typename K::Index;
    using Box = NmsBox<typename K::Acc>;
    for (Index row = Index(blockIdx.x); row < n.rows; row += Index(gridDim.x)) {
        const Index image = row / n.classes, kind = row - image * n.classes;
        const auto* corners = p.corners + image * n.corner_strides[0];
        const int64_t* order = p.order + image * n.order_strides[0] + kind * n.order_strides[1];
        auto* kept = p.kept + image * n.kept_strides[0] + kind * n.kept_strides[1];
        const auto* candidates =
            p.candidates + image * n.candidate_strides[0] + kind * n.candidate_strides[1];
        const auto box_of = [&](Index i) {
            const Index box = Index(order[i * n.order_strides[2]]);
            return Box(corners + box * n.corner_strides[1], n.corner_strides[2]);
        };
        for (Index i = Index(threadIdx.x); i < n.boxes; i += Index(blockDim.x))
            kept[i * n.kept_strides[2]] = candidates[i * n.candidate_strides[2]];
        __syncthreads();
        int64_t count = 0;
        for (Index i = 0; i < n.boxes; i++) {
            if (!kept[i * n.kept_strides[2]]) continue;  // the same for all threads
            const bool full = count >= p.limit[0];
            const Box box = box_of(i);
            for (Index j = i + 1 + Index(threadIdx.x); j < n.boxes; j += Index(blockDim.x))
                if (full || (kept[j * n.kept_strides[2]] && box.overlaps(box_of(j), p.iou[0])))
                    kept[j * n.kept_strides[2]] = false;
            __syncthreads();
            if (full) {
                if (threadIdx.x == 0) kept[i * n.kept_strides[2]] = false;
                break;
            }
            count++;
        }
    }
}
