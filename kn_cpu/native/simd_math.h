// Elementary functions of float vectors, by polynomials that were fitted for this file.
// NaN gives NaN; results that overflow are infinite, and those below the normal numbers are denormal.
#pragma once
#include "simd.h"

// 2^n for -126 <= n <= 127. Arithmetic on bits is unsigned: a NaN may have left anything in n.
INL vf vpower(vi n) { return (vf)(((vu)n + 127) << 23); }

// p * 2^n for -252 <= n <= 254, rounded once
INL vf vscale(vf p, vi n) {
    vi half = n >> 1; // in two steps: 2^n itself may be out of range
    return p * vpower(half) * vpower((vi)((vu)n - (vu)half));
}

// x = n * ln 2 + r with |r| <= ln 2 / 2, for |x| < 2^21
INL vf vreduce(vf x, vi *n) {
    const float magic = 12582912.0f; // 1.5 * 2^23: the sum holds the rounded number in its low bits
    vf t = vfma(x, set1(1.44269504f), set1(magic));
    *n = (vi)((vu)t - 0x4b400000u);
    vf k = t - magic;
    return vfma(k, set1(2.12194440e-4f), vfma(k, set1(-0.693359375f), x));
}

// e^r - 1 for |r| <= ln 2 / 2
INL vf vexpm1_small(vf r) {
    vf p = vfma(r, set1(1.3926199e-3f), set1(8.3631910e-3f));
    p = vfma(p, r, set1(4.1666556e-2f));
    p = vfma(p, r, set1(1.6666576e-1f));
    p = vfma(p, r, set1(0.5f));
    return vfma(p, r * r, r);
}

// e^x for -104 <= x <= 89 or NaN: outside, the result is 0 or infinite, but the reduction is not exact
INL vf vexp_inside(vf x) {
#if defined(__AVX512F__)
    vf k = vround(x * 1.44269504f);
    vf r = vfma(k, set1(2.12194440e-4f), vfma(k, set1(-0.693359375f), x));
    return (vf)_mm512_scalef_ps((__m512)(vexpm1_small(r) + 1.0f), (__m512)k);
#else
    vi n;
    vf r = vreduce(x, &n);
    return vscale(vexpm1_small(r) + 1.0f, n);
#endif
}

INL vf vexp(vf x) { return vexp_inside(vclamp(x, set1(-104.0f), set1(89.0f))); }

// e^-|x|
INL vf vdecay(vf x) { return vexp_inside(vmax_second(set1(-104.0f), (vf)((vi)x | INT32_MIN))); }

// e^x for x <= 0 or NaN, as softmax needs it: what is below the normal numbers is 0
INL vf vexp_negative(vf x) {
    vi n, lost = x < -87.33654f;
    vf r = vreduce(vmax_second(set1(-87.33654f), x), &n);
    vf e = (vf)((vu)(vexpm1_small(r) + 1.0f) + ((vu)n << 23));
    return vselect(x != x, x, (vf)((vi)e & ~lost)); // a NaN may have left anything in n
}

INL vf vexpm1(vf x) {
    vi n;
    vf r = vreduce(vclamp(x, set1(-20.0f), set1(89.0f)), &n);
    vf half = (vf)(((vu)n + 126) << 23); // 2^(n - 1): 2^n may overflow where the result does not
    vf e = vfma(vexpm1_small(r), half, half - 0.5f);
    return vselect(vabs(x) < 0x1p-25f, x, e + e); // keeps denormals, and the sign of zero
}

// The natural logarithm of u, plus `rest`, which is small against it
INL vf vlog_plus(vf u, vf rest) {
    vi tiny = u < 1.17549435e-38f;
    vf m = vselect(tiny, u * 8388608.0f, u);
    vi shifted = (vi)((vu)m - 0x3f3504f3u); // the exponent counts from sqrt(1/2) on
    vf n = vto_float((shifted >> 23) - (tiny & 23));
    vf f = (vf)((shifted & 0x7fffff) + 0x3f3504f3) - 1.0f;
    vf q = vfma(f, set1(6.9716118e-2f), set1(-1.14797339e-1f));
    q = vfma(q, f, set1(1.16854198e-1f));
    q = vfma(q, f, set1(-1.24256872e-1f));
    q = vfma(q, f, set1(1.42490581e-1f));
    q = vfma(q, f, set1(-1.66678026e-1f));
    q = vfma(q, f, set1(2.00007156e-1f));
    q = vfma(q, f, set1(-2.49999970e-1f));
    q = vfma(q, f, set1(3.33333313e-1f));
    vf square = f * f;
    vf y = vfma(q * f, square, vfma(n, set1(-2.12194440e-4f), rest));
    y = vfma(square, set1(-0.5f), y) + f;
    y = vfma(n, set1(0.693359375f), y);
    vf edge = vselect(u == 0.0f, set1(-__builtin_inff()), u);          // 0, infinity, NaN
    edge = vselect(u < 0.0f, set1(__builtin_nanf("")), edge);
    vi usual = (vi)((vu)u - 1 < 0x7f7fffffu); // positive and finite
    return vselect(usual, y, edge);
}

INL vf vlog(vf x) { return vlog_plus(x, set1(0.0f)); }

INL vf vlog1p(vf x) {
    vf u = x + 1.0f;
    vf lost = x - (u - 1.0f); // what the sum rounded away
    vf y = vlog_plus(u, vselect(vabs(x) < 1e8f, lost / u, set1(0.0f)));
    return vselect((vi)x << 1 == 0, x, vselect(u == 1.0f, x, y));
}

INL vf vtanh(vf x) {
    vi n;
    vf a = vmin_second(set1(9.02f), vabs(x)); // beyond, the result is 1
    vf p = vexpm1_small(vreduce(a + a, &n));
    vf s = vpower(n);
    vf e = vfma(p, s, s - 1.0f); // e^2x - 1
    return vcopysign(e / (e + 2.0f), x);
}

// By two polynomials and an exponential, to about an ulp.
INL vf verf(vf x) {
    vf a = vmin_second(set1(3.92f), vabs(x)), q = x * x; // beyond, the result is 1
    vf s = vfma(q, set1(-6.0125563e-4f), set1(4.9976422e-3f));
    s = vfma(s, q, set1(-2.6769830e-2f));
    s = vfma(s, q, set1(1.1281911e-1f));
    s = vfma(s, q, set1(-3.7612504e-1f));
    s = vfma(s, q, set1(1.2837915e-1f));
    vf t = vfma(a, set1(-1.6790633e-5f), set1(3.7622420e-4f));
    t = vfma(t, a, set1(-3.8468763e-3f));
    t = vfma(t, a, set1(2.4159209e-2f));
    t = vfma(t, a, set1(-1.0664854e-1f));
    t = vfma(t, a, set1(-6.3493615e-1f));
    t = vfma(t, a, set1(-1.1286926f));
    vi n;
    vf p = vexpm1_small(vreduce(t * a, &n)) + 1.0f;
    vf large = vcopysign(1.0f - p * vpower(n), x);
    return vselect(vabs(x) < 0.92f, vfma(s, x, x), large);
}

// One rational function without an exponential: 6 ulps at most, for use where 1 + erf(x) follows.
INL vf verf_rational(vf x) {
    x = vclamp(x, set1(-3.9f), set1(3.9f));
    vf q = x * x;
    vf a = vfma(q, set1(2.08734026e-8f), set1(-1.98274279e-6f));
    a = vfma(a, q, set1(1.37045092e-4f));
    a = vfma(a, q, set1(3.42887104e-3f));
    a = vfma(a, q, set1(4.96749468e-2f));
    a = vfma(a, q, set1(1.93037510e-1f));
    a = vfma(a, q, set1(1.12837911f));
    vf b = vfma(q, set1(8.95557750e-4f), set1(1.37810744e-2f));
    b = vfma(b, q, set1(1.12166151e-1f));
    b = vfma(b, q, set1(5.04407048e-1f));
    b = vfma(b, q, set1(1.0f));
    return vclamp(x * (a / b), set1(-1.0f), set1(1.0f));
}

// 1 / (1 + e^-x) = d / (1 + d) with d = e^-|x|, or 1 / (1 + d)
INL vf vsigmoid(vf x) {
    vf d = vdecay(x);
    return vselect(x < 0.0f, d, set1(1.0f)) / (d + 1.0f);
}

INL vf vsilu(vf x) { return x * vsigmoid(x); }

INL vf vgelu(vf x) {
    vf half = x * 0.5f;
    return vfma(half, verf_rational(x * 0.70710678f), half);
}

// x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), as x * sigmoid
INL vf vgelu_tanh(vf x) {
    vf u = vfma(x * x, set1(0.0713548163f), set1(1.59576912f));
    return x * vsigmoid(x * u);
}

INL vf vhardswish(vf x) {
    return x * vclamp(x * (1.0f / 6.0f) + 0.5f, set1(0.0f), set1(1.0f));
}

INL vf vsoftplus(vf x) { return vrelu(x) + vlog1p(vdecay(x)); }

// x * tanh(ln(1 + e^x)) = x * w / (w + 2) with w = e^x * (e^x + 2)
INL vf vmish(vf x) {
    vf e = vexp(vmin_second(set1(20.0f), x));
    vf w = e * (e + 2.0f);
    return x * (w / (w + 2.0f));
}
