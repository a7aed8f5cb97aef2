/* What the reactor's files share. One file, one job:
 *   reactor.c      the exports init and handle
 *   interpreter.c  brings CPython up, once
 *   hornbeam.c     the module _hornbeam: calls to the host
 *   files.c        reads a request's files
 *   libc.c         what wasi-libc lacks, or does wrongly for a snapshot */
#ifndef PY_REACTOR_H
#define PY_REACTOR_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define STDLIB L"/lib/python3.11"
#define MAIN_PATH "/main.py"
#define CONTEXT_PATH "/context.json"

/* Brings the interpreter up. 0 or -1. */
int interpreter_start(void);

/* A name that interpreter_start left in __main__: loads, encode, seed. */
PyObject *resident_object(const char *name);

/* A whole file as bytes; NULL without a Python exception when it can't be read. */
PyObject *read_file(const char *path);

/* clock() counts from here on. */
void clock_restart(void);

#endif
