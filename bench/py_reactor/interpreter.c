/* Brings CPython up to serve requests: isolated from the environment and from user folders,
 * and with what a usual request imports already there, since what's resident is in the
 * snapshot and costs a request nothing. */
#include "reactor.h"

static const char resident[] =
    "import _hornbeam, collections, dataclasses, datetime, enum, functools, io, itertools\n"
    "import gc, json, math, operator, os, random, re, sys, time, traceback, typing\n"
    /* NaN and infinities are no JSON: the guest that answers them hears it, not the reader. */
    "encode = json.JSONEncoder(allow_nan=False, separators=(',', ':')).encode\n"
    "loads, seed = json.loads, random.seed\n"
    /* Functions rewrite their bytecode in their first calls. What has happened here dirties no
     * page in a request. */
    "for _ in range(64):\n"
    "    loads(encode({'ok': [None, True, 1, 0.5, 'text']}))\n"
    "    json.loads(json.dumps({'ok': [None, True, 1, 0.5, 'text']}))\n"
    "    seed(1)\n"
    /* Modules beside main.py, after the library so that its modules are found at the first look. */
    "sys.path.append('/')\n"
    "gc.collect()\n"
    /* A collection writes to the header of every object that it visits, so a later one would
     * dirty every page there is. */
    "gc.freeze()\n";

static int preconfigure(void)
{
    PyPreConfig config;
    PyPreConfig_InitIsolatedConfig(&config);
    config.utf8_mode = 1;
    return PyStatus_Exception(Py_PreInitialize(&config)) ? -1 : 0;
}

static PyStatus set_paths(PyConfig *config)
{
    wchar_t **fields[] = {
        &config->prefix, &config->exec_prefix, &config->base_prefix, &config->base_exec_prefix,
    };
    PyStatus status = PyConfig_SetString(config, &config->program_name, L"python3");
    for (size_t i = 0; i < Py_ARRAY_LENGTH(fields) && !PyStatus_Exception(status); i++)
        status = PyConfig_SetString(config, fields[i], L"/");
    if (!PyStatus_Exception(status))
        status = PyConfig_SetString(config, &config->stdlib_dir, STDLIB);
    config->module_search_paths_set = 1;
    if (!PyStatus_Exception(status))
        status = PyWideStringList_Append(&config->module_search_paths, STDLIB);
    return status;
}

static int start(void)
{
    PyConfig config;
    PyConfig_InitIsolatedConfig(&config);
    config.write_bytecode = 0; /* the library is mounted read-only */
    config.site_import = 0;    /* no folders of packages to look for */
    config.pathconfig_warnings = 0;
    PyStatus status = set_paths(&config);
    if (!PyStatus_Exception(status))
        status = Py_InitializeFromConfig(&config);
    PyConfig_Clear(&config);
    return PyStatus_Exception(status) ? -1 : 0;
}

int interpreter_start(void)
{
    if (preconfigure() != 0 || start() != 0)
        return -1;
    return PyRun_SimpleString(resident);
}

PyObject *resident_object(const char *name)
{
    return PyObject_GetAttrString(PyImport_AddModule("__main__"), name);
}
