/* Brings CPython up as a host of requests: isolated from environment and user
 * folders, and with everything that a usual request imports already there,
 * since what's resident is in the snapshot and costs a request nothing. */
#include "reactor.h"

#define STDLIB L"/lib/python3.11"

static const char resident[] =
    "import _hornbeam, collections, dataclasses, datetime, enum, functools, io, itertools\n"
    "import json, math, operator, os, random, re, sys, time, traceback, typing\n"
    "sys.path.append('/')\n" /* modules beside main.py, after the library so that it stays fast */
    "import gc\n"
    "gc.collect()\n"
    /* A later collection would write to the header of every object that it visits, so to
     * every page of the snapshot. */
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
    config.site_import = 0;    /* it only looks for folders that aren't there */
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
