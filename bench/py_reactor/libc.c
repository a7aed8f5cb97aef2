/* What wasi-libc lacks, or does wrongly for a snapshot. */
#include "reactor.h"
#include <errno.h>
#include <netdb.h>
#include <stdint.h>
#include <time.h>
#include <wasi/api.h>

/* libc's own clock() remembers its start in memory, so after a snapshot it would count from
 * the moment when the snapshot was taken, on another boot's monotonic clock maybe. */
static uint64_t clock_start;

static uint64_t monotonic(void)
{
    __wasi_timestamp_t now = 0;
    (void)__wasi_clock_time_get(__WASI_CLOCKID_MONOTONIC, 0, &now);
    return now;
}

void clock_restart(void)
{
    clock_start = monotonic();
}

clock_t clock(void)
{
    return (clock_t)(monotonic() - clock_start);
}
