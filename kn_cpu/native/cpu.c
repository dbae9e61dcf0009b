// Which of the libraries of this package the processor can run.
#include "cpu.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

// VNNI of 256 bits without AVX-512; GCC 10 does not know its name.
static int has_avxvnni(void) {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}
#endif

int kn_cpu_runs(const char *isa) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    int base = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
    int avx2 = base && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
               __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    int avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                 __builtin_cpu_supports("avx512vnni");
    // every processor with AVX2 that was built has F16C as well; GCC 10 does not know its name
    return (base && !strcmp(isa, "base")) || (avx2 && !strcmp(isa, "avx2")) ||
           (avx2 && !strcmp(isa, "avxvnni") && has_avxvnni()) || (avx512 && !strcmp(isa, "avx512"));
#else
    return !strcmp(isa, "base");
#endif
}
