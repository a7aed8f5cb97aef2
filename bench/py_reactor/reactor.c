/* The exports: init() brings Python up, handle() serves one request.
 * A request is two files and one answer: /main.py is run in a fresh module, its main(context)
 * is called with what /context.json holds, and {"ok":...} or {"error":"Type: text"} goes to
 * worker.result. What the guest raises is an answer too; a code other than 0 means that
 * there was none. */
#include "reactor.h"
#include <errno.h>
#include <unistd.h>

enum { DONE = 0, NOT_READY = 1, UNREADABLE = 2, UNFINISHED = 3 };

__attribute__((import_module("worker"), import_name("result")))
void worker_result(const char *answer, int len);

/* wasi-libc has it, its headers don't. */
void __wasilibc_reset_preopens(void);

/* A state that says it's in the middle of something stays when that traps or is cut off: the
 * interpreter can't be trusted after that, so nothing more is done with it. */
static enum { ABSENT, STARTING, READY, RUNNING } state = ABSENT;

static struct helpers {
    PyObject *loads, *encode, *seed;
} helpers;

static int find_helpers(void)
{
    helpers.loads = resident_object("loads");
    helpers.encode = resident_object("encode");
    helpers.seed = resident_object("seed");
    return helpers.loads && helpers.encode && helpers.seed ? 0 : -1;
}

__attribute__((export_name("init")))
int init(void)
{
    if (state == ABSENT) {
        state = STARTING;
        if (interpreter_start() == 0 && find_helpers() == 0)
            state = READY;
    }
    return state == STARTING ? NOT_READY : DONE;
}

/* Instances that start from one snapshot would draw the same numbers otherwise. 32 bytes
 * instead of Python's own 2500: the same distance, and one question to the host instead of ten. */
static int reseed(void)
{
    char fresh[32];
    if (getentropy(fresh, sizeof fresh) != 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    PyObject *number = PyObject_CallMethod((PyObject *)&PyLong_Type, "from_bytes", "y#s",
                                           fresh, (Py_ssize_t)sizeof fresh, "little");
    PyObject *done = number ? PyObject_CallOneArg(helpers.seed, number) : NULL;
    Py_XDECREF(number);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* A module and not just a dict: dataclasses, pickle and typing look classes up in sys.modules. */
static PyObject *new_module(void)
{
    PyObject *module = PyModule_New("main");
    if (module != NULL && PyModule_AddStringConstant(module, "__file__", MAIN_PATH) == 0
        && PyDict_SetItemString(PyImport_GetModuleDict(), "main", module) == 0)
        return module;
    Py_XDECREF(module);
    return NULL;
}

static PyObject *compile(PyObject *source)
{
    char *text; /* the call with NULL for the length refuses NUL bytes, which would end the text */
    if (PyBytes_AsStringAndSize(source, &text, NULL) != 0)
        return NULL;
    return Py_CompileString(text, MAIN_PATH, Py_file_input);
}

static PyObject *call_main(PyObject *module, PyObject *context)
{
    PyObject *decoded = PyObject_CallOneArg(helpers.loads, context);
    if (decoded == NULL)
        return NULL;
    PyObject *result = PyObject_CallMethod(module, "main", "O", decoded);
    Py_DECREF(decoded);
    return result;
}

static PyObject *run(PyObject *module, PyObject *source, PyObject *context)
{
    PyObject *code = compile(source);
    if (code == NULL)
        return NULL;
    PyObject *names = PyModule_GetDict(module);
    PyObject *done = PyEval_EvalCode(code, names, names);
    Py_DECREF(code);
    if (done == NULL)
        return NULL;
    Py_DECREF(done);
    return call_main(module, context);
}

/* Steals the value. */
static PyObject *encode(const char *key, PyObject *value)
{
    PyObject *answer = value ? Py_BuildValue("{s:N}", key, value) : NULL;
    PyObject *text = answer ? PyObject_CallOneArg(helpers.encode, answer) : NULL;
    Py_XDECREF(answer);
    return text;
}

static PyObject *serve(PyObject *source, PyObject *context)
{
    PyObject *module = reseed() == 0 ? new_module() : NULL;
    PyObject *text = module ? encode("ok", run(module, source, context)) : NULL;
    Py_XDECREF(module);
    return text;
}

/* As the last line of a traceback, but with the colon even when no text follows. */
static PyObject *describe(PyObject *type, PyObject *value)
{
    const char *name = ((PyTypeObject *)type)->tp_name;
    const char *dot = strrchr(name, '.');
    PyObject *text = PyObject_Str(value);
    if (text == NULL) {
        PyErr_Clear();
        text = PyUnicode_FromString("<exception str() failed>");
    }
    PyObject *line = text ? PyUnicode_FromFormat("%s: %U", dot ? dot + 1 : name, text) : NULL;
    Py_XDECREF(text);
    return line;
}

static PyObject *encode_error(void)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyObject *text = encode("error", describe(type, value));
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return text;
}

static void answer(PyObject *text)
{
    static const char last_resort[] = "{\"error\":\"MemoryError: no room for the answer\"}";
    Py_ssize_t len;
    const char *bytes = text ? PyUnicode_AsUTF8AndSize(text, &len) : NULL;
    if (bytes != NULL)
        worker_result(bytes, (int)len);
    else
        worker_result(last_resort, sizeof last_resort - 1);
    Py_XDECREF(text);
}

/* What's left in a buffer would come out in the next request of this instance, or never. */
static void flush(const char *stream)
{
    PyObject *file = PySys_GetObject(stream);
    PyObject *done = file && file != Py_None ? PyObject_CallMethod(file, "flush", NULL) : NULL;
    Py_XDECREF(done);
    PyErr_Clear();
}

static void respond(PyObject *source, PyObject *context)
{
    PyObject *text = serve(source, context);
    if (text == NULL)
        text = encode_error();
    PyErr_Clear();
    flush("stdout");
    flush("stderr");
    answer(text);
    PyErr_Clear();
    PyDict_DelItemString(PyImport_GetModuleDict(), "main");
    PyErr_Clear();
}

/* A request may come without one. */
static PyObject *read_context(void)
{
    PyObject *context = read_file(CONTEXT_PATH);
    return context == NULL && errno == ENOENT ? PyBytes_FromString("{}") : context;
}

__attribute__((export_name("handle")))
int handle(void)
{
    if (state != READY)
        return state == RUNNING ? UNFINISHED : NOT_READY;
    clock_restart();
    __wasilibc_reset_preopens(); /* those of the snapshot were another process's */
    PyObject *source = read_file(MAIN_PATH);
    PyObject *context = source ? read_context() : NULL;
    int code = context ? DONE : UNREADABLE;
    if (context != NULL) {
        state = RUNNING;
        respond(source, context);
        state = READY;
    }
    Py_XDECREF(source);
    Py_XDECREF(context);
    return code;
}
