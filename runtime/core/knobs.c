/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the variables of the table. A malformed value is an error, whether the variable
 * has an effect or not, and a name that is almost one of ours is reported: a typing
 * error that silently selects a default is hard to find. (Horovod accepts both: "true"
 * is 0, and HOROVOD_CYCLE_TIME="(None,)" a cycle of 0 ms.) Called by world/settings.c. */
#include "runtime/core/knobs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/mem.h"
#include "runtime/base/parse.h"
#include "runtime/base/spelling.h"
#include "runtime/contract/env_table.h"

static const struct knob rows[KNOB_COUNT] = {
#define ROW(name, kind, status, fallback, min, max, choices, meaning, why)             \
    {#name, KNOB_##kind, KNOB_##status, fallback, min, max, choices, meaning, why},
    KNOBS(ROW)
#undef ROW
};

const struct knob *knob_row(enum knob_id id)
{
    return &rows[id];
}

/* --- values --- */

static int knob_parse_bytes(const struct knob *k, const char *s, uint64_t *ret)
{
    static const char units[] = "KMG";
    size_t n = strlen(s);
    const char *unit = n > 1 ? strchr(units, s[n - 1]) : NULL;
    unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
    char digits[32];
    uint64_t v;

    if (n >= sizeof(digits))
        return -EINVAL;
    (void)snprintf(digits, sizeof(digits), "%.*s", (int)(n - (unit ? 1 : 0)), s);
    if (parse_u64(k->name, digits, 0, UINT64_MAX, &v, NULL) < 0)
        return -EINVAL;
    if (v > UINT64_MAX >> shift)
        return -ERANGE;
    v <<= shift;
    if (v < k->min || v > k->max)
        return -ERANGE;
    *ret = v;
    return 0;
}

/* "0.5" -> 500 us: parse_duration_ms of a bare number multiplies it by 1000. */
static int knob_parse_ms(const struct knob *k, const char *s, uint64_t *ret)
{
    char last = s[strlen(s) - 1];
    uint64_t us;

    if ((last < '0' || last > '9') && last != '.')
        return -EINVAL;
    if (parse_duration_ms(k->name, s, k->min, k->max, &us, NULL) < 0)
        return -EINVAL;
    *ret = us * 1000;
    return 0;
}

/* Digits with at most one point: what printf and Python write for 0.8. */
static int knob_parse_decimal(const struct knob *k, const char *s)
{
    uint64_t thousandths;

    if (strspn(s, "0123456789.") != strlen(s))
        return -EINVAL;
    return parse_duration_ms(k->name, s, k->min * 1000, k->max * 1000, &thousandths,
                             NULL);
}

static int knob_parse_choice(const struct knob *k, const char *s, uint64_t *ret)
{
    const char *p = k->choices;

    for (uint64_t i = 0; *p; i++) {
        size_t n = strcspn(p, " ");

        if (strlen(s) == n && strncasecmp(s, p, n) == 0) {
            *ret = i;
            return 0;
        }
        p += n;
        p += strspn(p, " ");
    }
    return -EINVAL;
}

/* One entry: digits up to a comma or the end. */
static int list_read_entry(const char **p, uint32_t *ret)
{
    size_t n = strcspn(*p, ",");
    char digits[16];

    if (n == 0 || n >= sizeof(digits))
        return -EINVAL;
    (void)snprintf(digits, sizeof(digits), "%.*s", (int)n, *p);
    *p += n;
    return parse_u32("", digits, 0, UINT32_MAX, ret, NULL);
}

static int knob_parse_list(const struct knob *k, const char *s, uint64_t *ret)
{
    uint64_t n = 0;
    uint32_t v;

    for (;; s++) { /* over the comma */
        if (list_read_entry(&s, &v) < 0)
            return -EINVAL;
        if (v < k->min || v > k->max)
            return -ERANGE;
        n++;
        if (!*s)
            break;
    }
    *ret = n;
    return 0;
}

bool knob_list_at(const char *list, size_t i, uint32_t *ret)
{
    for (; i > 0; i--) {
        list = strchr(list, ',');
        if (!list)
            return false;
        list++;
    }
    return list_read_entry(&list, ret) == 0;
}

/* Writes what the kind allows, for the error message. */
static void knob_put_allowed(const struct knob *k, char *buf, size_t n)
{
    unsigned long long min = k->min, max = k->max;

    switch (k->kind) {
    case KNOB_BYTES:
        (void)snprintf(buf, n,
                       "a number of bytes from %llu to %llu, such as 67108864 or 64M",
                       min, max);
        return;
    case KNOB_MIB:
        (void)snprintf(buf, n, "a number of MiB from %llu to %llu", min, max);
        return;
    case KNOB_MS:
        (void)snprintf(buf, n,
                       "a number of milliseconds from %g to %g, such as 1 or 0.5",
                       (double)k->min / 1000, (double)k->max / 1000);
        return;
    case KNOB_DECIMAL:
        (void)snprintf(buf, n, "a decimal number from %llu to %llu", min, max);
        return;
    case KNOB_LIST:
        (void)snprintf(buf, n,
                       "a comma list of numbers from %llu to %llu, such as 0,4,8", min,
                       max);
        return;
    case KNOB_CHOICE:
        (void)snprintf(buf, n, "one of: %s", k->choices);
        return;
    case KNOB_BOOL:
    case KNOB_NUMBER:
    case KNOB_SECONDS:
    case KNOB_TEXT:
        break; /* base/parse.h writes its own */
    }
    buf[0] = 0;
}

static int
knob_parse_value(const struct knob *k, const char *s, uint64_t *ret, struct err *err)
{
    uint64_t v = 0;
    bool flag = false;
    char allowed[160];
    int rc = 0;

    switch (k->kind) {
    case KNOB_BOOL:
        rc = parse_bool(k->name, s, &flag, err);
        if (rc == 0)
            *ret = flag;
        return rc;
    case KNOB_NUMBER:
        return parse_u64(k->name, s, k->min, k->max, ret, err);
    case KNOB_SECONDS:
        rc = parse_duration_ms(k->name, s, k->min, k->max, &v, err);
        if (rc == 0)
            *ret = v * 1000000;
        return rc;
    case KNOB_DECIMAL:
        rc = knob_parse_decimal(k, s);
        break;
    case KNOB_BYTES:
        rc = knob_parse_bytes(k, s, &v);
        break;
    case KNOB_MIB:
        rc = parse_u64(k->name, s, k->min, k->max, &v, NULL);
        v <<= 20;
        break;
    case KNOB_MS:
        rc = knob_parse_ms(k, s, &v);
        break;
    case KNOB_LIST:
        rc = knob_parse_list(k, s, &v);
        break;
    case KNOB_CHOICE:
        rc = knob_parse_choice(k, s, &v);
        break;
    case KNOB_TEXT:
        break;
    }
    if (rc < 0) {
        knob_put_allowed(k, allowed, sizeof(allowed));
        return err_set(err, rc, "%s: \"%.64s\" is not %s", k->name, s, allowed);
    }
    *ret = v;
    return 0;
}

bool knob_find(const char *name, enum knob_id *ret)
{
    for (int i = 0; i < KNOB_COUNT; i++)
        if (strcmp(rows[i].name, name) == 0) {
            *ret = (enum knob_id)i;
            return true;
        }
    return false;
}

int knob_parse(enum knob_id id, const char *text, uint64_t *ret, struct err *err)
{
    const struct knob *k = &rows[id];
    uint64_t v = 0;
    int rc = knob_parse_value(k, text, &v, err);

    if (rc < 0)
        return rc;
    if (k->status == KNOB_REFUSED && (k->kind != KNOB_BOOL || v != 0))
        return err_set(err, -ENOTSUP, "%s=%.64s: %s", k->name, text, k->why);
    *ret = v;
    return 0;
}

/* Does the value differ from not setting the variable? */
static bool knob_is_requested(const struct knob_values *v, enum knob_id id)
{
    const struct knob *k = &rows[id];

    if (!v->is_set[id])
        return false;
    return k->kind != KNOB_BOOL || v->v[id] != 0;
}

/* The launcher of an elastic job sets HOROVOD_ELASTIC, with HVD_ELASTIC. */
static int knob_read_elastic(
    getenv_fn get, void *arg, const char *s, uint64_t *ret, struct err *err)
{
    const char *place = get(arg, "HVD_ELASTIC");

    if (place && place[0])
        return knob_parse_value(&rows[KNOB_HOROVOD_ELASTIC], s, ret, err);
    return knob_parse(KNOB_HOROVOD_ELASTIC, s, ret, err);
}

int knobs_read(getenv_fn get, void *arg, struct knob_values *ret, struct err *err)
{
    struct knob_values v = {{0}, {NULL}, {false}};

    for (int i = 0; i < KNOB_COUNT; i++) {
        const struct knob *k = &rows[i];
        const char *s = get(arg, k->name);
        int rc = 0;

        v.is_set[i] = s && s[0];
        v.s[i] = v.is_set[i] ? s : k->fallback;
        if (i == KNOB_HOROVOD_ELASTIC)
            rc = knob_read_elastic(get, arg, v.s[i], &v.v[i], err);
        else if (v.s[i][0])
            rc = knob_parse((enum knob_id)i, v.s[i], &v.v[i], err);
        if (rc < 0)
            return rc;
    }
    *ret = v;
    return 0;
}

enum knob_note
knob_note(const struct knob_values *v, enum knob_id id, struct strbuf *out)
{
    const struct knob *k = &rows[id];

    if (!v->is_set[id] || k->status == KNOB_HONOURED || k->status == KNOB_REFUSED)
        return KNOB_SAY_NOTHING;
    /* A secret is never printed. */
    if (id == KNOB_HOROVOD_SECRET_KEY)
        strbuf_printf(out, "%s has no effect: %s", k->name, k->why);
    else
        strbuf_printf(out, "%s=%.64s has no effect: %s", k->name, v->s[id], k->why);
    return k->status == KNOB_NOT_YET && knob_is_requested(v, id) ? KNOB_SAY_WARN
                                                                 : KNOB_SAY_INFO;
}

/* --- typing errors --- */

static const char *const known_elsewhere[] = {
#define NAME(name, ...) #name,
    CONTRACT_ENV(NAME) CONTRACT_ENV_KNOBS(NAME) AGENT_ENV(NAME) KNOBS_ELSEWHERE(NAME)
#undef NAME
};

static const char *name_known_at(size_t i)
{
    if (i < KNOB_COUNT)
        return rows[i].name;
    i -= KNOB_COUNT;
    return i < ARRAY_LEN(known_elsewhere) ? known_elsewhere[i] : NULL;
}

/* The name without the prefix of our families; NULL: not one of them. */
static const char *name_own_part(const char *name)
{
    static const char *const families[] = {"HOROVOD_", "HVD_", "PERSEUS_"};

    for (size_t i = 0; i < ARRAY_LEN(families); i++)
        if (strncmp(name, families[i], strlen(families[i])) == 0)
            return name + strlen(families[i]);
    return NULL;
}

const char *knob_find_nearest(const char *name)
{
    const char *own = name_own_part(name), *best = NULL, *known;
    /* In a short name two changed letters make another word. */
    unsigned least = own && strlen(own) < 8 ? 2 : 3;

    if (!own)
        return NULL;
    for (size_t i = 0; (known = name_known_at(i)) != NULL; i++) {
        unsigned d = spelling_distance(name, strlen(name), known, strlen(known));

        if (d == 0)
            return NULL;
        if (d < least) {
            least = d;
            best = known;
        }
    }
    return best;
}
