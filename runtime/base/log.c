/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines to stderr, each by one write(2) so that lines of several processes do not
 * mix. The mutable globals are the level, the form and the tag, set at start, before
 * threads, and the count of dropped lines. The level is atomic because tests and
 * HVD_LOG_LEVEL change it later. Lines are cut at LINE_BYTES. */
#include "runtime/base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

#define LINE_BYTES 2048

static atomic_int min_level = LOG_INFO;
static atomic_bool is_json, has_no_time, is_lossy;
static atomic_uint n_lost;
static char tag_program[32] = "ringmaster";
static char tag_detail[96];

void log_set_level(enum log_level min)
{
    atomic_store_explicit(&min_level, (int)min, memory_order_relaxed);
}

int log_level_parse(const char *s, enum log_level *ret)
{
    static const struct {
        const char *name;
        enum log_level level;
    } names[] = {
        {"trace", LOG_DEBUG},  {"debug", LOG_DEBUG}, {"info", LOG_INFO},
        {"warning", LOG_WARN}, {"warn", LOG_WARN},   {"error", LOG_ERROR},
        {"fatal", LOG_ERROR},
    };

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (strcasecmp(s, names[i].name) == 0) {
            *ret = names[i].level;
            return 0;
        }
    }
    return -EINVAL;
}

void log_set_json(bool on)
{
    atomic_store_explicit(&is_json, on, memory_order_relaxed);
}

void log_set_tag(const char *program, const char *detail)
{
    (void)snprintf(tag_program, sizeof(tag_program), "%s", program); /* cut is fine */
    (void)snprintf(tag_detail, sizeof(tag_detail), "%s", detail ? detail : "");
}

void log_set_time(bool on)
{
    atomic_store_explicit(&has_no_time, !on, memory_order_relaxed);
}

void log_set_lossy(bool on)
{
    atomic_store_explicit(&is_lossy, on, memory_order_relaxed);
}

/* A pipe that can be written takes PIPE_BUF bytes whole, which is more than a line. */
static bool must_drop(void)
{
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};

    return atomic_load_explicit(&is_lossy, memory_order_relaxed) && poll(&p, 1, 0) == 0;
}

bool log_enabled(enum log_level level)
{
    return (int)level >= atomic_load_explicit(&min_level, memory_order_relaxed);
}

/* Bytes of the UTF-8 character at s, of at most n bytes; 0: invalid. */
static size_t utf8_size(const char *s, size_t n)
{
    unsigned char c = (unsigned char)*s;
    size_t size = c < 0x80 ? 1 : c >= 0xf0 && c < 0xf5 ? 4 : c >= 0xe0 ? 3 : 2;

    if (size > n || (c >= 0x80 && c < 0xc2) || c >= 0xf5)
        return 0;
    for (size_t i = 1; i < size; i++) {
        if (((unsigned char)s[i] & 0xc0) != 0x80)
            return 0;
    }
    return size;
}

/* Appends len bytes of s to buf as the inside of a JSON string; keeps room for the
 * closing of the object. What is no UTF-8 (a value that was cut) becomes '?'. */
static size_t add_json(char *buf, size_t n, size_t cap, const char *s, size_t len)
{
    for (size_t i = 0, size; i < len && n + 8 < cap; i += size) {
        unsigned char c = (unsigned char)s[i];

        size = utf8_size(s + i, len - i);
        if (size == 0) {
            size = 1;
            buf[n++] = '?';
        } else if (c == '"' || c == '\\') {
            buf[n++] = '\\';
            buf[n++] = (char)c;
        } else if (c < 0x20) {
            n += (size_t)snprintf(buf + n, 8, "\\u%04x", c);
        } else {
            memcpy(buf + n, s + i, size);
            n += size;
        }
    }
    return n;
}

/* ,"key":"value" or as much of the value as fits; without the closing quote. */
static size_t add_member(char *buf,
                         size_t n,
                         size_t cap,
                         const char *key,
                         size_t key_n,
                         const char *value,
                         size_t value_n)
{
    if (n + key_n + 16 >= cap)
        return n;
    n += (size_t)snprintf(buf + n, cap - n, "%s\"%.*s\":\"", n ? "," : "{", (int)key_n,
                          key);
    n = add_json(buf, n, cap, value, value_n);
    buf[n++] = '"';
    return n;
}

static size_t key_size(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz_0123456789");

    return n > 0 && s[n] == '=' ? n : 0;
}

/* Where the value at s ends: a word, or what is in quotes (the message that is quoted
 * may have quotes itself, so only one before the next pair or the end counts). */
static size_t value_size(const char *s)
{
    const char *end = s;

    if (*s != '"')
        return strcspn(s, " ");
    while ((end = strchr(end + 1, '"'))) {
        if (!end[1] || (end[1] == ' ' && key_size(end + 2)))
            return (size_t)(end + 1 - s);
    }
    return strlen(s);
}

static size_t log_add_text(char *buf, size_t n, size_t cap, const char *s)
{
    /* A newline inside a value must not look like the start of another event. */
    for (; *s && n + 2 < cap; s++)
        buf[n++] = (unsigned char)*s < 0x20 ? ' ' : *s;
    return n;
}

static size_t render_json(char *buf,
                          size_t cap,
                          const char *stamp,
                          const char *level,
                          const char *msg,
                          const char *data)
{
    const struct {
        const char *key, *value;
    } parts[] = {
        {"ts", stamp},       {"level", level}, {"program", tag_program},
        {"tag", tag_detail}, {"msg", msg},
    };
    const size_t room = cap - 8;
    size_t n = 0, k;

    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        n = add_member(buf, n, room, parts[i].key, strlen(parts[i].key), parts[i].value,
                       strlen(parts[i].value));
    while ((k = key_size(data))) {
        const char *value = data + k + 1;
        size_t size = value_size(value), quoted = *value == '"' && size > 1;
        bool is_closed = quoted && value[size - 1] == '"';

        n = add_member(buf, n, room, data, k, value + quoted,
                       size - quoted - (is_closed ? 1u : 0u));
        data = value + size;
        data += *data == ' ';
    }
    if (*data) /* not in pairs */
        n = add_member(buf, n, room, "data", 4, data, strlen(data));
    memcpy(buf + n, "}\n", 2);
    return n + 2;
}

static size_t render_text(char *buf,
                          size_t cap,
                          const char *stamp,
                          char level,
                          const char *msg,
                          const char *data)
{
    int k =
        snprintf(buf, cap - 1, tag_detail[0] ? "%s%c %s[%s]: " : "%s%c %s%s: ", stamp,
                 level, tag_program, tag_detail);
    size_t n = k < 0 ? 0 : (size_t)k;

    n = log_add_text(buf, n, cap, msg);
    if (data[0]) {
        n = log_add_text(buf, n, cap, " ");
        n = log_add_text(buf, n, cap, data);
    }
    buf[n++] = '\n';
    return n;
}

void log_print(const char *text)
{
    size_t n = strlen(text);
    int saved_errno = errno;

    while (n > 0) {
        ssize_t k = write(STDERR_FILENO, text, n);

        if (k == 0 || (k < 0 && errno != EINTR))
            break; /* as in log_event */
        text += k > 0 ? k : 0;
        n -= k > 0 ? (size_t)k : 0;
    }
    errno = saved_errno;
}

void log_event(enum log_level level, const char *msg, const char *fmt, ...)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};
    char data[LINE_BYTES / 2], line[LINE_BYTES], stamp[40], second[24];
    int saved_errno = errno;
    va_list ap;

    unsigned lost;

    if (!log_enabled(level))
        return;
    if (must_drop()) {
        (void)atomic_fetch_add_explicit(&n_lost, 1, memory_order_relaxed);
        errno = saved_errno;
        return;
    }
    lost = atomic_exchange_explicit(&n_lost, 0, memory_order_relaxed);
    if (lost > 0)
        log_event(LOG_WARN, "log lines were dropped, stderr was full", "lines=%u",
                  lost);
    va_start(ap, fmt);
    if (vsnprintf(data, sizeof(data), fmt, ap) < 0)
        data[0] = '\0';
    va_end(ap);

    uint64_t us = clock_wall_us();
    (void)clock_rfc3339(us / 1000000u, second, sizeof(second));
    second[strcspn(second, "Z")] = '\0';
    bool json = atomic_load_explicit(&is_json, memory_order_relaxed);
    (void)snprintf(stamp, sizeof(stamp), "%s.%03uZ%s", second,
                   (unsigned)(us / 1000u % 1000u), json ? "" : " "); /* always fits */
    if (!json && atomic_load_explicit(&has_no_time, memory_order_relaxed))
        stamp[0] = 0;

    size_t n = json ? render_json(line, sizeof(line), stamp, names[level], msg, data)
                    : render_text(line, sizeof(line), stamp, "DIWE"[level], msg, data);
    ssize_t k;
    do
        k = write(STDERR_FILENO, line, n);
    while (k < 0 && errno == EINTR);
    /* a log line that cannot be written has no one to report it to */
    errno = saved_errno;
}
