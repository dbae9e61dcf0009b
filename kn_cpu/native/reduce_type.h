// The reductions of one element type. Included by reduce.c with these names defined:
//   TYPE       of elements           SUFFIX   of the functions
//   WIDE       that totals are kept in: double for floats, unsigned for integers, which wrap
//   LOWEST, HIGHEST                  what a maximum and a minimum start from
//   WRAPPING   the type that sums and products of vectors are computed in
//   FLOATING, IS_NAN                 whether elements are floats, and one is NaN
//   VMAX, VMIN                       of two vectors
//   LOAD_PART  of fewer elements than a vector has, and a vector of what is behind them
//   HALVES     combines all lanes of a vector; where it is missing, that goes through memory
//   INDEX      that places are counted in; without it there are no extremes to look for
#define NAME(stem) KN_JOIN(stem, SUFFIX)
#define VECTOR NAME(vector_)
#define LANES ((int64_t)(KN_VB / sizeof(TYPE)))
#define COLUMN_BLOCK ((int64_t)(COLUMN_BYTES / sizeof(TYPE)))

typedef TYPE VECTOR __attribute__((vector_size(KN_VB)));
typedef WRAPPING NAME(wrapping_) __attribute__((vector_size(KN_VB)));

static TYPE NAME(start_)(int fn) {
    return fn == KN_PROD ? 1 : fn == KN_MAX ? LOWEST : fn == KN_MIN ? HIGHEST : 0;
}

INL VECTOR NAME(all_)(TYPE x) {
    VECTOR v;
    for (int i = 0; i < LANES; i++) v[i] = x;
    return v;
}

INL VECTOR NAME(load_)(const TYPE *p, int64_t count, VECTOR fill) {
    if (count < LANES) return LOAD_PART(p, count, fill);
    memcpy(&fill, p, sizeof fill);
    return fill;
}

INL VECTOR NAME(combine_)(int fn, VECTOR a, VECTOR b) {
    typedef NAME(wrapping_) W;
    switch (fn) {
    case KN_PROD: return (VECTOR)((W)a * (W)b);
    case KN_MAX: return VMAX(a, b);
    case KN_MIN: return VMIN(a, b);
    default: return (VECTOR)((W)a + (W)b);
    }
}

INL WIDE NAME(combine_one_)(int fn, WIDE a, TYPE b) {
    switch (fn) {
    case KN_PROD: return a * (WIDE)b;
    case KN_MAX: return b > (TYPE)a || IS_NAN(b) ? (WIDE)b : a;
    case KN_MIN: return b < (TYPE)a || IS_NAN(b) ? (WIDE)b : a;
    default: return a + (WIDE)b;
    }
}

INL TYPE NAME(finish_)(int mean, WIDE total, int64_t count) {
    if (!mean) return (TYPE)total;
    if (FLOATING) return (TYPE)(total / (WIDE)count);
    return count ? (TYPE)((TYPE)total / (TYPE)count) : 0; // integers have no NaN
}

// One of all lanes: halves are combined until one is left.
INL TYPE NAME(lanes_)(int fn, VECTOR x) {
#ifdef HALVES
    HALVES(NAME(combine_), fn, x);
    return x[0];
#endif
    TYPE part[LANES];
    memcpy(part, &x, sizeof x);
    for (int64_t n = LANES / 2; n > 0; n /= 2)
        for (int64_t i = 0; i < n; i++) part[i] = (TYPE)NAME(combine_one_)(fn, (WIDE)part[i], part[i + n]);
    return part[0];
}

INL WIDE NAME(row_)(int fn, WIDE total, const TYPE *x, int64_t step, int64_t n) {
    if (step != 1 || n < SHORT_ROW) {
        for (int64_t i = 0; i < n; i++) total = NAME(combine_one_)(fn, total, x[i * step]);
        return total;
    }
    VECTOR start = NAME(all_)(NAME(start_)(fn));
    for (int64_t begin = 0; begin < n; begin += ROW_VECTORS * LANES) {
        int64_t i = begin, stop = kn_least(n, begin + ROW_VECTORS * LANES);
        VECTOR a = start, b = start, c = start, d = start;
        for (; i + 4 * LANES <= stop; i += 4 * LANES) {
            a = NAME(combine_)(fn, a, NAME(load_)(x + i, LANES, start));
            b = NAME(combine_)(fn, b, NAME(load_)(x + i + LANES, LANES, start));
            c = NAME(combine_)(fn, c, NAME(load_)(x + i + 2 * LANES, LANES, start));
            d = NAME(combine_)(fn, d, NAME(load_)(x + i + 3 * LANES, LANES, start));
        }
        for (; i < stop; i += LANES) a = NAME(combine_)(fn, a, NAME(load_)(x + i, stop - i, start));
        a = NAME(combine_)(fn, NAME(combine_)(fn, a, b), NAME(combine_)(fn, c, d));
        total = NAME(combine_one_)(fn, total, NAME(lanes_)(fn, a));
    }
    return total;
}

// total[c] = total[c] combined with some rows
INL void NAME(add_rows_)(int fn, TYPE *total, const TYPE *const *rows, int64_t used, int64_t columns) {
    VECTOR start = NAME(all_)(NAME(start_)(fn));
    for (int64_t c = 0; c < columns; c += LANES) {
        int64_t some = columns - c;
        VECTOR sum = NAME(load_)(total + c, LANES, start);
        if (used == TOGETHER) {
            VECTOR a = NAME(combine_)(fn, NAME(load_)(rows[0] + c, some, start), NAME(load_)(rows[1] + c, some, start));
            VECTOR b = NAME(combine_)(fn, NAME(load_)(rows[2] + c, some, start), NAME(load_)(rows[3] + c, some, start));
            VECTOR d = NAME(combine_)(fn, NAME(load_)(rows[4] + c, some, start), NAME(load_)(rows[5] + c, some, start));
            VECTOR e = NAME(combine_)(fn, NAME(load_)(rows[6] + c, some, start), NAME(load_)(rows[7] + c, some, start));
            sum = NAME(combine_)(fn, sum, NAME(combine_)(fn, NAME(combine_)(fn, a, b), NAME(combine_)(fn, d, e)));
        } else {
            for (int64_t i = 0; i < used; i++) sum = NAME(combine_)(fn, sum, NAME(load_)(rows[i] + c, some, start));
        }
        memcpy(total + c, &sum, sizeof sum);
    }
}

// A block of columns, which rows are added to as they lie in memory.
INL void NAME(columns_)(int fn, int mean, TYPE *out, const TYPE *x, const kn_axes *reduced, int64_t count,
                        int64_t columns) {
    TYPE total[COLUMN_BYTES / sizeof(TYPE)], part[COLUMN_BYTES / sizeof(TYPE)];
    const TYPE *rows[TOGETHER];
    for (int64_t c = 0; c < COLUMN_BLOCK; c++) total[c] = part[c] = NAME(start_)(fn);
    kn_place at;
    kn_place_at(&at, reduced, 0);
    for (int64_t r = 0; r < count;) {
        int64_t used = 0;
        for (; used < TOGETHER && r < count; r++, kn_place_next(&at, reduced)) rows[used++] = x + at.offset[0];
        NAME(add_rows_)(fn, part, rows, used, columns);
        if (r % COLUMN_ROWS && r < count) continue;
        for (int64_t c = 0; c < columns; c++) {
            total[c] = (TYPE)NAME(combine_one_)(fn, (WIDE)total[c], part[c]);
            part[c] = NAME(start_)(fn);
        }
    }
    for (int64_t c = 0; c < columns; c++) out[c] = mean ? NAME(finish_)(1, (WIDE)total[c], count) : total[c];
}

INL void NAME(work_)(int fn, int mean, const kn_reduction *t, char *const *p, int64_t begin, int64_t end) {
    TYPE *out = (TYPE *)(void *)p[0];
    const TYPE *x = (const TYPE *)(const void *)p[1];
    kn_place at, inner;
    if (t->columns == 0) {
        kn_axes outer = t->reduced;
        int last = --outer.rank;
        int64_t n = t->reduced.size[last], step = t->reduced.stride[0][last], rows = n ? t->count / n : 0;
        kn_place_at(&at, &t->kept, begin);
        for (int64_t k = begin; k < end; k++, kn_place_next(&at, &t->kept)) {
            WIDE total = (WIDE)NAME(start_)(fn);
            if (rows == 1) {
                total = NAME(row_)(fn, total, x + at.offset[1], step, n);
                out[at.offset[0]] = NAME(finish_)(mean, total, t->count);
                continue;
            }
            if (rows) kn_place_at(&inner, &outer, 0);
            for (int64_t r = 0; r < rows; r++, kn_place_next(&inner, &outer))
                total = NAME(row_)(fn, total, x + at.offset[1] + inner.offset[0], step, n);
            out[at.offset[0]] = NAME(finish_)(mean, total, t->count);
        }
        return;
    }
    int64_t blocks = (t->columns + COLUMN_BLOCK - 1) / COLUMN_BLOCK;
    for (int64_t k = begin; k < end; k++) {
        kn_place_at(&at, &t->kept, k / blocks);
        int64_t column = k % blocks * COLUMN_BLOCK;
        NAME(columns_)(fn, mean, out + at.offset[0] + column, x + at.offset[1] + column, &t->reduced, t->count,
                       kn_least(COLUMN_BLOCK, t->columns - column));
    }
}

static void NAME(reduce_)(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    (void)scratch;
    kn_reduction t;
    int64_t total = kn_reduction_read(&t, n, COLUMN_BLOCK), units = n[KN_REDUCE_UNITS];
    if (total == 0) return;
    begin = kn_share(total, units, begin);
    end = kn_share(total, units, end);
    switch (n[KN_REDUCE_FN]) {
    case KN_SUM: NAME(work_)(KN_SUM, 0, &t, p, begin, end); break;
    case KN_MEAN: NAME(work_)(KN_SUM, 1, &t, p, begin, end); break;
    case KN_PROD: NAME(work_)(KN_PROD, 0, &t, p, begin, end); break;
    case KN_MAX: NAME(work_)(KN_MAX, 0, &t, p, begin, end); break;
    default: NAME(work_)(KN_MIN, 0, &t, p, begin, end); break;
    }
}

#ifdef INDEX
// ---- the place of an extreme --------------------------------------------------------------------

INL int NAME(better_)(TYPE x, TYPE best, int largest, int last) {
    int beats = largest ? (last ? x >= best : x > best) : (last ? x <= best : x < best);
    return beats | (IS_NAN(x) & (last | !IS_NAN(best))); // a NaN beats everything, and is beaten by none
}

INL int64_t NAME(arg_row_)(const TYPE *x, int64_t step, int64_t n, int largest, int last) {
    TYPE best = x[0];
    int64_t found = 0;
    if (step == 1) {
        best = (TYPE)(largest ? NAME(row_)(KN_MAX, (WIDE)NAME(start_)(KN_MAX), x, 1, n)
                              : NAME(row_)(KN_MIN, (WIDE)NAME(start_)(KN_MIN), x, 1, n));
        for (int64_t i = 0; i < n; i++) {
            int64_t at = last ? n - 1 - i : i;
            if (x[at] == best || (IS_NAN(x[at]) && IS_NAN(best))) return at;
        }
    }
    for (int64_t i = 1; i < n; i++)
        if (NAME(better_)(x[i * step], best, largest, last)) {
            best = x[i * step];
            found = i;
        }
    return found;
}

INL void NAME(arg_columns_)(int64_t *out, const TYPE *x, int64_t step, int64_t n, int64_t columns, int largest,
                            int last) {
    TYPE best[ARG_COLUMNS];
    INDEX found[ARG_COLUMNS] = {0};
    memcpy(best, x, (size_t)columns * sizeof(TYPE));
    for (int64_t r = 1; r < n; r++) {
        const TYPE *row = x + r * step;
        for (int64_t i = 0; i < columns; i++) {
            int better = NAME(better_)(row[i], best[i], largest, last);
            best[i] = better ? row[i] : best[i];
            found[i] = better ? (INDEX)r : found[i];
        }
    }
    for (int64_t i = 0; i < columns; i++) out[i] = found[i];
}

INL void NAME(arg_work_)(const kn_reduction *t, char *const *p, int64_t begin, int64_t end, int largest, int last) {
    int64_t *out = (int64_t *)(void *)p[0], n = t->count, step = t->reduced.stride[0][0];
    const TYPE *x = (const TYPE *)(const void *)p[1];
    kn_place at;
    if (t->columns == 0) {
        kn_place_at(&at, &t->kept, begin);
        for (int64_t k = begin; k < end; k++, kn_place_next(&at, &t->kept))
            out[at.offset[0]] = NAME(arg_row_)(x + at.offset[1], step, n, largest, last);
        return;
    }
    int64_t blocks = (t->columns + ARG_COLUMNS - 1) / ARG_COLUMNS;
    for (int64_t k = begin; k < end; k++) {
        kn_place_at(&at, &t->kept, k / blocks);
        int64_t column = k % blocks * ARG_COLUMNS;
        NAME(arg_columns_)(out + at.offset[0] + column, x + at.offset[1] + column, step, n,
                           kn_least(ARG_COLUMNS, t->columns - column), largest, last);
    }
}

static void NAME(arg_)(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    (void)scratch;
    kn_reduction t;
    int64_t total = kn_arg_read(&t, n), units = n[KN_ARG_UNITS];
    if (total == 0 || t.count == 0) return;
    begin = kn_share(total, units, begin);
    end = kn_share(total, units, end);
    switch (2 * n[KN_ARG_LARGEST] + n[KN_ARG_LAST]) {
    case 0: NAME(arg_work_)(&t, p, begin, end, 0, 0); break;
    case 1: NAME(arg_work_)(&t, p, begin, end, 0, 1); break;
    case 2: NAME(arg_work_)(&t, p, begin, end, 1, 0); break;
    default: NAME(arg_work_)(&t, p, begin, end, 1, 1); break;
    }
}

#endif

#undef NAME
#undef VECTOR
#undef LANES
#undef COLUMN_BLOCK
#undef TYPE
#undef SUFFIX
#undef WIDE
#undef LOWEST
#undef HIGHEST
#undef VMAX
#undef LOAD_PART
#undef HALVES
#undef VMIN
#undef WRAPPING
#undef FLOATING
#undef INDEX
#undef IS_NAN
