// The micro-kernels: accumulators stay in registers for the whole depth of a block.
#include "each.h"
#include "product.h"

#define POINT(i) const float *p##i = rows[i] + end;

#define DECLARE(i) vf u##i = {0}, v##i = {0};
#define LOAD(i) u##i = ld(t->part + i * t->part_step), v##i = ld(t->part + i * t->part_step + VF);
#define MULTIPLY(i)                                                                                      \
    {                                                                                                    \
        vf a = set1(p##i[c]);                                                                            \
        u##i += a * x;                                                                                   \
        v##i += a * y;                                                                                   \
    }
#define KEEP(i) st(t->part + i * t->part_step, u##i), st(t->part + i * t->part_step + VF, v##i);
#define BIAS(i) u##i += x, v##i += y;
#define RESIDUAL(i)                                                                                      \
    u##i += ld(t->residual + i * t->residual_step), v##i += ld(t->residual + i * t->residual_step + VF);
#define STORE(i)                                                                                         \
    st(t->out + i * t->out_step, vclamp(u##i, low, high));                                               \
    st(t->out + i * t->out_step + VF, vclamp(v##i, low, high));

#define STREAM(i)                                                                                        \
    vstream(t->out + i * t->out_step, vclamp(u##i, low, high));                                          \
    vstream(t->out + i * t->out_step + VF, vclamp(v##i, low, high));

#define DECLARE_1(i) vf u##i = {0};
#define LOAD_1(i) u##i = ld(t->part + i * t->part_step);
#define MULTIPLY_1(i) u##i += set1(p##i[c]) * x;
#define KEEP_1(i) st(t->part + i * t->part_step, u##i);
#define BIAS_1(i) u##i += x;
#define RESIDUAL_1(i) u##i += ld(t->residual + i * t->residual_step);
#define STORE_1(i) st(t->out + i * t->out_step, vclamp(u##i, low, high));

// memory is read evenly while sums are computed: two lines at most for each element of the depth.
// Few rows are bound by the reading of panels itself, and not helped.
#define NOTHING (void)next, (void)next_step;
#define FETCH __builtin_prefetch(next, 0, 2), __builtin_prefetch(next + 64, 0, 2), next += next_step;

#define WIDE(n, fetch)                                                                                   \
    static void wide_##n(const kn_tile *t) {                                                             \
        EACH_##n(DECLARE) if (!t->fresh) {                                                               \
            EACH_##n(LOAD)                                                                               \
        }                                                                                                \
        const float *right = t->right, *const *rows = t->rows;                                           \
        const int64_t step = t->right_step, length = t->length, end = t->offset + length;                \
        const int64_t next_step = t->next_step;                                                          \
        const char *next = t->next;                                                                      \
        for (int64_t k = 0; k < t->positions; k++, rows += t->rows_step) {                               \
            EACH_##n(POINT) KN_UNROLL_2 for (int64_t c = -length; c < 0; c++, right += step) {           \
                vf x = ld(right), y = ld(right + VF);                                                    \
                fetch                                                                                    \
                EACH_##n(MULTIPLY)                                                                       \
            }                                                                                            \
        }                                                                                                \
        if (!t->out) {                                                                                   \
            EACH_##n(KEEP) return;                                                                       \
        }                                                                                                \
        if (t->bias) {                                                                                   \
            vf x = ld(t->bias), y = ld(t->bias + VF);                                                    \
            EACH_##n(BIAS)                                                                               \
        }                                                                                                \
        if (t->residual) {                                                                               \
            EACH_##n(RESIDUAL)                                                                           \
        }                                                                                                \
        vf low = set1(t->low), high = set1(t->high);                                                     \
        if (t->stream) {                                                                                 \
            EACH_##n(STREAM)                                                                             \
        } else {                                                                                         \
            EACH_##n(STORE)                                                                              \
        }                                                                                                \
    }

#define NARROW(n)                                                                                        \
    static void narrow_##n(const kn_tile *t) {                                                           \
        EACH_##n(DECLARE_1) if (!t->fresh) {                                                             \
            EACH_##n(LOAD_1)                                                                             \
        }                                                                                                \
        const float *right = t->right, *const *rows = t->rows;                                           \
        const int64_t step = t->right_step, length = t->length, end = t->offset + length;                \
        for (int64_t k = 0; k < t->positions; k++, rows += t->rows_step) {                               \
            EACH_##n(POINT) KN_UNROLL_2 for (int64_t c = -length; c < 0; c++, right += step) {           \
                vf x = ld(right);                                                                        \
                EACH_##n(MULTIPLY_1)                                                                     \
            }                                                                                            \
        }                                                                                                \
        if (!t->out) {                                                                                   \
            EACH_##n(KEEP_1) return;                                                                     \
        }                                                                                                \
        if (t->bias) {                                                                                   \
            vf x = ld(t->bias);                                                                          \
            EACH_##n(BIAS_1)                                                                             \
        }                                                                                                \
        if (t->residual) {                                                                               \
            EACH_##n(RESIDUAL_1)                                                                         \
        }                                                                                                \
        vf low = set1(t->low), high = set1(t->high);                                                     \
        EACH_##n(STORE_1)                                                                                \
    }

// One and two rows: a sum of its own for each of four (two) neighbours in depth, so that additions
// need not wait for one another. They are bound by memory, which arrays of vectors do not hurt.
INL void few(const kn_tile *t, const int rows_count, const int vectors, const int ways) {
    vf sum[2][4][2];
    for (int i = 0; i < rows_count; i++)
        for (int w = 0; w < ways; w++)
            for (int v = 0; v < vectors; v++) sum[i][w][v] = (vf){0};
    const float *right = t->right, *const *rows = t->rows;
    const int64_t step = t->right_step, length = t->length;
    for (int64_t k = 0; k < t->positions; k++, rows += t->rows_step) {
        const float *p0 = rows[0] + t->offset, *p1 = rows[rows_count - 1] + t->offset;
        int64_t c = 0;
        for (; c + ways <= length; c += ways) {
            for (int w = 0; w < ways; w++, right += step)
                for (int v = 0; v < vectors; v++) {
                    vf x = ld(right + v * VF);
                    sum[0][w][v] += set1(p0[c + w]) * x;
                    if (rows_count > 1) sum[1][w][v] += set1(p1[c + w]) * x;
                }
        }
        for (; c < length; c++, right += step)
            for (int v = 0; v < vectors; v++) {
                vf x = ld(right + v * VF);
                sum[0][0][v] += set1(p0[c]) * x;
                if (rows_count > 1) sum[1][0][v] += set1(p1[c]) * x;
            }
    }
    const vf low = set1(t->low), high = set1(t->high);
    for (int i = 0; i < rows_count; i++)
        for (int v = 0; v < vectors; v++) {
            vf total = sum[i][0][v];
            for (int w = 1; w < ways; w++) total += sum[i][w][v];
            float *part = t->part + i * t->part_step + v * VF;
            if (!t->fresh) total += ld(part);
            if (!t->out) {
                st(part, total);
                continue;
            }
            if (t->bias) total += ld(t->bias + v * VF);
            if (t->residual) total += ld(t->residual + i * t->residual_step + v * VF);
            st(t->out + i * t->out_step + v * VF, vclamp(total, low, high));
        }
}
static void wide_1(const kn_tile *t) { few(t, 1, 2, 4); }
static void wide_2(const kn_tile *t) { few(t, 2, 2, 2); }
static void narrow_1(const kn_tile *t) { few(t, 1, 1, 4); }
static void narrow_2(const kn_tile *t) { few(t, 2, 1, 4); }

WIDE(3, NOTHING)
WIDE(4, NOTHING)
WIDE(5, FETCH)
WIDE(6, FETCH)
NARROW(3)
NARROW(4)
NARROW(5)
NARROW(6)
#if KN_MR == 12
WIDE(7, FETCH)
WIDE(8, FETCH)
WIDE(9, FETCH)
WIDE(10, FETCH)
WIDE(11, FETCH)
WIDE(12, FETCH)
NARROW(7)
NARROW(8)
NARROW(9)
NARROW(10)
NARROW(11)
NARROW(12)
#define TABLE(kind)                                                                                      \
    {0,        kind##_1, kind##_2, kind##_3, kind##_4,  kind##_5, kind##_6,                              \
     kind##_7, kind##_8, kind##_9, kind##_10, kind##_11, kind##_12}
#else
#define TABLE(kind) {0, kind##_1, kind##_2, kind##_3, kind##_4, kind##_5, kind##_6}
#endif
const kn_micro kn_wide[KN_MR + 1] = TABLE(wide);
const kn_micro kn_narrow[KN_MR + 1] = TABLE(narrow);
