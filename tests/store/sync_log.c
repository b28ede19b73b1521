/* Counts what makes a commit durable. Loaded before libc (LD_PRELOAD), it writes one byte to the file descriptor named by
   SYNC_LOG for each fsync or fdatasync that has returned, so that the order against the caller's own marks can be read. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static void mark(void) {
    const char *name = getenv("SYNC_LOG");
    if (name && write(atoi(name), "S", 1) != 1) abort();
}

int fsync(int file) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    int result = real(file);
    mark();
    return result;
}

int fdatasync(int file) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    int result = real(file);
    mark();
    return result;
}
