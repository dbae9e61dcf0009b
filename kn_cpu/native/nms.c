// Choosing boxes that do not overlap, one row of scores after another: see kn_nms.h. Every operation is
// rounded as the reference rounds it, since a box that overlaps just enough is gone.
#include "kn_nms.h"
#include "axes.h"

#include <stddef.h>

enum { CHUNK = 16 }; // boxes that are compared before somebody looks

// Boxes side by side: low, low, high, high, and the area.
enum { LOW_0, LOW_1, HIGH_0, HIGH_1, AREA, NUMBERS };

typedef struct {
    float *of[NUMBERS]; // of all that are kept
    int64_t count;
} boxes_t;

static inline float length(float low, float high) { return high - low > 0 ? high - low : 0; }

// Whether a box overlaps the one with a number; an empty box overlaps nothing.
static inline int overlaps(const boxes_t *b, int64_t i, const float *box, float iou) {
    float low_0 = b->of[LOW_0][i] > box[LOW_0] ? b->of[LOW_0][i] : box[LOW_0];
    float low_1 = b->of[LOW_1][i] > box[LOW_1] ? b->of[LOW_1][i] : box[LOW_1];
    float high_0 = b->of[HIGH_0][i] < box[HIGH_0] ? b->of[HIGH_0][i] : box[HIGH_0];
    float high_1 = b->of[HIGH_1][i] < box[HIGH_1] ? b->of[HIGH_1][i] : box[HIGH_1];
    float common = length(low_0, high_0) * length(low_1, high_1);
    float whole = b->of[AREA][i] + box[AREA] - common;
    return (b->of[AREA][i] > 0) & (box[AREA] > 0) & (whole > 0) & (common / whole > iou);
}

static int overlaps_any(const boxes_t *b, const float *box, float iou) {
    for (int64_t first = 0; first < b->count; first += CHUNK) {
        int64_t last = kn_least(first + CHUNK, b->count);
        int found = 0;
        for (int64_t i = first; i < last; i++) found |= overlaps(b, i, box, iou);
        if (found) return 1;
    }
    return 0;
}

static void kept_boxes(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    const kn_nms *t = (const kn_nms *)(const void *)n;
    int64_t limit = *(const int64_t *)(const void *)p[4], rows = t->images * t->classes;
    float iou = *(const float *)(const void *)p[5];
    boxes_t boxes;
    for (int k = 0; k < NUMBERS; k++) boxes.of[k] = (float *)(void *)scratch + k * t->boxes;
    for (int64_t row = kn_share(rows, t->units, begin); row < kn_share(rows, t->units, end); row++) {
        int64_t image = row / t->classes, class = row % t->classes;
        char *kept = p[0] + image * t->kept[0] + class * t->kept[1];
        const float *corners = (const float *)(const void *)p[1] + image * t->corners[0];
        const int64_t *order = (const int64_t *)(const void *)p[2] + image * t->order[0] + class * t->order[1];
        const char *candidates = p[3] + image * t->candidates[0] + class * t->candidates[1];
        boxes.count = 0;
        for (int64_t i = 0; i < t->boxes; i++) {
            kept[i * t->kept[2]] = 0;
            if (!candidates[i * t->candidates[2]] || boxes.count >= limit) continue;
            float box[NUMBERS];
            const float *from = corners + order[i * t->order[2]] * t->corners[1];
            for (int k = 0; k < AREA; k++) box[k] = from[k * t->corners[2]];
            box[AREA] = (box[HIGH_0] - box[LOW_0]) * (box[HIGH_1] - box[LOW_1]);
            if (overlaps_any(&boxes, box, iou)) continue;
            kept[i * t->kept[2]] = 1;
            for (int k = 0; k < NUMBERS; k++) boxes.of[k][boxes.count] = box[k];
            boxes.count++;
        }
    }
}

const kn_entry kn_nms_entries[] = {{"kept_boxes_f32", kept_boxes}, {NULL, NULL}};
