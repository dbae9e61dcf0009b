// One call of a graph whose sizes are bound and whose steps are all native: checks the arrays that
// are given, allocates the results, fills in the pointers and runs. For a small graph the same in
// Python takes ten times as long as the graph itself.
//
// Built against the stable ABI: one binary for every CPython from 3.11 on.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

typedef int (*run_function)(const void *steps, int64_t count, const int64_t *numbers, char *const *pointers,
                            int threads);

// An array that is given or made.
typedef struct {
    PyObject *name;   // of a result
    PyObject *shape;  // of a result
    PyObject *dtype;  // of a result
    char format[8];   // of what is given: as the buffer protocol has it
    int rank;
    Py_ssize_t *sizes;
    Py_ssize_t count; // of pointers to it
    int64_t *places;
    int64_t *offsets; // in bytes
} operand;

typedef struct {
    PyObject_HEAD
    run_function run;
    const void *steps;
    int64_t count;
    const int64_t *numbers;
    char **pointers;
    int threads, busy;
    int64_t block; // address that the pointers into it are made for
    Py_ssize_t arena_count;
    int64_t *arena;
    Py_ssize_t inputs, outputs;
    operand *operands; // inputs, then outputs
    Py_buffer *views;  // one for each
    PyObject *array_type, *empty, *kept;
} call;

static void free_operand(operand *o) {
    Py_XDECREF(o->name);
    Py_XDECREF(o->shape);
    Py_XDECREF(o->dtype);
    PyMem_Free(o->sizes);
    PyMem_Free(o->places);
    PyMem_Free(o->offsets);
}

static void call_free(PyObject *object) {
    call *self = (call *)object;
    PyTypeObject *type = Py_TYPE(object);
    for (Py_ssize_t i = 0; self->operands && i < self->inputs + self->outputs; i++)
        free_operand(&self->operands[i]);
    PyMem_Free(self->operands);
    PyMem_Free(self->views);
    PyMem_Free(self->arena);
    Py_XDECREF(self->array_type);
    Py_XDECREF(self->empty);
    Py_XDECREF(self->kept);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

// Returns the numbers of a tuple, or NULL with an exception.
static int64_t *integers(PyObject *tuple, Py_ssize_t *count) {
    *count = PyTuple_Size(tuple);
    if (*count < 0) return NULL;
    int64_t *made = PyMem_Malloc((size_t)(*count + 1) * sizeof *made);
    if (!made) PyErr_NoMemory();
    for (Py_ssize_t i = 0; made && i < *count; i++) {
        made[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
        if (made[i] == -1 && PyErr_Occurred()) {
            PyMem_Free(made);
            return NULL;
        }
    }
    return made;
}

// Reads (name, format, shape, dtype, places).
static int read_operand(operand *o, PyObject *tuple, char *const *pointers) {
    const char *format;
    PyObject *name, *shape, *dtype, *places;
    if (!PyArg_ParseTuple(tuple, "OsOOO", &name, &format, &shape, &dtype, &places)) return -1;
    o->name = Py_NewRef(name);
    o->shape = Py_NewRef(shape);
    o->dtype = Py_NewRef(dtype);
    strncpy(o->format, format, sizeof o->format - 1);
    Py_ssize_t rank;
    int64_t *sizes = integers(shape, &rank);
    if (!sizes) return -1;
    o->rank = (int)rank;
    o->sizes = PyMem_Malloc((size_t)(rank + 1) * sizeof *o->sizes);
    for (Py_ssize_t i = 0; o->sizes && i < rank; i++) o->sizes[i] = (Py_ssize_t)sizes[i];
    PyMem_Free(sizes);
    o->places = integers(places, &o->count);
    if (!o->places) return -1;
    o->offsets = PyMem_Malloc((size_t)(o->count + 1) * sizeof *o->offsets);
    if (!o->sizes || !o->offsets) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < o->count; i++) o->offsets[i] = (int64_t)(intptr_t)pointers[o->places[i]];
    return 0;
}

static PyObject *call_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    static char *names[] = {"run",  "steps",   "count",   "numbers", "pointers", "threads",
                            "arena", "inputs", "outputs", "array_type", "empty", "kept", NULL};
    unsigned long long run, steps, numbers, pointers;
    long long count;
    int threads;
    PyObject *arena, *inputs, *outputs, *array_type, *empty, *kept;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "KKLKKiO!O!O!OOO", names, &run, &steps, &count, &numbers,
                                     &pointers, &threads, &PyTuple_Type, &arena, &PyTuple_Type, &inputs,
                                     &PyTuple_Type, &outputs, &array_type, &empty, &kept))
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    call *self = (call *)allocate(type, 0);
    if (!self) return NULL;
    self->run = (run_function)(uintptr_t)run;
    self->steps = (const void *)(uintptr_t)steps;
    self->count = count;
    self->numbers = (const int64_t *)(uintptr_t)numbers;
    self->pointers = (char **)(uintptr_t)pointers;
    self->threads = threads;
    self->array_type = Py_NewRef(array_type);
    self->empty = Py_NewRef(empty);
    self->kept = Py_NewRef(kept);
    Py_ssize_t total = PyTuple_Size(inputs) + PyTuple_Size(outputs);
    self->operands = PyMem_Calloc((size_t)total + 1, sizeof *self->operands);
    self->views = PyMem_Calloc((size_t)total + 1, sizeof *self->views);
    self->arena = integers(arena, &self->arena_count);
    if (!self->operands || !self->views || !self->arena) {
        if (!PyErr_Occurred()) PyErr_NoMemory();
        Py_DECREF(self);
        return NULL;
    }
    self->inputs = PyTuple_Size(inputs);
    self->outputs = PyTuple_Size(outputs);
    for (Py_ssize_t i = 0; i < total; i++) {
        PyObject *from = i < self->inputs ? inputs : outputs;
        PyObject *tuple = PyTuple_GetItem(from, i < self->inputs ? i : i - self->inputs);
        if (read_operand(&self->operands[i], tuple, self->pointers)) {
            Py_DECREF(self);
            return NULL;
        }
    }
    return (PyObject *)self;
}

// Whether an array is what the call is bound for; then its view is to be released.
static int fits(const call *self, const operand *o, PyObject *x, Py_buffer *view) {
    if ((PyObject *)Py_TYPE(x) != self->array_type) return 0;
    if (PyObject_GetBuffer(x, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)) {
        PyErr_Clear();
        return 0;
    }
    int same = view->ndim == o->rank && strcmp(view->format, o->format) == 0 &&
               (uintptr_t)view->buf % (uintptr_t)view->itemsize == 0;
    for (int i = 0; same && i < o->rank; i++) same = view->shape[i] == o->sizes[i];
    if (!same) PyBuffer_Release(view);
    return same;
}

static void point(const call *self, const operand *o, const void *memory) {
    for (Py_ssize_t i = 0; i < o->count; i++) self->pointers[o->places[i]] = (char *)memory + o->offsets[i];
}

// Makes the results; returns a dictionary, or NULL with an exception.
static PyObject *make_results(call *self, Py_ssize_t *held) {
    PyObject *results = PyDict_New();
    for (Py_ssize_t i = 0; results && i < self->outputs; i++) {
        operand *o = &self->operands[self->inputs + i];
        Py_buffer *view = &self->views[*held];
        PyObject *made = PyObject_CallFunctionObjArgs(self->empty, o->shape, o->dtype, NULL);
        if (!made || PyDict_SetItem(results, o->name, made) || PyObject_GetBuffer(made, view, PyBUF_WRITABLE)) {
            Py_XDECREF(made);
            Py_CLEAR(results);
            break;
        }
        Py_DECREF(made); // the dictionary has it
        (*held)++;
        point(self, o, view->buf);
    }
    return results;
}

static PyObject *run_on(call *self, PyObject *arrays, int64_t block) {
    Py_ssize_t held = 0;
    PyObject *results = NULL;
    for (; held < self->inputs; held++) {
        PyObject *x = PyList_GetItem(arrays, held);
        if (!x) goto end;
        if (!fits(self, &self->operands[held], x, &self->views[held])) {
            results = Py_NewRef(Py_None);
            goto end;
        }
        point(self, &self->operands[held], self->views[held].buf);
    }
    results = make_results(self, &held);
    if (!results) goto end;
    for (Py_ssize_t i = 0; block != self->block && i < self->arena_count; i++)
        self->pointers[self->arena[i]] += block - self->block;
    self->block = block;
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = self->run(self->steps, self->count, self->numbers, self->pointers, self->threads);
    Py_END_ALLOW_THREADS
    if (failed) {
        Py_CLEAR(results);
        PyErr_NoMemory();
    }
end:
    for (Py_ssize_t i = 0; i < held; i++) PyBuffer_Release(&self->views[i]);
    return results;
}

static PyObject *call_run(PyObject *object, PyObject *const *arguments, Py_ssize_t count) {
    call *self = (call *)object;
    if (count != 2 || PyList_Size(arguments[0]) != self->inputs) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "expected a list of the inputs and an address");
        return NULL;
    }
    int64_t block = PyLong_AsLongLong(arguments[1]);
    if (block == -1 && PyErr_Occurred()) return NULL;
    if (self->busy) Py_RETURN_NONE;
    self->busy = 1;
    PyObject *results = run_on(self, arguments[0], block);
    self->busy = 0;
    return results;
}

// Runs with the pointers of the last call of `run`, whose arrays the caller keeps.
static PyObject *call_repeat(PyObject *object, PyObject *ignored) {
    (void)ignored;
    call *self = (call *)object;
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = self->run(self->steps, self->count, self->numbers, self->pointers, self->threads);
    Py_END_ALLOW_THREADS
    if (failed) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *call_use(PyObject *object, PyObject *threads) {
    long wanted = PyLong_AsLong(threads);
    if (wanted == -1 && PyErr_Occurred()) return NULL;
    ((call *)object)->threads = (int)wanted;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"use", call_use, METH_O, "use(threads): how many may work from now on."},
    {"repeat", call_repeat, METH_NOARGS, "repeat(): runs again on the arrays of the last run, which are kept."},
    {"run", (PyCFunction)(void (*)(void))call_run, METH_FASTCALL,
     "run(arrays, block): the results by name, or None if the arrays are not what this is bound for, "
     "or if another thread is in here."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, call_new}, {Py_tp_dealloc, call_free}, {Py_tp_methods, methods}, {0, NULL},
};

static PyType_Spec spec = {"kn_call.Call", sizeof(call), 0, Py_TPFLAGS_DEFAULT, slots};

static int fill(PyObject *module) {
    PyObject *type = PyType_FromSpec(&spec);
    int failed = !type || PyModule_AddObjectRef(module, "Call", type);
    Py_XDECREF(type);
    return failed ? -1 : 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, fill}, {0, NULL}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "kn_call", NULL, 0, NULL, module_slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_kn_call(void) { return PyModuleDef_Init(&module); }
