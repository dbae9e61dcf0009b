// cuBLAS: what we ask of it, in the order of the stream. See machine.h.
//
// Leading dimensions are held against the rules of the manual, since a wrong one gives results all
// the same. Sums are taken in double precision: how cuBLAS rounds is not modelled.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

extern "C" int kn_standin_add(
    void* stream, void (*work)(const void*), const void* data, size_t bytes);
extern "C" int kn_standin_holds(const void* address, size_t bytes);
extern "C" void kn_standin_fail(const char* text);

enum Status {
    FINE = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15
};
enum Type { FLOAT32 = 0, FLOAT64 = 1, FLOAT16 = 2, BFLOAT16 = 14 };
enum { EXACT_REDUCTION = 16 };
enum Compute { COMPUTE_32 = 68, COMPUTE_64 = 70, FAST_16F = 74, FAST_16BF = 75, FAST_TF32 = 77 };

struct Handle { void* stream; size_t workspace; };

struct Matrix {
    char* first;
    int type;
    bool turned;
    int rows, columns;  // as they are used
    long long line, step;

    long long place(int i, int row, int column) const {
        return i * step + (turned ? row * line + column : row + column * line);
    }
};

struct Product { Matrix a, b, c; int m, n, k, batches; double alpha, beta; };

static double narrow(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double read(const Matrix& x, long long place) {
    switch (x.type) {
        case FLOAT32: return reinterpret_cast<float*>(x.first)[place];
        case FLOAT64: return reinterpret_cast<double*>(x.first)[place];
        case FLOAT16: return reinterpret_cast<_Float16*>(x.first)[place];
        default: return narrow(uint32_t(reinterpret_cast<uint16_t*>(x.first)[place]) << 16);
    }
}

static uint16_t rounded(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x != x) return 0x7fff;
    return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void write(const Matrix& x, long long place, double value) {
    switch (x.type) {
        case FLOAT32: reinterpret_cast<float*>(x.first)[place] = float(value); return;
        case FLOAT64: reinterpret_cast<double*>(x.first)[place] = value; return;
        case FLOAT16: reinterpret_cast<_Float16*>(x.first)[place] = _Float16(float(value)); return;
        default: reinterpret_cast<uint16_t*>(x.first)[place] = rounded(float(value));
    }
}

static int bytes_of(int type) { return type == FLOAT64 ? 8 : type == FLOAT32 ? 4 : 2; }

// Whether all elements lie in one piece of device memory.
static bool is_there(const Matrix& x, int batches) {
    if (!x.rows || !x.columns) return true;
    const long long last = x.place(batches - 1, x.rows - 1, x.columns - 1);
    return kn_standin_holds(x.first, (last + 1) * bytes_of(x.type));
}

// Returns a matrix of a batch, row after row.
static std::vector<double> dense(const Matrix& x, int batch) {
    std::vector<double> found;
    found.reserve(size_t(x.rows) * x.columns);
    for (int row = 0; row < x.rows; row++)
        for (int column = 0; column < x.columns; column++)
            found.push_back(read(x, x.place(batch, row, column)));
    return found;
}

static void multiply(const void* data) {
    const Product& p = *static_cast<const Product*>(data);
    if (!is_there(p.a, p.batches) || !is_there(p.b, p.batches) || !is_there(p.c, p.batches))
        return kn_standin_fail("a matrix is no memory of the device");
    std::vector<double> sums(p.n);
    for (int i = 0; i < p.batches; i++) {
        const std::vector<double> a = dense(p.a, i), b = dense(p.b, i);
        for (int row = 0; row < p.m; row++) {
            std::fill(sums.begin(), sums.end(), 0.0);
            for (int k = 0; k < p.k; k++)
                for (int column = 0; column < p.n; column++)
                    sums[column] += a[size_t(row) * p.k + k] * b[size_t(k) * p.n + column];
            for (int column = 0; column < p.n; column++) {
                const long long place = p.c.place(i, row, column);
                const double before = p.beta ? p.beta * read(p.c, place) : 0;
                write(p.c, place, p.alpha * sums[column] + before);
            }
        }
    }
}

extern "C" int cublasCreate_v2(Handle** made) { return *made = new Handle{nullptr, 0}, FINE; }
extern "C" int cublasDestroy_v2(Handle* handle) { return delete handle, FINE; }
extern "C" int cublasSetStream_v2(Handle* handle, void* stream) {
    return handle->stream = stream, handle->workspace = 0, FINE;
}
extern "C" int cublasSetMathMode(Handle*, int mode) {
    return mode == EXACT_REDUCTION ? FINE : INVALID_VALUE;
}
extern "C" int cublasSetWorkspace_v2(Handle* handle, void* workspace, size_t bytes) {
    if (reinterpret_cast<uintptr_t>(workspace) % 256 || !kn_standin_holds(workspace, bytes))
        return INVALID_VALUE;
    return handle->workspace = bytes, FINE;
}

extern "C" int cublasGemmStridedBatchedEx(
    Handle* handle, int a_turned, int b_turned, int m, int n, int k, const void* alpha,
    const void* a, int a_type, int a_line, long long a_step, const void* b, int b_type, int b_line,
    long long b_step, const void* beta, void* c, int c_type, int c_line, long long c_step,
    int batches, int compute, int
) {
    if (!handle || !handle->workspace) return NOT_INITIALIZED;
    const bool is_wide = a_type == FLOAT64, is_narrow = a_type == FLOAT16 || a_type == BFLOAT16;
    if (m < 0 || n < 0 || k < 0 || batches < 0 || a_line < std::max(1, a_turned ? k : m) ||
        b_line < std::max(1, b_turned ? n : k) || c_line < std::max(1, m))
        return INVALID_VALUE;
    const bool is_fast = compute == FAST_16F || compute == FAST_16BF || compute == FAST_TF32;
    if (a_type != b_type || (is_wide ? compute != COMPUTE_64 : compute != COMPUTE_32 && !is_fast) ||
        (is_fast && a_type != FLOAT32) || (c_type != a_type && !(is_narrow && c_type == FLOAT32)))
        return NOT_SUPPORTED;
    const auto scalar = [&](const void* x) {
        return is_wide ? *static_cast<const double*>(x) : *static_cast<const float*>(x);
    };
    const auto first = [](const void* x) { return static_cast<char*>(const_cast<void*>(x)); };
    const Product product{
        {first(a), a_type, a_turned != 0, m, k, a_line, a_step},
        {first(b), b_type, b_turned != 0, k, n, b_line, b_step},
        {first(c), c_type, false, m, n, c_line, c_step},
        m, n, k, batches, scalar(alpha), scalar(beta)};
    if (!m || !n || !batches) return FINE;
    const int error = kn_standin_add(handle->stream, multiply, &product, sizeof product);
    return error ? EXECUTION_FAILED : FINE;
}
