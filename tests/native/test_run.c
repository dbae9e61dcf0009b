// Hammers the step runner: `make test-native` builds this with sanitizers of addresses and of threads.
#include "run.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { UNITS = 1000, STEPS = 40, ROUNDS = 60, CALLERS = 4 };

// n = {length of a unit, addend}, p = {out, in}: reads what the step before wrote anywhere
static void add_reversed(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    int64_t *out = (int64_t *)p[0], *own = (int64_t *)scratch;
    const int64_t *in = (const int64_t *)p[1];
    for (int64_t u = begin; u < end; u++) {
        for (int64_t i = 0; i < n[0]; i++) own[i] = in[(UNITS - 1 - u) * n[0] + i] + n[1];
        memcpy(out + u * n[0], own, (size_t)n[0] * sizeof(int64_t));
    }
}

static int one_run(int threads, int64_t grain) {
    enum { LENGTH = 3 };
    int64_t *buffers = calloc(2 * UNITS * LENGTH, sizeof(int64_t)), numbers[] = {LENGTH, 1};
    char *a = (char *)buffers, *b = (char *)(buffers + UNITS * LENGTH);
    char *pointers[] = {b, a, a, b};
    kn_step steps[STEPS];
    for (int i = 0; i < STEPS; i++)
        steps[i] = (kn_step){add_reversed, 0, i % 2 * 2, UNITS, grain + i % 7, 8 * LENGTH + 64 * i};
    int failed = kn_run(steps, STEPS, numbers, pointers, threads);
    const int64_t *result = (const int64_t *)(STEPS % 2 ? b : a);
    for (int64_t i = 0; i < UNITS * LENGTH; i++) failed |= result[i] != STEPS;
    free(buffers);
    return failed;
}

static void *caller(void *argument) {
    long failed = 0, number = (long)argument;
    for (int i = 0; i < ROUNDS; i++) failed |= one_run(1 + (int)((number + i) % 5), 1 + 60 * (i % 3));
    return (void *)failed;
}

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int check(const char *claim, int holds) {
    if (!holds) fprintf(stderr, "FAILED: %s\n", claim);
    return !holds;
}

int main(void) {
    int failed = 0;
    pthread_t threads[CALLERS];
    for (long i = 0; i < CALLERS; i++) pthread_create(&threads[i], NULL, caller, (void *)i);
    for (int i = 0; i < CALLERS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        failed |= check("runs of several threads at once are right", result == NULL);
    }
    failed |= check("there are no more helpers than were asked for", kn_helpers() <= 4);
    failed |= check("helpers were started", kn_helpers() >= 1);

    one_run(5, 1);
    double before = cpu_seconds();
    usleep(50000);
    failed |= check("helpers sleep when a run is over", cpu_seconds() - before < 0.005);

    kn_step huge = {add_reversed, 0, 0, 1, 1, INT64_MAX / 2};
    failed |= check("scratch that cannot be had is an error", kn_run(&huge, 1, NULL, NULL, 2) == -1);

    pid_t child = fork();
    if (child == 0) _exit(one_run(3, 1) || kn_helpers() != 2);
    int status;
    waitpid(child, &status, 0);
    failed |= check("a forked process has a crew of its own", WIFEXITED(status) && WEXITSTATUS(status) == 0);
    puts(failed ? "failed" : "run: all claims hold");
    return failed;
}
