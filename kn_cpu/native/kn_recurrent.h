// The numbers of the recurrent kernels, in this order; kn_cpu/recurrent.py writes them.
//
// Hidden units are worked on by vectors: `width` is their number filled up to whole ones. Products
// with the recurrent weights come in parts, of gates that are computed together:
//   rnn {h}, lstm {i o f c}, gru {z r} {h}, gru with linear_before_reset {z r h}
// A part of g gates has columns [vector of hidden units][gate][lane]. The packed weights are, for each
// direction and part, panels of KN_PANEL vectors of columns at most, each [depth][columns of the panel].
#pragma once
#include "abi.h"
#include "product.h"

enum { KN_RNN, KN_GRU, KN_LSTM };
enum { KN_SIGMOID, KN_TANH, KN_CLAMPED, KN_PROGRAM };

typedef struct {
    int64_t code;
    int64_t alpha, beta, low, high; // bits of floats; of KN_CLAMPED: clamp(alpha * x + beta)
    int64_t program;                // of KN_PROGRAM: where its numbers begin, from n on (kn_scalar.h)
} kn_activation;

// recurrent_f32: semantics of kn_graph.ops.recurrent.Recurrent. A task is some rows of the batch in one
// direction; units share the tasks evenly. Strides of missing operands are ignored.
// p: y, y_h, y_c, x * w [direction][gate][hidden] of each step and row and readable up to a vector
//    beyond, packed r, bias, lengths, initial h, initial c, peepholes, status
// status[0] becomes 1 where a length is out of range, status[1] is the first such length.
typedef struct {
    int64_t kind;
    int64_t directions, backward; // whether the first direction runs backward
    int64_t steps, batch, hidden;
    int64_t rows, units; // of a task; into how many units the tasks are dealt
    int64_t linear_before_reset, input_forget, quantize;
    int64_t low, high; // what the activations f and g are applied to is clamped; bits of floats
    int64_t x[2];      // strides of step, row
    int64_t y[4];      // strides of step, direction, row, hidden
    int64_t y_h[3], y_c[3], h[3], c[3];
    int64_t bias[2], peepholes[2]; // strides of direction, element
    int64_t lengths;
    kn_activation f[2][3]; // of each direction
} kn_recurrent;

// recurrent_pack_f32: p = {r, packed}. A unit is a direction.
typedef struct {
    int64_t kind, linear_before_reset, hidden;
    int64_t r[3]; // strides of direction, gate * hidden + unit, depth
} kn_recurrent_pack;

#define KN_PANEL 4 // vectors
#if defined(__AVX512F__)
#define KN_ROWS 6 // 24 accumulators of 32 registers
#elif defined(__AVX2__) || !defined(__x86_64__)
#define KN_ROWS 3 // 12 accumulators of 16 registers
#else
#define KN_ROWS 2 // products take a register of their own
#endif

// Gates [first, first + count) of a part.
typedef struct {
    int64_t first, count;
} kn_part;

INL int64_t kn_gates(int64_t kind) { return kind == KN_LSTM ? 4 : kind == KN_GRU ? 3 : 1; }

// The parts of a kind; returns how many there are.
INL int kn_parts(int64_t kind, int64_t linear_before_reset, kn_part parts[2]) {
    const int split = kind == KN_GRU && !linear_before_reset;
    parts[0] = (kn_part){0, split ? 2 : kn_gates(kind)};
    parts[1] = (kn_part){2, 1};
    return split ? 2 : 1;
}

// Vectors of columns of a panel of a part: whole vectors of hidden units.
INL int64_t kn_panel_vectors(int64_t gates) { return KN_PANEL / gates * gates; }

// Hidden units filled up to whole vectors.
INL int64_t kn_width(int64_t hidden) { return kn_ceil_div(hidden, VF) * VF; }

// The packed columns of a part.
typedef struct {
    const float *packed;
    int64_t depth, vectors, panel;
} kn_recurrent_columns;

// sums[i][j] = sum of rows[i][k] * column j [k] over k < depth. Odd turns begin with the last panel, which
// the turn before has left in the cache.
void kn_recurrent_product(const kn_recurrent_columns *c, const float *const *rows, int64_t count, float *sums,
                          int64_t step, int64_t turn);
void kn_recurrent_pack_f32(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end);

extern const kn_entry kn_recurrent_entries[];
