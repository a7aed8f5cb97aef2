/* What the reactor's files share. One file per job:
 *   reactor.c      the exports: init and handle
 *   interpreter.c  brings CPython up, once
 *   hornbeam.c     the module _hornbeam: calls to the host
 *   libc.c         what wasi-libc lacks, or does wrongly for a snapshot */
#ifndef PY_REACTOR_H
#define PY_REACTOR_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Brings the interpreter up with the standard library at /lib. 0 or -1. */
int interpreter_start(void);

/* clock() counts from here; without it, from before the snapshot. */
void clock_restart(void);

#endif
