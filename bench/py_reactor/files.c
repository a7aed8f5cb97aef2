/* Reads the two files of a request. Not through Python's io: its objects would cost
 * more pages of the snapshot than the file has. */
#include "reactor.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* A host may hand out less than was asked for. */
static int read_all(int fd, char *to, size_t size)
{
    while (size > 0) {
        ssize_t got = read(fd, to, size);
        if (got <= 0)
            return -1;
        to += got;
        size -= (size_t)got;
    }
    return 0;
}

static PyObject *read_open(int fd)
{
    struct stat about;
    if (fstat(fd, &about) != 0)
        return NULL;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)about.st_size);
    if (bytes != NULL && read_all(fd, PyBytes_AS_STRING(bytes), (size_t)about.st_size) != 0)
        Py_CLEAR(bytes);
    PyErr_Clear();
    return bytes;
}

PyObject *read_file(const char *path)
{
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return NULL;
    PyObject *bytes = read_open(fd);
    close(fd);
    return bytes;
}
