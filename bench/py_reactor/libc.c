/* What wasi-libc lacks, or does wrongly for a snapshot. */
#include "reactor.h"
#include <netdb.h>
#include <stdint.h>
#include <time.h>
#include <wasi/api.h>

/* libc's own clock() keeps its start in memory. After a snapshot that is a moment in another
 * process, on another monotonic clock. */
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

/* WASI has no name service. The socket module links to these, and hears "not found". */
int *__h_errno_location(void)
{
    static int code;
    code = HOST_NOT_FOUND;
    return &code;
}

const char *hstrerror(int code)
{
    return "No name service";
}

struct hostent *gethostbyname(const char *name)
{
    return NULL;
}

struct hostent *gethostbyaddr(const void *address, socklen_t len, int family)
{
    return NULL;
}

struct servent *getservbyname(const char *name, const char *protocol)
{
    return NULL;
}

struct servent *getservbyport(int port, const char *protocol)
{
    return NULL;
}

struct protoent *getprotobyname(const char *name)
{
    return NULL;
}
