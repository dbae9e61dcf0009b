// Lists for macros: EACH_n(X) is X(0) .. X(n - 1). Accumulators are variables with names, made by macros:
// compilers do not keep arrays of vectors in registers reliably, and say nothing when they do not.
#pragma once

#define EACH_1(X) X(0)
#define EACH_2(X) EACH_1(X) X(1)
#define EACH_3(X) EACH_2(X) X(2)
#define EACH_4(X) EACH_3(X) X(3)
#define EACH_5(X) EACH_4(X) X(4)
#define EACH_6(X) EACH_5(X) X(5)
#define EACH_7(X) EACH_6(X) X(6)
#define EACH_8(X) EACH_7(X) X(7)
#define EACH_9(X) EACH_8(X) X(8)
#define EACH_10(X) EACH_9(X) X(9)
#define EACH_11(X) EACH_10(X) X(10)
#define EACH_12(X) EACH_11(X) X(11)

#define EACH_OF(n, X) EACH_OF_(n, X)
#define EACH_OF_(n, X) EACH_##n(X)

#ifdef __clang__
#define KN_UNROLL_2 _Pragma("clang loop unroll_count(2)")
#else
#define KN_UNROLL_2 _Pragma("GCC unroll 2")
#endif
