// Recurrent layers, step by step: a product of the hidden states with the packed recurrent weights, then
// the cell, which is elementwise. The states of a task stay in the cache of one thread.
//
// Lanes beyond the last hidden unit hold whatever comes of it, and are never read by a product.
#include "kn_recurrent.h"
#include "kn_scalar.h"
#include "rows.h"

enum { Y, Y_H, Y_C, X, R, BIAS, LENGTHS, H, C, PEEPHOLES, STATUS };

// One task: some rows of the batch in one direction.
typedef struct {
    const kn_recurrent *s;
    const int64_t *n;
    char *const *p;
    int64_t gates, width, direction, first, rows;
    int backward;
    vf low, high;
    const kn_activation *f;
    const float *packed;
    float *h, *c;     // [rows][width]
    float *left;      // [rows][width], what is multiplied where it is not h
    float *sums;      // [rows][gates * width], the active ones
    float *gate;      // [gates][rows][width], what activations are applied to where they are not usual
    float *bias;      // [gates][width]
    float *r_bias;    // [width], of the gate h of a gru with linear_before_reset
    float *peepholes; // [3][width]
    int64_t *length;  // of each row
    int64_t count;    // rows that are active at this step, and
    int64_t *active;  // which ones
    const float **x;  // their products with w
    const float **multiplied;
    char *rest; // scratch of programs
} task;

// ---- scratch; kn_cpu/recurrent.py adds it up ------------------------------------------------

INL float *take(char **scratch, int64_t floats) {
    float *p = (float *)(void *)*scratch;
    *scratch += kn_ceil_div(floats, 16) * 64;
    return p;
}

static void divide_scratch(task *w, char *scratch) {
    const int64_t rows = w->s->rows, block = rows * w->width;
    w->h = take(&scratch, block);
    w->c = take(&scratch, block);
    w->left = take(&scratch, block);
    w->sums = take(&scratch, block * w->gates);
    w->gate = take(&scratch, block * w->gates);
    w->bias = take(&scratch, w->width * w->gates);
    w->r_bias = take(&scratch, w->width);
    w->peepholes = take(&scratch, w->width * 3);
    w->length = (int64_t *)(void *)take(&scratch, rows * 2);
    w->active = (int64_t *)(void *)take(&scratch, rows * 2);
    w->x = (const float **)(void *)take(&scratch, rows * 2);
    w->multiplied = (const float **)(void *)take(&scratch, rows * 2);
    w->rest = scratch;
}

// ---- vectors with strides, and rows ---------------------------------------------------------

INL const float *floats(const task *w, int operand) { return (const float *)(const void *)w->p[operand]; }

// Element [direction, row] of a state.
INL int64_t state_at(const task *w, const int64_t *strides, int64_t row) {
    return w->direction * strides[0] + (w->first + row) * strides[1];
}

// Reads the hidden units of a row and fills up with zeros; of no row, zeros.
static void read_row(const task *w, float *to, const float *from, int64_t stride) {
    const int64_t hidden = from ? w->s->hidden : 0;
    int64_t j = 0;
    if (stride == 1)
        for (; j + VF <= hidden; j += VF) st(to + j, ld(from + j));
    for (; j < hidden; j++) to[j] = from[j * stride];
    for (; j < w->width; j++) to[j] = 0;
}

static void write_row(const task *w, float *to, int64_t stride, const float *from) {
    const int64_t hidden = w->s->hidden;
    int64_t j = 0;
    if (stride == 1) {
        for (; j + VF <= hidden; j += VF) st(to + j, ld(from + j));
        if (j < hidden) st_part(to + j, ld(from + j), hidden - j);
        return;
    }
    for (; j < hidden; j++) to[j * stride] = from[j];
}

// ---- beginning and end ----------------------------------------------------------------------

static void read_weights(task *w) {
    const kn_recurrent *s = w->s;
    const float *bias = floats(w, BIAS), *peepholes = floats(w, PEEPHOLES);
    const int apart = s->kind == KN_GRU && s->linear_before_reset;
    if (bias) bias += w->direction * s->bias[0];
    for (int64_t g = 0; g < w->gates; g++) {
        const float *of_w = bias ? bias + g * s->hidden * s->bias[1] : 0;
        const float *of_r = bias ? of_w + w->gates * s->hidden * s->bias[1] : 0;
        float *sum = w->bias + g * w->width;
        read_row(w, sum, of_w, s->bias[1]);
        read_row(w, w->r_bias, of_r, s->bias[1]);
        if (g < 2 || !apart)
            for (int64_t j = 0; j < w->width; j += VF) st(sum + j, ld(sum + j) + ld(w->r_bias + j));
    }
    if (peepholes)
        for (int64_t g = 0; g < 3; g++)
            read_row(w, w->peepholes + g * w->width,
                     peepholes + w->direction * s->peepholes[0] + g * s->hidden * s->peepholes[1],
                     s->peepholes[1]);
}

static void read_states(task *w) {
    const kn_recurrent *s = w->s;
    const float *h = floats(w, H), *c = floats(w, C);
    const int32_t *lengths = (const int32_t *)(const void *)w->p[LENGTHS];
    for (int64_t i = 0; i < w->rows; i++) {
        read_row(w, w->h + i * w->width, h ? h + state_at(w, s->h, i) : 0, s->h[2]);
        read_row(w, w->c + i * w->width, c ? c + state_at(w, s->c, i) : 0, s->c[2]);
        const int64_t length = lengths ? lengths[(w->first + i) * s->lengths] : s->steps;
        w->length[i] = kn_max(0, kn_min(length, s->steps));
    }
}

// Every task finds the same one.
static void check_lengths(const task *w) {
    const int32_t *lengths = (const int32_t *)(const void *)w->p[LENGTHS];
    int64_t *status = (int64_t *)(void *)w->p[STATUS];
    for (int64_t i = 0; lengths && i < w->s->batch; i++) {
        const int64_t length = lengths[i * w->s->lengths];
        if (length >= 0 && length <= w->s->steps) continue;
        __atomic_store_n(status + 1, length, __ATOMIC_RELAXED);
        __atomic_store_n(status, 1, __ATOMIC_RELAXED);
        return;
    }
}

INL float *y_at(const task *w, int64_t step, int64_t row) {
    const int64_t *strides = w->s->y;
    return (float *)(void *)w->p[Y] + step * strides[0] + state_at(w, strides + 1, row);
}

static void finish(const task *w) {
    const kn_recurrent *s = w->s;
    for (int64_t i = 0; i < w->rows; i++) {
        for (int64_t t = w->length[i]; t < s->steps; t++) {
            float *y = y_at(w, t, i);
            for (int64_t j = 0; j < s->hidden; j++) y[j * s->y[3]] = 0;
        }
        write_row(w, (float *)(void *)w->p[Y_H] + state_at(w, s->y_h, i), s->y_h[2], w->h + i * w->width);
        if (s->kind == KN_LSTM)
            write_row(w, (float *)(void *)w->p[Y_C] + state_at(w, s->y_c, i), s->y_c[2], w->c + i * w->width);
    }
}

// ---- products -------------------------------------------------------------------------------

// Rounds the rows of `from` to the 256 numbers that DynamicQuantizeLinear chooses for all of them.
static void round_rows(task *w, const float *from, int64_t t) {
    vf low = {0}, high = {0};
    for (int64_t i = 0; i < w->rows; i++)
        for (int64_t j = 0; t <= w->length[i] && j < w->s->hidden; j += VF) {
            vf x = ld_part_or(from + i * w->width + j, kn_min(VF, w->s->hidden - j), 0);
            low = kn_smaller(x, low);
            high = kn_larger(x, high);
        }
    float least = low[0], largest = high[0];
    for (int i = 1; i < VF; i++) {
        least = low[i] < least || low[i] != low[i] ? low[i] : least;
        largest = high[i] > largest || high[i] != high[i] ? high[i] : largest;
    }
    const float scale = largest > least ? (largest - least) / 255.0f : 1.0f;
    const vf zero = vround(vclamp(set1(-least / scale), set1(0.0f), set1(255.0f)));
    for (int64_t a = 0; a < w->count; a++) {
        const float *x = from + w->active[a] * w->width;
        float *to = w->left + w->active[a] * w->width;
        for (int64_t j = 0; j < w->width; j += VF) {
            vf q = vclamp(vround(ld(x + j) / scale) + zero, set1(0.0f), set1(255.0f));
            st(to + j, (q - zero) * scale);
        }
    }
}

// The product of the active rows of `from` with a part of the recurrent weights.
static void multiply(task *w, int number, const float *from, int64_t t) {
    kn_part parts[2];
    kn_parts(w->s->kind, w->s->linear_before_reset, parts);
    if (w->s->quantize) {
        round_rows(w, from, t);
        from = w->left;
    }
    const kn_part part = parts[number];
    const kn_recurrent_columns columns = {w->packed + part.first * w->width * w->s->hidden, w->s->hidden,
                                          w->width / VF * part.count, kn_panel_vectors(part.count)};
    for (int64_t a = 0; a < w->count; a++) w->multiplied[a] = from + w->active[a] * w->width;
    kn_recurrent_product(&columns, w->multiplied, w->count, w->sums + part.first * w->width,
                         w->gates * w->width, t);
}

// ---- activations ----------------------------------------------------------------------------

static void apply(const task *w, const kn_activation *f, float *x, int64_t count) {
    if (f->code == KN_PROGRAM) {
        char *const p[2] = {(char *)x, (char *)x};
        kn_scalar_block(w->n + f->program, p, w->rest, x, count, 0, 0, 1, count);
        return;
    }
    const vf alpha = set1(kn_float(f->alpha)), beta = set1(kn_float(f->beta));
    const vf low = set1(kn_float(f->low)), high = set1(kn_float(f->high));
    for (int64_t i = 0; i < count; i += VF) {
        vf v = ld(x + i);
        if (f->code == KN_SIGMOID)
            v = vsigmoid(v);
        else if (f->code == KN_TANH)
            v = vtanh(v);
        else
            v = vclamp(vfma(alpha, v, beta), low, high);
        st(x + i, v);
    }
}

// ---- cells ----------------------------------------------------------------------------------

// What a cell knows of one active row.
typedef struct {
    const float *x, *sums;
    float *h, *c;
} cell;

INL cell cell_of(const task *w, int64_t a) {
    const int64_t row = w->active[a] * w->width;
    return (cell){w->x[a], w->sums + a * w->gates * w->width, w->h + row, w->c + row};
}

INL float *gate_of(const task *w, int64_t gate, int64_t a) {
    return w->gate + (gate * w->s->rows + a) * w->width;
}

INL vf clip(const task *w, vf x) { return vclamp(x, w->low, w->high); }
INL vf from_x(const task *w, const cell *q, int64_t gate, int64_t j) {
    return ld(q->x + gate * w->s->hidden + j) + ld(w->bias + gate * w->width + j);
}
// Gate `gate`, which is number `place` of a part of `count` gates, before its activation.
INL vf sum_of(const task *w, const cell *q, int64_t gate, int64_t place, int64_t count, int64_t j) {
    return ld(q->sums + (gate - place) * w->width + j * count + place * VF) + from_x(w, q, gate, j);
}

static void rnn_cell(task *w) {
    for (int64_t a = 0; a < w->count; a++) {
        const cell q = cell_of(w, a);
        for (int64_t j = 0; j < w->width; j += VF) st(q.h + j, clip(w, sum_of(w, &q, 0, 0, 1, j)));
        apply(w, &w->f[0], q.h, w->width);
    }
}

enum { I, O, F, NEW };

INL vf lstm_gate(const task *w, const cell *q, int64_t gate, vf c, int64_t j) {
    vf x = sum_of(w, q, gate, gate, 4, j);
    if (w->p[PEEPHOLES] && gate != NEW) x += ld(w->peepholes + gate * w->width + j) * c;
    return clip(w, x);
}

static void usual_lstm_cell(task *w) {
    for (int64_t a = 0; a < w->count; a++) {
        const cell q = cell_of(w, a);
        for (int64_t j = 0; j < w->width; j += VF) {
            vf c = ld(q.c + j), i = vsigmoid(lstm_gate(w, &q, I, c, j));
            vf f = w->s->input_forget ? 1.0f - i : vsigmoid(lstm_gate(w, &q, F, c, j));
            c = f * c + i * vtanh(lstm_gate(w, &q, NEW, c, j));
            st(q.c + j, c);
            st(q.h + j, vsigmoid(lstm_gate(w, &q, O, c, j)) * vtanh(c));
        }
    }
}

static void lstm_cell(task *w) {
    const int64_t all = w->count * w->width;
    for (int64_t a = 0; a < w->count; a++) {
        const cell q = cell_of(w, a);
        for (int64_t j = 0; j < w->width; j += VF) {
            vf c = ld(q.c + j);
            st(gate_of(w, I, a) + j, lstm_gate(w, &q, I, c, j));
            st(gate_of(w, F, a) + j, lstm_gate(w, &q, F, c, j));
            st(gate_of(w, NEW, a) + j, lstm_gate(w, &q, NEW, c, j));
        }
    }
    apply(w, &w->f[0], gate_of(w, I, 0), all);
    if (!w->s->input_forget) apply(w, &w->f[0], gate_of(w, F, 0), all);
    apply(w, &w->f[1], gate_of(w, NEW, 0), all);
    for (int64_t a = 0; a < w->count; a++) {
        const cell q = cell_of(w, a);
        for (int64_t j = 0; j < w->width; j += VF) {
            vf i = ld(gate_of(w, I, a) + j), f = w->s->input_forget ? 1.0f - i : ld(gate_of(w, F, a) + j);
            vf c = f * ld(q.c + j) + i * ld(gate_of(w, NEW, a) + j);
            st(q.c + j, c);
            st(gate_of(w, NEW, a) + j, c);
            st(gate_of(w, O, a) + j, lstm_gate(w, &q, O, c, j));
        }
    }
    apply(w, &w->f[0], gate_of(w, O, 0), all);
    apply(w, &w->f[2], gate_of(w, NEW, 0), all);
    for (int64_t a = 0; a < w->count; a++) {
        float *h = cell_of(w, a).h;
        for (int64_t j = 0; j < w->width; j += VF) st(h + j, ld(gate_of(w, O, a) + j) * ld(gate_of(w, NEW, a) + j));
    }
}

enum { Z, RESET, CANDIDATE };

// Gate h of a gru with linear_before_reset.
INL vf late_reset(const task *w, const cell *q, vf reset, int64_t j) {
    vf product = ld(q->sums + 3 * j + 2 * VF) + ld(w->r_bias + j);
    return clip(w, from_x(w, q, CANDIDATE, j) + reset * product);
}

static void usual_gru_cell(task *w) {
    for (int64_t a = 0; a < w->count; a++) {
        const cell q = cell_of(w, a);
        for (int64_t j = 0; j < w->width; j += VF) {
            vf z = vsigmoid(clip(w, sum_of(w, &q, Z, Z, 3, j)));
            vf reset = vsigmoid(clip(w, sum_of(w, &q, RESET, RESET, 3, j)));
            vf candidate = vtanh(late_reset(w, &q, reset, j));
            st(q.h + j, (1.0f - z) * candidate + z * ld(q.h + j));
        }
    }
}

static void gru_cell(task *w, int64_t t) {
    const int64_t all = w->count * w->width, late = w->s->linear_before_reset, part = late ? 3 : 2;
    for (int64_t a = 0; a < w->count; a++) {
        const cell q = cell_of(w, a);
        for (int64_t j = 0; j < w->width; j += VF) {
            st(gate_of(w, Z, a) + j, clip(w, sum_of(w, &q, Z, Z, part, j)));
            st(gate_of(w, RESET, a) + j, clip(w, sum_of(w, &q, RESET, RESET, part, j)));
        }
    }
    apply(w, &w->f[0], gate_of(w, Z, 0), all);
    apply(w, &w->f[0], gate_of(w, RESET, 0), all);
    if (!late) {
        for (int64_t a = 0; a < w->count; a++) {
            const int64_t row = w->active[a] * w->width;
            for (int64_t j = 0; j < w->width; j += VF)
                st(w->left + row + j, ld(gate_of(w, RESET, a) + j) * ld(w->h + row + j));
        }
        multiply(w, 1, w->left, t);
    }
    for (int64_t a = 0; a < w->count; a++) {
        const cell q = cell_of(w, a);
        for (int64_t j = 0; j < w->width; j += VF)
            st(gate_of(w, CANDIDATE, a) + j, late ? late_reset(w, &q, ld(gate_of(w, RESET, a) + j), j)
                                                  : clip(w, sum_of(w, &q, CANDIDATE, 0, 1, j)));
    }
    apply(w, &w->f[1], gate_of(w, CANDIDATE, 0), all);
    for (int64_t a = 0; a < w->count; a++) {
        float *h = cell_of(w, a).h;
        for (int64_t j = 0; j < w->width; j += VF) {
            vf z = ld(gate_of(w, Z, a) + j);
            st(h + j, (1.0f - z) * ld(gate_of(w, CANDIDATE, a) + j) + z * ld(h + j));
        }
    }
}

// ---- the kernel -----------------------------------------------------------------------------

INL int is_usual(const task *w) {
    const kn_activation *f = w->f;
    if (f[0].code != KN_SIGMOID || f[1].code != KN_TANH) return 0;
    return w->s->kind == KN_LSTM ? f[2].code == KN_TANH : w->s->linear_before_reset != 0;
}

// Which step of a sequence comes at time t.
INL int64_t step_at(const task *w, int64_t row, int64_t t) {
    return w->backward ? w->length[row] - 1 - t : t;
}

static void find_active(task *w, int64_t t) {
    const kn_recurrent *s = w->s;
    w->count = 0;
    for (int64_t i = 0; i < w->rows; i++) {
        if (t >= w->length[i]) continue;
        const int64_t place = step_at(w, i, t) * s->x[0] + (w->first + i) * s->x[1];
        w->x[w->count] = floats(w, X) + place + w->direction * w->gates * s->hidden;
        w->active[w->count++] = i;
    }
}

static void run_task(task *w) {
    const kn_recurrent *s = w->s;
    const int usual = is_usual(w);
    read_weights(w);
    read_states(w);
    for (int64_t t = 0; t < s->steps; t++) {
        find_active(w, t);
        if (w->count == 0) break;
        multiply(w, 0, w->h, t);
        if (s->kind == KN_RNN)
            rnn_cell(w);
        else if (s->kind == KN_LSTM)
            usual ? usual_lstm_cell(w) : lstm_cell(w);
        else
            usual ? usual_gru_cell(w) : gru_cell(w, t);
        for (int64_t a = 0; a < w->count; a++) {
            const int64_t row = w->active[a];
            write_row(w, y_at(w, step_at(w, row, t), row), s->y[3], w->h + row * w->width);
        }
    }
    finish(w);
}

static void recurrent_f32(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    const kn_recurrent *s = (const void *)n;
    const int64_t blocks = kn_ceil_div(s->batch, s->rows), tasks = blocks * s->directions;
    task w = {.s = s, .n = n, .p = p, .gates = kn_gates(s->kind), .width = kn_width(s->hidden)};
    w.low = set1(kn_float(s->low));
    w.high = set1(kn_float(s->high));
    divide_scratch(&w, scratch);
    check_lengths(&w);
    for (int64_t i = begin * tasks / s->units; i < end * tasks / s->units; i++) {
        w.direction = i / blocks;
        w.first = i % blocks * s->rows;
        w.rows = kn_min(s->rows, s->batch - w.first);
        w.backward = s->backward || w.direction == 1;
        w.f = s->f[w.direction];
        w.packed = floats(&w, R) + w.direction * w.gates * w.width * s->hidden;
        run_task(&w);
    }
}

const kn_entry kn_recurrent_entries[] = {
    {"recurrent_f32", recurrent_f32}, {"recurrent_pack_f32", kn_recurrent_pack_f32}, {0, 0}};
