/* SPDX-License-Identifier: Apache-2.0 */
/* jansson reads the text; it is linked in, see module.mk. Its reader recurses for each
 * level, and a thread of the static program has a stack of 128 KiB only, so a text with
 * many levels is refused before. Called by trainer.c. */
#include "runtime/launch/trainer_json.h"

#include <errno.h>
#include <stdlib.h>

#include <jansson.h>

#include "runtime/base/json_memory.h"
#include "runtime/base/wiped.h"

enum { LEVELS_MAX = 16 };

/* Brackets inside of strings do not count. */
static bool has_many_levels(const char *p, size_t n)
{
    bool is_string = false;
    int level = 0;

    for (size_t i = 0; i < n; i++) {
        if (is_string && p[i] == '\\')
            i++;
        else if (p[i] == '"')
            is_string = !is_string;
        else if (!is_string && (p[i] == '{' || p[i] == '['))
            level++;
        else if (!is_string && (p[i] == '}' || p[i] == ']'))
            level--;
        if (level > LEVELS_MAX)
            return true;
    }
    return false;
}

static bool number_read(const json_t *v, double *ret)
{
    const char *text;
    char *end;

    if (json_is_number(v)) {
        *ret = json_number_value(v);
        return true;
    }
    text = json_string_value(v);
    if (!text || !*text)
        return false;
    *ret = strtod(text, &end);
    return *end == '\0';
}

static int percent_read(const json_t *v, struct trainer_report *r, struct err *err)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > 100)
        return err_set(err, -EINVAL,
                       "trainerStatus.progressPercentage is not an integer from 0 to "
                       "100");
    r->percent = (int)json_integer_value(v);
    return 0;
}

static int metrics_read(const json_t *list, struct trainer_report *r, struct err *err)
{
    if (!json_is_array(list))
        return err_set(err, -EINVAL, "trainerStatus.metrics is not an array");
    if (json_array_size(list) > TRAINER_METRICS_MAX)
        return err_set(err, -EINVAL,
                       "trainerStatus.metrics has %zu entries, at most %d",
                       json_array_size(list), TRAINER_METRICS_MAX);
    r->has_metrics = true;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *m = json_array_get(list, i), *name = json_object_get(m, "name"),
                     *value = json_object_get(m, "value");
        double v;

        if (!json_is_string(name) || !(json_is_string(value) || json_is_number(value)))
            return err_set(
                err, -EINVAL,
                "trainerStatus.metrics[%zu] is not an object with a name and "
                "a value",
                i);
        if (number_read(value, &v))
            trainer_report_add(r, json_string_value(name), v);
    }
    return 0;
}

static int status_read(const json_t *status, struct trainer_report *r, struct err *err)
{
    const json_t *v;
    int rc = 0;

    if (!json_is_object(status))
        return err_set(err, -EINVAL, "trainerStatus is not an object");
    v = json_object_get(status, "progressPercentage");
    if (v && !json_is_null(v))
        rc = percent_read(v, r, err);
    v = json_object_get(status, "metrics");
    if (rc == 0 && v && !json_is_null(v))
        rc = metrics_read(v, r, err);
    return rc;
}

int trainer_json_read(const char *p,
                      size_t n,
                      struct trainer_report *ret,
                      struct err *err)
{
    struct trainer_report r;
    json_error_t e;
    json_t *root;
    int rc;

    trainer_report_init(&r);
    if (has_many_levels(p, n))
        return err_set(err, -EINVAL, "more than %d levels", LEVELS_MAX);
    json_set_alloc_funcs(json_memory_alloc, wiped_free);
    json_memory_begin();
    root = json_loadb(p, n, JSON_REJECT_DUPLICATES, &e);
    if (json_memory_is_out()) {
        json_decref(root);
        return err_set(err, -ENOMEM, "out of memory");
    }
    if (!root)
        return err_set(err, -EINVAL, "not JSON: line %d, column %d: %s", e.line,
                       e.column, e.text);
    rc = status_read(json_object_get(root, "trainerStatus"), &r, err);
    json_decref(root);
    if (rc == 0)
        *ret = r;
    return rc;
}
