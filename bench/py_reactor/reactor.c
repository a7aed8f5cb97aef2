/* The exports: init() brings Python up, handle() serves one request.
 * A request is two files and one answer: /main.py is run in a fresh namespace, its
 * main(context) is called with what /context.json holds, and {"ok": ...} or
 * {"error": "Type: text"} goes to worker.result. An exception of the guest's is an answer;
 * a code other than 0 says that no answer was given. */
#include "reactor.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wasi/libc.h>

#define MAIN_PATH "/main.py"
#define CONTEXT_PATH "/context.json"

enum { DONE = 0, NOT_READY = 1, UNREADABLE = 2, NOT_ENDED = 3 };

__attribute__((import_module("worker"), import_name("result")))
void worker_result(const char *answer, int len);

/* RUNNING stays when a request traps or is cut off: the interpreter is then left in the middle of
 * something, and every later request is refused. */
static enum { ABSENT, READY, RUNNING } state = ABSENT;

/* Found once, so that a request makes no look-ups. */
static PyObject *loads, *encode, *seed;

static int find_helpers(void)
{
    PyObject *json = PyImport_ImportModule("json");
    PyObject *random = PyImport_ImportModule("random");
    if (json == NULL || random == NULL)
        return -1;
    loads = PyObject_GetAttrString(json, "loads");
    seed = PyObject_GetAttrString(random, "seed");
    PyObject *encoder = PyObject_GetAttrString(json, "JSONEncoder");
    PyObject *none = PyTuple_New(0);
    /* NaN and the infinities are no JSON: better an error here than at the reader's. */
    PyObject *options = Py_BuildValue("{s:O,s:(ss)}", "allow_nan", Py_False, "separators", ",", ":");
    PyObject *instance = PyObject_Call(encoder, none, options);
    encode = instance ? PyObject_GetAttrString(instance, "encode") : NULL;
    return loads && seed && encode ? 0 : -1;
}

__attribute__((export_name("init")))
int init(void)
{
    if (state != ABSENT)
        return DONE;
    if (interpreter_start() != 0 || find_helpers() != 0)
        return NOT_READY;
    state = READY;
    return DONE;
}

/* A whole file as bytes, or NULL with errno set and no Python exception. */
static PyObject *read_file(const char *path)
{
    struct stat about;
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return NULL;
    PyObject *bytes = NULL;
    if (fstat(fd, &about) == 0)
        bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)about.st_size);
    if (bytes != NULL && read(fd, PyBytes_AS_STRING(bytes), PyBytes_GET_SIZE(bytes)) != PyBytes_GET_SIZE(bytes))
        Py_CLEAR(bytes);
    close(fd);
    PyErr_Clear();
    return bytes;
}
