/* The module _hornbeam: call(name, payload) -> bytes asks the host.
 * A call is two imports: the host runs it and answers with the length, then
 * the guest allocates and takes the bytes. So the host never has to call back
 * into the guest for memory. */
#include "reactor.h"

__attribute__((import_module("hornbeam"), import_name("call")))
int host_call(const char *name, int name_len, const char *in, int in_len);

__attribute__((import_module("hornbeam"), import_name("take")))
int host_take(char *out, int len);

static PyObject *HostError;

static PyObject *take(const char *name, int len)
{
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, len);
    if (bytes == NULL)
        return NULL;
    /* Taken when it's empty too, so that the host can let go of it. */
    int got = host_take(PyBytes_AS_STRING(bytes), len);
    if (got == len)
        return bytes;
    Py_DECREF(bytes);
    return PyErr_Format(HostError, "%s: the host promised %d bytes and gave %d",
                        name, len, got);
}

static PyObject *call(PyObject *module, PyObject *args)
{
    const char *name;
    Py_ssize_t name_len;
    Py_buffer in;
    if (!PyArg_ParseTuple(args, "s#y*:call", &name, &name_len, &in))
        return NULL;
    int len = host_call(name, (int)name_len, in.buf, (int)in.len);
    PyBuffer_Release(&in);
    if (len < 0)
        return PyErr_Format(HostError, "%s: the host answered %d", name, len);
    return take(name, len);
}

static PyMethodDef methods[] = {
    {"call", call, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_hornbeam", .m_size = -1, .m_methods = methods,
};

static PyObject *create(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    HostError = PyErr_NewException("_hornbeam.HostError", PyExc_RuntimeError, NULL);
    if (PyModule_AddObjectRef(module, "HostError", HostError) == 0)
        return module;
    Py_DECREF(module);
    return NULL;
}

/* Before init(), for the table of built-in modules is read when Python starts. */
__attribute__((constructor))
static void register_module(void)
{
    PyImport_AppendInittab("_hornbeam", create);
}
