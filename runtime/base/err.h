/* SPDX-License-Identifier: Apache-2.0 */
/* A code for programs and a message for people, without allocation.
 *
 *     if (n > max)
 *         return err_set(err, -EINVAL, "spec.workers: %u exceeds %u", n, max);
 *
 * The message is written once, where the cause is known: it names the field, the value
 * and what is allowed, in lower case, without full stop. Callers pass it on or put
 * context before it. */
#ifndef RUNTIME_BASE_ERR_H
#define RUNTIME_BASE_ERR_H

struct err {
    int code;       /* 0 or a negative errno */
    char text[480]; /* always NUL-terminated; cut at the end when too long */
};

#define ERR_INIT                                                                       \
    {                                                                                  \
        0                                                                              \
    }

/* As ERR_INIT, without clearing the whole text: for code that runs for each tensor. */
static inline void err_init(struct err *err)
{
    err->code = 0;
    err->text[0] = 0;
}

/* Sets code and text, returns code. err may be NULL. */
int err_set(struct err *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* As err_set, with ": strerror(errnum)" after the text; returns -errnum. */
int err_errno(struct err *err, int errnum, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "context: " before the text that is there; returns err->code. Where err may be
 * NULL, return your own code: here it can only be -EIO, so that a failure never becomes
 * a success. */
int err_prefix(struct err *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Another code for the text that is there (a number out of range is a syntax error to
 * the caller, say); returns code. err may be NULL. */
int err_recode(struct err *err, int code);

/* The same, visible to compiler and analyzer: "returns code" is then known where it is
 * called, and a variable that is set only on success is no longer "maybe uninitialized"
 * after it. */
#define err_set(err, code, ...)                                                        \
    __extension__({                                                                    \
        int code_ = (code);                                                            \
        (void)err_set((err), code_, __VA_ARGS__);                                      \
        code_;                                                                         \
    })
#define err_errno(err, errnum, ...)                                                    \
    __extension__({                                                                    \
        int errnum_ = (errnum);                                                        \
        (void)err_errno((err), errnum_, __VA_ARGS__);                                  \
        -errnum_;                                                                      \
    })

#endif
