// The interpreter of scalar programs: works on tiles that stay in the cache, one instruction at a time.
//
// The elements of a step are cut into work units in row-major order, units into tiles. What lies in
// memory as an instruction wants it is read and written in place; other types, strides and repeated
// operands go through a buffer. What repeats from tile to tile is put there once.
#include "kn_scalar.h"

#include "scalar_ops.h"
#include "small.h"

#include <string.h>

#define VM_ROW(name) vm_##name,
static const vm_op ops[] = {VM_OPS(VM_ROW)};
#undef VM_ROW

// For the test that compares it with the table in Python.
#define VM_NAME(name) #name " "
const char *const kn_scalar_names = VM_OPS(VM_NAME);
#undef VM_NAME

// ---- elements in memory and in registers ----------------------------------------------------

#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

// the same functions move floats, and integers of their size
#define ANY __attribute__((may_alias))
typedef int8_t int8_t_any ANY;
typedef uint8_t uint8_t_any ANY;
typedef int16_t int16_t_any ANY;
typedef uint16_t uint16_t_any ANY;
typedef int32_t int32_t_any ANY;
typedef uint32_t uint32_t_any ANY;
typedef int64_t int64_t_any ANY;
typedef float float_any ANY;

#define IDENTITY(x) (x)
// integers of fewer bits than a byte: what its other bits are does not matter
#define FROM_I4(x) ((int8_t)((x) << 4) >> 4)
#define FROM_I2(x) ((int8_t)((x) << 6) >> 6)
#define LOW_4(x) ((x) & 15)
#define LOW_2(x) ((x) & 3)
#define MEMORY(name, memory, reg, in, out)                                                         \
    static void load_##name(void *d, const char *from, int64_t stride, int64_t n) {                \
        const memory##_any *x = (const void *)from;                                                \
        reg##_any *y = d;                                                                              \
        if (stride == 1) {                                                                         \
            INDEPENDENT for (int64_t i = 0; i < n; i++) y[i] = in(x[i]);                           \
        } else if (stride == 0) {                                                                  \
            reg one = in(x[0]);                                                                    \
            INDEPENDENT for (int64_t i = 0; i < n; i++) y[i] = one;                                \
        } else {                                                                                   \
            for (int64_t i = 0; i < n; i++) y[i] = in(x[i * stride]);                              \
        }                                                                                          \
    }                                                                                              \
    static void store_##name(char *to, int64_t stride, const void *s, int64_t n) {                 \
        memory##_any *y = (void *)to;                                                              \
        const reg##_any *x = s;                                                                    \
        if (stride == 1) {                                                                         \
            INDEPENDENT for (int64_t i = 0; i < n; i++) y[i] = (memory)out(x[i]);                  \
        } else {                                                                                   \
            for (int64_t i = 0; i < n; i++) y[i * stride] = (memory)out(x[i]);                     \
        }                                                                                          \
    }
MEMORY(4, int32_t, int32_t, IDENTITY, IDENTITY)
MEMORY(8, int64_t, int64_t, IDENTITY, IDENTITY)
MEMORY(f16, uint16_t, float, half_to_float, float_to_half)
MEMORY(bf16, uint16_t, float, bfloat_to_float, float_to_bfloat)
MEMORY(i8, int8_t, int32_t, IDENTITY, IDENTITY)
MEMORY(u8, uint8_t, int32_t, IDENTITY, IDENTITY)
MEMORY(i16, int16_t, int32_t, IDENTITY, IDENTITY)
MEMORY(u16, uint16_t, int32_t, IDENTITY, IDENTITY)
MEMORY(u32, uint32_t, int64_t, IDENTITY, IDENTITY)
MEMORY(i4, uint8_t, int32_t, FROM_I4, LOW_4)
MEMORY(u4, uint8_t, int32_t, LOW_4, LOW_4)
MEMORY(i2, uint8_t, int32_t, FROM_I2, LOW_2)
MEMORY(u2, uint8_t, int32_t, LOW_2, LOW_2)
MEMORY(e4m3fn, uint8_t, float, e4m3fn_to_float, float_to_e4m3fn)
MEMORY(e4m3fnuz, uint8_t, float, e4m3fnuz_to_float, float_to_e4m3fnuz)
MEMORY(e5m2, uint8_t, float, e5m2_to_float, float_to_e5m2)
MEMORY(e5m2fnuz, uint8_t, float, e5m2fnuz_to_float, float_to_e5m2fnuz)

static void load_half(void *d, const char *from, int64_t stride, int64_t n) {
    if (stride == 1)
        halves_to_floats(d, (const void *)from, n);
    else
        load_f16(d, from, stride, n);
}

static void store_half(char *to, int64_t stride, const void *s, int64_t n) {
    if (stride == 1)
        floats_to_halves((void *)to, s, n);
    else
        store_f16(to, stride, s, n);
}

typedef struct {
    void (*load)(void *d, const char *from, int64_t stride, int64_t n);
    void (*store)(char *to, int64_t stride, const void *s, int64_t n);
    int bytes, width; // of an element in memory, in a register
    int same;         // whether registers hold what memory does
} type_row;

static const type_row types[] = {
    [KN_SCALAR_F32] = {load_4, store_4, 4, 4, 1},      [KN_SCALAR_I32] = {load_4, store_4, 4, 4, 1},
    [KN_SCALAR_F64] = {load_8, store_8, 8, 8, 1},      [KN_SCALAR_I64] = {load_8, store_8, 8, 8, 1},
    [KN_SCALAR_F16] = {load_half, store_half, 2, 4, 0}, [KN_SCALAR_BF16] = {load_bf16, store_bf16, 2, 4, 0},
    [KN_SCALAR_I8] = {load_i8, store_i8, 1, 4, 0},     [KN_SCALAR_U8] = {load_u8, store_u8, 1, 4, 0},
    [KN_SCALAR_I16] = {load_i16, store_i16, 2, 4, 0},  [KN_SCALAR_U16] = {load_u16, store_u16, 2, 4, 0},
    [KN_SCALAR_U32] = {load_u32, store_u32, 4, 8, 0},  [KN_SCALAR_I4] = {load_i4, store_i4, 1, 4, 0},
    [KN_SCALAR_U4] = {load_u4, store_u4, 1, 4, 0},     [KN_SCALAR_I2] = {load_i2, store_i2, 1, 4, 0},
    [KN_SCALAR_U2] = {load_u2, store_u2, 1, 4, 0},
    [KN_SCALAR_E4M3FN] = {load_e4m3fn, store_e4m3fn, 1, 4, 0},
    [KN_SCALAR_E4M3FNUZ] = {load_e4m3fnuz, store_e4m3fnuz, 1, 4, 0},
    [KN_SCALAR_E5M2] = {load_e5m2, store_e5m2, 1, 4, 0},
    [KN_SCALAR_E5M2FNUZ] = {load_e5m2fnuz, store_e5m2fnuz, 1, 4, 0},
};

// ---- a program at work ----------------------------------------------------------------------

typedef struct {
    type_row type;
    char *plane;         // element (0, 0) of the plane at hand
    int64_t row, column; // strides
    char *buffer;
    const char *held; // where the repeated row comes from that lies in the buffer
    int64_t held_count, held_columns;
} operand;

typedef struct {
    int outputs, operands; // outputs come first
    int64_t instructions;
    const int64_t *code;
    operand operand[KN_SCALAR_OPERANDS];
    void *reg[KN_SCALAR_REGISTERS];
} machine;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Sets up all but where operands lie; returns what follows the code. `count` is the most elements that
// a tile will have: constants are spread over as many.
static const int64_t *machine_start(machine *m, const int64_t *n, char *scratch, int64_t count) {
    m->outputs = (int)n[KN_SCALAR_OUTPUTS];
    m->operands = m->outputs + (int)n[KN_SCALAR_INPUTS];
    m->instructions = n[KN_SCALAR_CODE];
    int64_t step = KN_SCALAR_TILE * (n[KN_SCALAR_WIDE] ? 8 : 4) + 64; // 64: not all in one set of the cache
    int64_t constants = n[KN_SCALAR_CONSTANTS], temporaries = n[KN_SCALAR_TEMPORARIES];
    const int64_t *at = n + KN_SCALAR_HEAD;
    int r = 0;
    for (; r < m->operands; r++, scratch += step) {
        m->operand[r].type = types[*at++];
        m->operand[r].buffer = scratch;
        m->operand[r].held = NULL;
    }
    for (int64_t i = 0; i < constants; i++, r++, scratch += step, at += 2) {
        m->reg[r] = scratch;
        const type_row *type = &types[at[0]];
        (type->width == 8 ? load_8 : load_4)(scratch, (const char *)&at[1], 0, count);
    }
    for (int64_t i = 0; i < temporaries; i++, r++, scratch += step) m->reg[r] = scratch;
    m->code = at;
    return at + m->instructions * KN_SCALAR_WORDS;
}

static void execute(const machine *m, int64_t n) {
    const int64_t *word = m->code;
    for (int64_t i = 0; i < m->instructions; i++, word += KN_SCALAR_WORDS) {
        uint64_t w = (uint64_t)word[0];
        float k[4];
        memcpy(k, word + 1, sizeof k);
        ops[w & 0xffff](m->reg[w >> 16 & 255], m->reg[w >> 24 & 255], m->reg[w >> 32 & 255],
                        m->reg[w >> 40 & 255], k, n);
    }
}

// Whether a tile of an operand lies in memory as a register does.
static inline int lies_right(const operand *o, int64_t rows, int64_t columns) {
    return (o->column == 1 || columns == 1) && (rows == 1 || o->row == columns);
}

static void read_tile(operand *o, const char *from, int64_t rows, int64_t columns) {
    const type_row *t = &o->type;
    int repeats = rows == 1 || o->row == 0;
    if (repeats && o->held == from && o->held_columns == columns && o->held_count >= rows * columns) return;
    o->held = repeats ? from : NULL;
    o->held_columns = columns;
    o->held_count = rows * columns;
    if (lies_right(o, rows, columns)) {
        t->load(o->buffer, from, 1, rows * columns);
    } else if (repeats && o->column == 0) {
        t->load(o->buffer, from, 0, rows * columns);
    } else if (repeats) {
        t->load(o->buffer, from, o->column, columns);
        int64_t bytes = columns * t->width;
        for (int64_t r = 1; r < rows; r++) memcpy(o->buffer + r * bytes, o->buffer, (size_t)bytes);
    } else {
        for (int64_t r = 0; r < rows; r++)
            t->load(o->buffer + r * columns * t->width, from + r * o->row * t->bytes, o->column, columns);
    }
}

static void write_tile(const operand *o, char *to, int64_t rows, int64_t columns) {
    const type_row *t = &o->type;
    if (lies_right(o, rows, columns)) {
        t->store(to, 1, o->buffer, rows * columns);
        return;
    }
    for (int64_t r = 0; r < rows; r++)
        t->store(to + r * o->row * t->bytes, o->column, o->buffer + r * columns * t->width, columns);
}

static void do_tile(machine *m, int64_t row, int64_t column, int64_t rows, int64_t columns) {
    char *place[KN_SCALAR_OPERANDS];
    for (int i = 0; i < m->operands; i++) {
        operand *o = &m->operand[i];
        place[i] = o->plane + (row * o->row + column * o->column) * o->type.bytes;
        int direct = o->type.same && lies_right(o, rows, columns);
        m->reg[i] = direct ? place[i] : o->buffer;
        if (!direct && i >= m->outputs) read_tile(o, place[i], rows, columns);
    }
    execute(m, rows * columns);
    for (int i = 0; i < m->outputs; i++)
        if (m->reg[i] == m->operand[i].buffer) write_tile(&m->operand[i], place[i], rows, columns);
}

// Whether tiles of one row are better: all operands are then found in place, where several rows would
// go through buffers. That pays while there are few instructions to begin anew for each row.
static int row_by_row(const machine *m, int64_t columns) {
    int apart = 0, same = 1;
    for (int i = 0; i < m->operands; i++) {
        const operand *o = &m->operand[i];
        same &= o->type.same && (o->column == 1 || o->row == 0);
        apart |= o->row != 0 && o->row != columns;
    }
    return same && apart && columns >= 32 * m->instructions;
}

// Does the elements [begin, end) of a plane that has rows of `columns` elements.
static void do_plane(machine *m, int64_t columns, int64_t begin, int64_t end) {
    const int narrow = columns * 2 <= KN_SCALAR_TILE && !row_by_row(m, columns);
    while (begin < end) {
        int64_t row = begin / columns, column = begin % columns, rows = 1, wide;
        if (narrow && column == 0 && end - begin >= columns) {
            rows = least(KN_SCALAR_TILE / columns, (end - begin) / columns);
            wide = columns;
        } else {
            wide = least(least(columns - column, end - begin), KN_SCALAR_TILE);
        }
        do_tile(m, row, column, rows, wide);
        begin += rows * wide;
    }
}

// ---- the kernel -----------------------------------------------------------------------------

typedef struct {
    int rank;
    int64_t size[KN_SCALAR_AXES];
    int64_t stride[KN_SCALAR_OPERANDS][KN_SCALAR_AXES];
} axes;

static int64_t size_of(int64_t x) { return x < 0 ? -x : x; }

// Where an axis goes so that those with large strides of the first output are outermost: its elements
// are then walked as they lie in memory.
static int place_of_axis(const axes *a, int64_t stride) {
    int to = a->rank;
    while (to > 0 && size_of(a->stride[0][to - 1]) < size_of(stride)) to--;
    return to;
}

static void read_axes(axes *a, const int64_t *n, int rank, int operands) {
    a->rank = 0;
    for (int axis = 0; axis < rank; axis++) {
        if (n[axis] == 1) continue;
        const int64_t *strides = n + rank + axis;
        int to = place_of_axis(a, strides[0]);
        for (int i = a->rank++; i > to; i--) {
            a->size[i] = a->size[i - 1];
            for (int o = 0; o < operands; o++) a->stride[o][i] = a->stride[o][i - 1];
        }
        a->size[to] = n[axis];
        for (int o = 0; o < operands; o++) a->stride[o][to] = strides[o * rank];
    }
    int kept = 0; // then neighbours that lie behind one another become one
    for (int i = 0; i < a->rank; i++) {
        int merges = kept > 0;
        for (int o = 0; merges && o < operands; o++)
            merges = a->stride[o][kept - 1] == a->stride[o][i] * a->size[i];
        int to = merges ? kept - 1 : kept++;
        a->size[to] = merges ? a->size[to] * a->size[i] : a->size[i];
        for (int o = 0; o < operands; o++) a->stride[o][to] = a->stride[o][i];
    }
    a->rank = kept;
}

static void scalar(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    machine m;
    axes a;
    int rank = (int)n[KN_SCALAR_RANK];
    const int64_t *sizes = n + KN_SCALAR_HEAD + n[KN_SCALAR_OUTPUTS] + n[KN_SCALAR_INPUTS] +
                           2 * n[KN_SCALAR_CONSTANTS] + KN_SCALAR_WORDS * n[KN_SCALAR_CODE];
    int64_t total = 1;
    for (int i = 0; i < rank; i++) total *= sizes[i];
    int64_t at = begin * KN_SCALAR_UNIT, stop = least(end * KN_SCALAR_UNIT, total);
    if (at >= stop) return;
    machine_start(&m, n, scratch, least(stop - at, KN_SCALAR_TILE));
    read_axes(&a, sizes, rank, m.operands);
    int last = a.rank - 1;
    int64_t columns = last >= 0 ? a.size[last] : 1, plane = columns * (last >= 1 ? a.size[last - 1] : 1);
    for (int i = 0; i < m.operands; i++) {
        m.operand[i].column = last >= 0 ? a.stride[i][last] : 0;
        m.operand[i].row = last >= 1 ? a.stride[i][last - 1] : 0;
    }
    while (at < stop) {
        int64_t number = at / plane, from = at % plane, to = least(plane, from + stop - at);
        int64_t offset[KN_SCALAR_OPERANDS] = {0};
        for (int axis = last - 2; axis >= 0; number /= a.size[axis--])
            for (int i = 0; i < m.operands; i++) offset[i] += number % a.size[axis] * a.stride[i][axis];
        for (int i = 0; i < m.operands; i++) m.operand[i].plane = p[i] + offset[i] * m.operand[i].type.bytes;
        do_plane(&m, columns, from, to);
        at += to - from;
    }
}

void kn_scalar_block(const int64_t *n, char *const *p, char *scratch, const float *block, int64_t ld,
                     int64_t row, int64_t col, int64_t rows, int64_t cols) {
    machine m;
    const int64_t *strides = machine_start(&m, n, scratch, least(rows * cols, KN_SCALAR_TILE)) + 2;
    for (int i = 0; i < m.operands; i++, strides += 2) {
        operand *o = &m.operand[i];
        o->row = strides[0];
        o->column = strides[1];
        o->plane = p[i] + (row * o->row + col * o->column) * o->type.bytes;
    }
    operand *first = &m.operand[m.outputs];
    first->row = ld;
    first->column = 1;
    first->plane = (char *)(uintptr_t)block;
    do_plane(&m, cols, 0, rows * cols);
}

const kn_entry kn_scalar_entries[] = {{"scalar", scalar}, {NULL, NULL}};
