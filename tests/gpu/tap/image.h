/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels' image of a build tree, for programs. */
#ifndef TESTS_GPU_TAP_IMAGE_H
#define TESTS_GPU_TAP_IMAGE_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/backend/nccl/image.h"

_Noreturn static inline void image_bail(const char *what, const char *why)
{
    (void)printf("Bail out! %s: %s\n", what, why);
    (void)fflush(stdout);
    _exit(1); /* the driver would wait for a kernel that hangs */
}

/* The image that is shipped: of libhvd_cuda.so in the folder lib beside ours. */
static inline const uint8_t *image_of_library(size_t *ret_bytes)
{
    char path[1100] = "";
    struct err err = ERR_INIT;
    struct stat st;

    ssize_t n = readlink("/proc/self/exe", path, 1000);
    char *end = n > 0 ? strrchr(path, '/') : NULL;
    if (!end)
        image_bail("the program", "its path is unknown");
    (void)snprintf(end, 100, "/../lib/libhvd_cuda.so");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_size < 64)
        image_bail(path, "it cannot be read");
    const uint8_t *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED)
        image_bail(path, "it cannot be mapped");
    for (size_t at = 0; at + 16 < (size_t)st.st_size; at += 16)
        if (memcmp(p + at, "HVDK", 4) == 0
            && image_count(p + at, (size_t)st.st_size - at, &err) > 0) {
            *ret_bytes = (size_t)st.st_size - at;
            return p + at;
        }
    image_bail(path, "there are no kernels in it");
}

#endif
