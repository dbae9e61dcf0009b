// What the ways to compute attention have in common; see attention.c.
#pragma once
#include "kn_attention.h"
#include "axes.h"
#include "rows.h"

#include <math.h>
#include <stddef.h>

enum { UNIT = KN_ATT_QUERIES_OF_UNIT, BLOCK = KN_ATT_KEYS_OF_BLOCK, FEW = 4 };

typedef struct {
    const int64_t *n;
    float *out;            // of the head at hand, as the next ones
    const float *q, *k, *v;
    const char *bias; // NULL for none
    int64_t queries, keys, size, value_size;
    int64_t left, right, offset; // query i sees keys from i + offset - left to i + offset + right
    int bounded;                 // whether left or right may hide keys
    int whole;                   // whether hidden keys are computed with, as others are
    float scale, softcap;
} attention_t;

static const float minus_infinity = -__builtin_inff();

// ---- which keys are seen ------------------------------------------------------------------------

// Keys that some of the queries [first, last] see, as far as their positions say.
INL void visible(const attention_t *t, int64_t first, int64_t last, int64_t *from, int64_t *stop) {
    *from = t->whole ? 0 : kn_most(0, first + t->offset - t->left);
    *stop = t->whole ? t->keys : kn_least(t->keys, last + t->offset + t->right + 1);
}

INL int all_visible(const attention_t *t, int64_t first, int64_t last, int64_t from, int64_t stop) {
    return !t->bounded || (from >= last + t->offset - t->left && stop <= first + t->offset + t->right + 1);
}

// row[j] = bias of one query and keys from + j * 1
static inline void bias_row(const attention_t *t, float *row, int64_t query, int64_t from, int64_t count) {
    const int64_t *stride = t->n + KN_ATT_BIAS;
    int64_t start = query * stride[2] + from * stride[3], step = stride[3];
    if (t->n[KN_ATT_BIAS_KIND] == KN_BIAS_FLOAT) {
        const float *x = (const float *)(const void *)t->bias + start;
        for (int64_t j = 0; j < count; j++) row[j] = x[j * step];
    } else {
        const char *x = t->bias + start;
        if (step == 1)
            for (int64_t j = 0; j < count; j++) row[j] = x[j] ? 0.0f : minus_infinity;
        else
            for (int64_t j = 0; j < count; j++) row[j] = x[j * step] ? 0.0f : minus_infinity;
    }
}

INL vf capped(const attention_t *t, vf x) {
    return t->softcap == 0.0f ? x : vtanh(x / set1(t->softcap)) * set1(t->softcap);
}

// A query, and the head that it belongs to.
typedef struct {
    attention_t head;
    int64_t query;
} kn_attention_row;

// Up to FEW rows that share keys and values: neighbouring queries of a head, or one of several heads.
void kn_attend_few(const kn_attention_row *rows, float *scratch, int64_t count);
