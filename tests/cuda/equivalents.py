"""Mutants that change nothing, each with a proof; `mutants.py` counts them apart."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EQUIVALENTS", "Equivalent"]


@dataclass(frozen=True)
class Equivalent:
    """A change of a kernel that no test can notice.

    Attributes:
        family: the file.
        before: a line of it.
        after: the line, changed.
        reason: why all results stay what they are.
    """

    family: str
    before: str
    after: str
    reason: str


EQUIVALENTS: tuple[Equivalent, ...] = (
    Equivalent(
        "arg",
        "Extreme<K> found = {Acc(0), Index(-1)};",
        "Extreme<K> found = {(Acc(0) + 1), Index(-1)};",
        "the value is not looked at while the place is -1, and `meet` sets both",
    ),
    Equivalent(
        "attention",
        "keys = length < 0 ? Index(0) : length < n.keys ? Index(length) : n.keys;",
        "keys = length < 0 ? Index(0) : length <= n.keys ? Index(length) : n.keys;",
        "both ways give n.keys where they are equal",
    ),
    Equivalent(
        "attention",
        "return K::RIGHT && end < keys ? end : keys;",
        "return K::RIGHT && end <= keys ? end : keys;",
        "both ways give the same number where they are equal",
    ),
    Equivalent(
        "attention",
        "for (int i = 0; i < EACH; i++) rows[i] = {K::lowest(), Acc(0), 0};",
        "for (int i = 0; i < EACH; i++) rows[i] = {K::lowest(), (Acc(0) + 1), 0};",
        "e^(-inf - most) = 0 scales it before anything is added; where no key is met, "
        "`mean` does not look at it",
    ),
    Equivalent(
        "attention",
        "for (Index key = sight.low(first); key < end; key += K::TILE) {",
        "for (Index key = sight.low(first); key <= end; key += K::TILE) {",
        "a round without keys: no score is seen, so that sums are scaled by e^0 = 1, "
        "or are 0 where no key was seen so far, or NaN before and after",
    ),
    Equivalent(
        "attention",
        "room[e] = inside ? Acc(widened(*from)) : Acc(0);",
        "room[e] = inside ? Acc(widened(*from)) : (Acc(0) + 1);",
        "values behind the last key have the weight e^-inf = 0 (NaN where the sum is "
        "NaN in any case), and sums of columns behind the last are not stored",
    ),
    Equivalent(
        "attention",
        "Scores<Acc> of = {K::lowest(), Acc(0), 0};",
        "Scores<Acc> of = {K::lowest(), (Acc(0) + 1), 0};",
        "e^(-inf - most) = 0 scales it before anything is added, or when threads join "
        "what they have",
    ),
    Equivalent(
        "attention",
        "for (Index key = sight.low(query); key < end; key += PARTS) {  // the same "
        "for all threads",
        "for (Index key = sight.low(query); key <= end; key += PARTS) {",
        "a round without keys: all threads add up zeros and go on",
    ),
    Equivalent(
        "conv",
        "for (Index slab = 0; slab < depth; slab += DEPTH) {",
        "for (Index slab = 0; slab <= depth; slab += DEPTH) {",
        "a slab behind the last product: all factors of it are 0, or not covered; no "
        "sum is -0, which 0 would change",
    ),
    Equivalent(
        "conv",
        "b[e] = inside ? Acc(widened(p.w[w0 + k * n.cols + c])) : Acc(0);",
        "b[e] = inside ? Acc(widened(p.w[w0 + k * n.cols + c])) : (Acc(0) + 1);",
        "behind the last product its factor is 0, or not covered; sums of columns "
        "behind the last are not stored",
    ),
    Equivalent(
        "fill",
        "for (Index i = first_thread<Index>(); i < K::COUNT; i += all_threads<Index>())",
        "for (Index i = first_thread<Index>(); i < K::COUNT; i += 2 * all_threads<Index>())",
        "at most 128 sizes for 128 threads, see `steps/source.py`: no thread has a second one",
    ),
    Equivalent(
        "gemm",
        "if (k0 + DEPTH < n.depth) fetch(k0 + DEPTH);",
        "if (k0 + DEPTH <= n.depth) fetch(k0 + DEPTH);",
        "where it is equal no product is left: zeros are fetched, and the loop is over",
    ),
    Equivalent(
        "gemm_bytes",
        "for (Index k = 0; k < n.depth; k += 4 * WORDS) {",
        "for (Index k = 0; k <= n.depth; k += 4 * WORDS) {",
        "a slab behind the last product: all bytes of it are 0",
    ),
    Equivalent(
        "nms",
        "common *= end - begin > T(0) ? end - begin : T(0);",
        "common *= end - begin > T(0) ? begin - end : T(0);",
        "both of two factors change their sign, or one of them is 0, whose sign no comparison "
        "and no sum with areas that are not 0 shows",
    ),
    Equivalent(
        "prelude",
        "return x < end ? uint64_t(whole_64(x)) : uint64_t(whole_64(x - end)) ^ "
        "0x8000000000000000ull;",
        "return x <= end ? uint64_t(whole_64(x)) : uint64_t(whole_64(x - end)) ^ "
        "0x8000000000000000ull;",
        "2^63 is no int64: `whole_64` gives the lowest one, which is 2^63 without a sign",
    ),
    Equivalent(
        "random",
        "for (Index block = first_thread<Index>(); block < blocks; block += "
        "all_threads<Index>()) {",
        "for (Index block = first_thread<Index>(); block <= blocks; block += "
        "all_threads<Index>()) {",
        "no number of a block behind the last one is before n.count",
    ),
    Equivalent(
        "recurrent",
        "for (int base = first; base < end; base += GROUPS) {  // the same for all threads",
        "for (int base = first; base <= end; base += GROUPS) {",
        "a round without rows: all threads exchange zeros and store none",
    ),
    Equivalent(
        "reduce",
        "if (begin + n.chunk < end) end = begin + n.chunk;",
        "if (begin + n.chunk <= end) end = begin + n.chunk;",
        "end stays what it is where they are equal",
    ),
    Equivalent(
        "reduce",
        "for (Index first = Index(blockIdx.x) * SIDE; first < rows; first += "
        "Index(gridDim.x) * SIDE) {",
        "for (Index first = Index(blockIdx.x) * SIDE; first <= rows; first += "
        "Index(gridDim.x) * SIDE) {",
        "a round without rows: no thread reads or stores, all come to the barriers",
    ),
    Equivalent(
        "scalar",
        "for (Index i = first_thread<Index>() * K::VECTOR; i < n.count; i += step) {",
        "for (Index i = first_thread<Index>() * K::VECTOR; i <= n.count; i += step) {",
        "no vector begins at n.count, and the loop over single elements is empty there",
    ),
    Equivalent(
        "scan",
        "for (Index base = 0; base < n.length; base += K::THREADS * K::ITEMS) {",
        "for (Index base = 0; base <= n.length; base += K::THREADS * K::ITEMS) {",
        "a round without elements: nothing is stored, and it is the last of the row",
    ),
    Equivalent(
        "scan",
        "x[k] = inside ? Acc(widened(p.x[start[0] + (first + k) * n.x_step])) : K::start();",
        "x[k] = inside ? Acc(widened(p.x[start[0] + (first + k) * n.x_step])) : (K::start() + 1);",
        "elements behind the end come after all that are stored, in the last round of the row",
    ),
    Equivalent(
        "softmax",
        "return most == K::lowest() ? Acc(0) : K::power(x - most);",
        "return most == K::lowest() ? (Acc(0) + 1) : K::power(x - most);",
        "while all elements are minus infinity: a larger one scales it by e^-inf = 0; "
        "where none comes, results are NaN, since -inf - -inf is",
    ),
    Equivalent(
        "sort",
        "values[i] = base + i < n.length ? Acc(widened(p.x[start + (base + i) * "
        "n.x_step])) : Acc(0);",
        "values[i] = base + i < n.length ? Acc(widened(p.x[start + (base + i) * "
        "n.x_step])) : (Acc(0) + 1);",
        "elements behind the end are compared with each other only, by their places "
        "since their values are equal",
    ),
    Equivalent(
        "sort",
        "const Index known = n.run < n.count ? n.run : n.count;",
        "const Index known = n.run <= n.count ? n.run : n.count;",
        "both ways give the same number where they are equal",
    ),
    Equivalent(
        "sort",
        "const Index end = other + known < n.length ? other + known : n.length;",
        "const Index end = other + known <= n.length ? other + known : n.length;",
        "both ways give n.length where they are equal",
    ),
    Equivalent(
        "sort",
        "const Index to = i - own + (other < end ? low - other : 0);",
        "const Index to = i - own + (other <= end ? low - other : 0);",
        "where other is n.length there is no other run, and low is other: the difference is 0",
    ),
    Equivalent(
        "sort",
        "if (to < n.count) p.y[line + pair + to] = place;",
        "if (to <= n.count) p.y[line + pair + to] = place;",
        "a place of the same pair behind n.count, where nobody looks",
    ),
)
