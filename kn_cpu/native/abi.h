// What every kernel family and the step runner agree on.
#pragma once
#include <stdint.h>

// Does the work units [begin, end) of a step.
//   n        the step's numbers: sizes, strides in elements, flags, bits of floats
//   p        element [0, 0, ..] of each operand; NULL where an optional one is missing
//   scratch  this thread's own, 64-byte aligned, as large as the step asks for
// Units are independent; their number and boundaries follow from sizes alone, so that results do not
// depend on the number of threads.
typedef void (*kn_kernel)(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end);

// A row of a family's table `const kn_entry kn_<family>_entries[]`, which ends with {NULL, NULL}.
typedef struct {
    const char *name;
    kn_kernel run;
} kn_entry;

typedef struct {
    kn_kernel run;
    int64_t numbers;  // place of its first number
    int64_t pointers; // place of its first pointer
    int64_t units;    // how many work units there are
    int64_t grain;    // how many a thread takes at a time
    int64_t scratch;  // bytes for each thread
} kn_step;

// Runs steps one after another on the calling thread and up to threads - 1 helpers, which are asleep
// again when it returns. May be called by several threads at once.
// Returns 0, or -1 if there is no memory for the scratch of a step; then nothing has run.
int kn_run(const kn_step *steps, int64_t count, const int64_t *numbers, char *const *pointers,
           int threads);
