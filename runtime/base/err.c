/* SPDX-License-Identifier: Apache-2.0 */
/* The error pair of code and message. Fixed buffers only, so that a failure can be
 * reported when memory is out. strerror_r has two signatures (GNU, XSI); err_strerror
 * hides which one libc has. */
#include "runtime/base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* One of the two is chosen at compile time by the return type of strerror_r. */
static inline const char *pick_int(int rc, const char *buf)
{
    return rc == 0 ? buf : "unknown error";
}

static inline const char *pick_ptr(const char *p, const char *buf)
{
    return p ? p : buf;
}

static const char *err_strerror(int errnum, char *buf, size_t n)
{
    buf[0] = '\0';
    return _Generic(strerror_r(0, buf, n), int
                    : pick_int, char *
                    : pick_ptr)(strerror_r(errnum, buf, n), buf);
}

static int err_vset(struct err *err, int code, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));

static int err_vset(struct err *err, int code, const char *fmt, va_list ap)
{
    if (err) {
        err->code = code;
        if (vsnprintf(err->text, sizeof(err->text), fmt, ap) < 0)
            err->text[0] = '\0';
    }
    return code;
}

int(err_set)(struct err *err, int code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    (void)err_vset(err, code, fmt, ap); /* returns code */
    va_end(ap);
    return code;
}

int(err_errno)(struct err *err, int errnum, const char *fmt, ...)
{
    va_list ap;
    char buf[128];

    if (!err)
        return -errnum;
    va_start(ap, fmt);
    (void)err_vset(err, -errnum, fmt, ap); /* returns code */
    va_end(ap);

    size_t n = strlen(err->text);
    (void)snprintf(err->text + n, sizeof(err->text) - n, ": %s",
                   err_strerror(errnum, buf, sizeof(buf))); /* cut when too long */
    return -errnum;
}

int err_prefix(struct err *err, const char *fmt, ...)
{
    va_list ap;
    char old[sizeof(((struct err *)NULL)->text)];

    if (!err)
        return -EIO;
    memcpy(old, err->text, sizeof(old));
    va_start(ap, fmt);
    (void)err_vset(err, err->code, fmt, ap); /* returns code */
    va_end(ap);

    size_t n = strlen(err->text);
    (void)snprintf(err->text + n, sizeof(err->text) - n, ": %s", old); /* cut at end */
    return err->code;
}

int err_recode(struct err *err, int code)
{
    if (err)
        err->code = code;
    return code;
}
