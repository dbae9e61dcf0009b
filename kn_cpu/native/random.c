// Random numbers that follow from a counter, so that every thread makes its own. See kn_random.h.
#include "kn_random.h"
#include "axes.h"
#include "half.h"

#include <math.h>
#include <stddef.h>

typedef struct {
    uint32_t word[4];
} random_block;

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers, SC 2011).
INL random_block philox(uint64_t seed, uint64_t stream, uint64_t number) {
    uint32_t a = (uint32_t)number, b = (uint32_t)(number >> 32), c = (uint32_t)stream, d = (uint32_t)(stream >> 32);
    uint32_t key = (uint32_t)seed, other = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t first = (uint64_t)0xD2511F53 * a, second = (uint64_t)0xCD9E8D57 * c;
        a = (uint32_t)(second >> 32) ^ b ^ key, b = (uint32_t)second;
        c = (uint32_t)(first >> 32) ^ d ^ other, d = (uint32_t)first;
        key += 0x9E3779B9, other += 0xBB67AE85;
    }
    return (random_block){{a, b, c, d}};
}

INL double uniform(const uint32_t *word, int64_t bits) {
    if (bits > 32) return ((word[0] >> 5) * 0x1p26 + (word[1] >> 6)) * 0x1p-53;
    return (word[0] >> (32 - bits)) * (1.0 / (1u << bits));
}

static double normal(const uint32_t *word) {
    const double turn = 6.283185307179586;
    return sqrt(-2 * log(word[0] * 0x1p-32 + 0x1p-33)) * cos(turn * (word[1] * 0x1p-32));
}

// A float from which a half is rounded as from the double: its last bit says that others are lost.
INL float sticky(double x) {
    float near = (float)x;
    uint32_t bits = float_bits(near);
    if ((double)near == x) return near;
    return bits_float((bits - (fabs((double)near) > fabs(x))) | 1);
}

INL void put(char *out, int64_t i, double x, int64_t type) {
    switch (type) {
    case KN_RANDOM_FLOAT: ((float *)(void *)out)[i] = (float)x; break;
    case KN_RANDOM_DOUBLE: ((double *)(void *)out)[i] = x; break;
    case KN_RANDOM_HALF: ((uint16_t *)(void *)out)[i] = float_to_half(sticky(x)); break;
    default: ((uint16_t *)(void *)out)[i] = float_to_bfloat((float)x); break;
    }
}

static void random_numbers(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    (void)scratch;
    const uint64_t *draw = (const void *)p[1];
    int64_t type = n[KN_RANDOM_TYPE], words = n[KN_RANDOM_WORDS], count = n[KN_RANDOM_COUNT];
    int64_t each = 4 / words, blocks = (count + each - 1) / each, units = n[KN_RANDOM_UNITS];
    int64_t stop = kn_share(blocks, units, end);
    for (int64_t b = kn_share(blocks, units, begin); b < stop; b++) {
        random_block made = philox(draw[0], draw[1], draw[2] + (uint64_t)b);
        int64_t few = kn_least(each, count - b * each);
        for (int64_t k = 0; k < few; k++) {
            const uint32_t *word = made.word + k * words;
            put(p[0], b * each + k, n[KN_RANDOM_NORMAL] ? normal(word) : uniform(word, n[KN_RANDOM_BITS]), type);
        }
    }
}

const kn_entry kn_random_entries[] = {{"random", random_numbers}, {NULL, NULL}};
