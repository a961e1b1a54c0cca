/* SPDX-License-Identifier: Apache-2.0 */
/* One function for each kind of value. Error messages keep Horovod's text ("must be >=
 * 0") and name the option or key as the user wrote it. Called by options.c. */
#include "runtime/launch/core/option_value.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/parse.h"
#include "runtime/launch/core/option_text.h"

static int value_check_range(const struct launch_option_row *row,
                             const char *field,
                             const char *text,
                             double value,
                             struct err *err)
{
    if (value < row->min)
        return err_set(err, -EINVAL, "%s=%.64s must be >= %g", field, text, row->min);
    if (value > row->max)
        return err_set(err, -EINVAL, "%s=%.64s must be <= %.10g", field, text,
                       row->max);
    return 0;
}

static int value_whole(const struct launch_option_row *row,
                       const char *field,
                       const char *text,
                       int64_t *ret,
                       struct err *err)
{
    if (parse_i64(field, text, INT64_MIN, INT64_MAX, ret, NULL) < 0)
        return err_set(err, -EINVAL, "%s=%.64s is not a whole number", field, text);
    return value_check_range(row, field, text, (double)*ret, err);
}

static int value_decimal(const struct launch_option_row *row,
                         const char *field,
                         const char *text,
                         struct err *err)
{
    char *end;
    double value = strtod(text, &end);
    if (!*text || *end || strspn(text, "-+0123456789.eE") != strlen(text))
        return err_set(err, -EINVAL, "%s=%.64s is not a number", field, text);
    return value_check_range(row, field, text, value, err);
}

/* The result is plain seconds, because programs read HOROVOD_START_TIMEOUT with
 * int(). */
static int value_seconds(const struct launch_option_row *row,
                         const char *field,
                         const char *text,
                         struct arena *arena,
                         const char **ret,
                         struct err *err)
{
    uint64_t ms = 0;
    if (text[0] == '-' && text[1] >= '0' && text[1] <= '9')
        return value_check_range(row, field, text, -1, err);
    if (parse_duration_ms(field, text, 0, UINT64_MAX, &ms, NULL) < 0)
        return err_set(err, -EINVAL,
                       "%s=%.64s is not a duration such as 30, 0.5, 200ms, 5m or 1h",
                       field, text);
    int rc = value_check_range(row, field, text, (double)ms / 1000, err);
    if (rc < 0)
        return rc;
    *ret = ms % 1000 ? arena_printf(arena, "%llu.%03llu", (unsigned long long)ms / 1000,
                                    (unsigned long long)ms % 1000)
                     : arena_printf(arena, "%llu", (unsigned long long)ms / 1000);
    return *ret ? 0 : err_set(err, -ENOMEM, "out of memory for %s", field);
}

static int value_range(const struct launch_option_row *row,
                       const char *field,
                       const char *text,
                       struct err *err)
{
    char low[24];
    int64_t min = 0, max = 0;
    size_t len = strcspn(text, " ");
    if (len >= sizeof(low) || !text[len])
        return err_set(err, -EINVAL, "%s needs two whole numbers: %s", field,
                       row->value);
    memcpy(low, text, len);
    low[len] = '\0';
    int rc = value_whole(row, field, low, &min, err);
    if (rc < 0 || (rc = value_whole(row, field, text + len + 1, &max, err)) < 0)
        return rc;
    if (min > max)
        return err_set(err, -EINVAL, "%s: %lld exceeds %lld", field, (long long)min,
                       (long long)max);
    return 0;
}

static int value_cpus(const struct launch_option_row *row,
                      const char *field,
                      const char *text,
                      struct err *err)
{
    for (const char *p = text;; p++) {
        char word[16];
        int64_t v = 0;
        size_t len = strcspn(p, ",");
        if (len >= sizeof(word))
            return err_set(err, -EINVAL, "%s=%.64s has a number that is too long",
                           field, text);
        memcpy(word, p, len);
        word[len] = '\0';
        int rc = value_whole(row, field, word, &v, err);
        if (rc < 0)
            return rc;
        p += len;
        if (!*p)
            return 0;
    }
}

static bool list_has_word(const char *list, const char *word, size_t len)
{
    for (const char *p = list;; p++) {
        size_t n = strcspn(p, ",");
        if (n == len && !strncmp(p, word, len))
            return true;
        p += n;
        if (!*p)
            return false;
    }
}

static int option_list_append(const char *field,
                              const char *text,
                              const char *before,
                              struct arena *arena,
                              const char **ret,
                              struct err *err)
{
    char *list = arena_alloc(arena, strlen(text) + (before ? strlen(before) : 0) + 2);
    if (!list)
        return err_set(err, -ENOMEM, "out of memory for %s", field);
    if (before)
        memcpy(list, before, strlen(before));
    for (const char *p = text;; p++) {
        size_t len = strcspn(p, ",");
        if (!len || memchr(p, ' ', len))
            return err_set(
                err, -EINVAL,
                "%s=%.64s has an empty name or a blank; names are separated by commas",
                field, text);
        if (!*list || !list_has_word(list, p, len)) {
            size_t n = strlen(list);
            if (n)
                list[n++] = ',';
            memcpy(list + n, p, len);
        }
        p += len;
        if (!*p)
            break;
    }
    *ret = list;
    return 0;
}

static int value_choice(const struct launch_option_row *row,
                        const char *field,
                        const char *text,
                        struct arena *arena,
                        const char **ret,
                        struct err *err)
{
    for (const char *p = row->value; *p;) {
        size_t len = strcspn(p, "|");
        if (strlen(text) == len && !strncasecmp(p, text, len)) {
            *ret = arena_printf(arena, "%.*s", (int)len, p);
            return *ret ? 0 : err_set(err, -ENOMEM, "out of memory for %s", field);
        }
        p += len + (p[len] == '|');
    }
    return err_set(err, -EINVAL, "%s=%.64s must be one of: %s", field, text,
                   row->value);
}

static int
value_on_off(const char *field, const char *text, const char **ret, struct err *err)
{
    bool is_on = false;
    if (parse_bool(field, text, &is_on, NULL) < 0)
        return err_set(err, -EINVAL, "%s=%.64s must be true or false", field, text);
    *ret = is_on ? "1" : "0";
    return 0;
}

int option_value(const struct launch_option_row *row,
                 const char *field,
                 const char *text,
                 const char *before,
                 struct arena *arena,
                 const char **ret,
                 struct err *err)
{
    int64_t ignored = 0;
    if (option_is_placeholder(text))
        return err_set(err, -EINVAL,
                       "%s=%.64s is a placeholder; replace the braces with %s", field,
                       text, *row->value ? row->value : "true or false");
    *ret = text;
    switch (row->kind) {
    case OPTION_FLAG:
    case OPTION_SWITCH:
        return value_on_off(field, text, ret, err);
    case OPTION_TEXT:
    case OPTION_FILE:
        return *text ? 0 : err_set(err, -EINVAL, "%s is empty", field);
    case OPTION_NUMBER:
    case OPTION_MIB:
        return value_whole(row, field, text, &ignored, err);
    case OPTION_DECIMAL:
        return value_decimal(row, field, text, err);
    case OPTION_SECONDS:
        return value_seconds(row, field, text, arena, ret, err);
    case OPTION_RANGE:
        return value_range(row, field, text, err);
    case OPTION_LIST:
        return option_list_append(field, text, before, arena, ret, err);
    case OPTION_CPUS:
        return value_cpus(row, field, text, err);
    case OPTION_CHOICE:
        return value_choice(row, field, text, arena, ret, err);
    }
    return 0;
}

int option_variable(const struct launch_option_row *row,
                    const char *text,
                    struct arena *arena,
                    struct option_var *ret,
                    struct err *err)
{
    struct option_var var = {row->var, text};
    if (*row->var == '!')
        var = (struct option_var){row->var + 1, strcmp(text, "0") == 0 ? "1" : "0"};
    if (row->kind == OPTION_MIB) {
        uint64_t mib = 0;
        (void)parse_u64("", text, 0, UINT64_MAX, &mib, NULL); /* was checked */
        var.value = arena_printf(arena, "%llu", (unsigned long long)mib << 20);
    }
    if (!var.value)
        return err_set(err, -ENOMEM, "out of memory for the ranks' variables");
    *ret = var;
    return 0;
}
