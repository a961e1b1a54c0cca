/* SPDX-License-Identifier: Apache-2.0 */
/* Debian's libsodium.a and libjansson.a are built with _FORTIFY_SOURCE and call these
 * functions of glibc, which the static programs do not have: they are linked with musl. */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"

void wipe_checked(void *p,
                  size_t n_bytes,
                  size_t room_bytes) __asm__("__explicit_bzero_chk");
__attribute__((format(printf, 5, 0))) int
print_checked(char *ret,
              size_t n,
              int flag,
              size_t room_bytes,
              const char *fmt,
              va_list ap) __asm__("__vsnprintf_chk");
__attribute__((format(printf, 5, 6))) int
print_args_checked(char *ret,
                   size_t n,
                   int flag,
                   size_t room_bytes,
                   const char *fmt,
                   ...) __asm__("__snprintf_chk");
char *copy_checked(char *ret,
                   const char *from,
                   size_t n,
                   size_t room_bytes) __asm__("__strncpy_chk");

void wipe_checked(void *p, size_t n_bytes, size_t room_bytes)
{
    if (n_bytes > room_bytes)
        abort();
    mem_wipe(p, n_bytes);
}

int print_checked(
    char *ret, size_t n, int flag, size_t room_bytes, const char *fmt, va_list ap)
{
    (void)flag; /* how glibc checks %n */
    if (n > room_bytes)
        abort();
    return vsnprintf(ret, n, fmt, ap);
}

int print_args_checked(
    char *ret, size_t n, int flag, size_t room_bytes, const char *fmt, ...)
{
    va_list ap;
    int k;

    va_start(ap, fmt);
    k = print_checked(ret, n, flag, room_bytes, fmt, ap);
    va_end(ap);
    return k;
}

char *copy_checked(char *ret, const char *from, size_t n, size_t room_bytes)
{
    if (n > room_bytes)
        abort();
    return strncpy(ret, from, n);
}
