/* SPDX-License-Identifier: Apache-2.0 */
/* A section of unknown id and the bytes behind the known fields of a section are skipped.
 * A section that ends early leaves its last fields as they were. Everything else that does
 * not fit is an error. Values of enums that this version does not know become 0. */
#include "runtime/live/live_fields.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "runtime/base/mem.h"
#include "runtime/base/utf8.h"
#include "runtime/wire/bytes.h"

/* --- numbers ---------------------------------------------------------------------- */

static uint32_t load_u32(const char *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof(v));
    return v;
}

static void store_u32(char *p, uint32_t v)
{
    memcpy(p, &v, sizeof(v));
}

/* By type; size 0: it is not one number. */
static const struct live_number {
    size_t size;
    bool is_signed;
    bool is_enum; /* greater values become 0; of other types they do not fit */
    uint64_t max; /* unless it is signed */
} live_numbers[] = {
    [LIVE_U32] = {4, .max = UINT32_MAX},
    [LIVE_U64] = {8, .max = UINT64_MAX},
    [LIVE_I32] = {4, .is_signed = true},
    [LIVE_I64] = {8, .is_signed = true},
    [LIVE_F64] = {8, .max = UINT64_MAX},
    [LIVE_BOOL] = {sizeof(bool), .max = 1},
    [LIVE_MS] = {8, .max = UINT64_MAX},
    [LIVE_TIME] = {8, .max = UINT64_MAX},
    [LIVE_STATE] = {4, .is_enum = true, .max = LIVE_ENDING},
    [LIVE_CAUSE] = {4, .is_enum = true, .max = LIVE_CAUSE_ABSENT},
    [LIVE_RANK_STATE] = {4, .is_enum = true, .max = LIVE_RANK_EXITED},
    [LIVE_RANKS] = {0}, /* the last type */
};

/* The value of a field that is one number, as 64 bits. */
static uint64_t number_load(const struct live_field *f, const char *p)
{
    const struct live_number *number = &live_numbers[f->type];
    uint64_t v;

    if (number->size == 4)
        return number->is_signed ? (uint64_t)(int32_t)load_u32(p) : load_u32(p);
    if (number->size != 8)
        return *p != 0;
    memcpy(&v, p, sizeof(v));
    return v;
}

/* False: v does not fit. */
static bool number_store(const struct live_field *f, char *p, uint64_t v)
{
    const struct live_number *number = &live_numbers[f->type];

    if (number->is_enum && v > number->max)
        v = 0;
    if (number->size == 8)
        memcpy(p, &v, sizeof(v));
    else if (number->size == 4)
        store_u32(p, (uint32_t)v);
    else
        *p = v != 0;
    return number->is_signed ? number_load(f, p) == v : v <= number->max;
}

/* --- wire form -------------------------------------------------------------------- */

static uint32_t
count_load(const struct live_field *f, const char *section, uint32_t max)
{
    uint32_t n = load_u32(section + f->count);

    return n < max ? n : max;
}

static void
metrics_pack(const struct live_field *f, const char *section, struct strbuf *out)
{
    const struct live_metric *metrics = (const void *)(section + f->at);
    uint32_t n = count_load(f, section, LIVE_METRICS_MAX);

    bytes_put_u32(out, n);
    for (uint32_t i = 0; i < n; i++) {
        bytes_put_name(out, metrics[i].name, LIVE_NAME_MAX);
        bytes_put_f64(out, metrics[i].value);
    }
}

static void
ranks_pack(const struct live_field *f, const char *section, struct strbuf *out)
{
    uint32_t n = count_load(f, section, LIVE_MISSING_MAX);

    bytes_put_u32(out, load_u32(section + f->count));
    for (uint32_t i = 0; i < n; i++)
        bytes_put_u32(out, load_u32(section + f->at + 4 * (size_t)i));
}

static void
field_pack(const struct live_field *f, const char *section, struct strbuf *out)
{
    if (live_numbers[f->type].size)
        bytes_put(out, number_load(f, section + f->at), 8);
    else if (f->type == LIVE_TEXT)
        bytes_put_name(out, section + f->at, f->size);
    else if (f->type == LIVE_METRICS)
        metrics_pack(f, section, out);
    else
        ranks_pack(f, section, out);
}

static bool metrics_unpack(const struct live_field *f, struct bytes_reader *r, char *to)
{
    struct live_metric *metrics = (void *)(to + f->at);
    uint32_t n = bytes_u32(r);

    if (r->is_bad || n > LIVE_METRICS_MAX)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (!bytes_get_name(r, metrics[i].name, LIVE_NAME_MAX)
            || !bytes_get_f64(r, &metrics[i].value))
            return false;
    store_u32(to + f->count, n);
    return true;
}

static bool ranks_unpack(const struct live_field *f, struct bytes_reader *r, char *to)
{
    uint32_t n = bytes_u32(r);

    store_u32(to + f->count, n);
    for (uint32_t i = 0; i < n && i < LIVE_MISSING_MAX; i++)
        store_u32(to + f->at + 4 * (size_t)i, bytes_u32(r));
    return !r->is_bad;
}

static bool field_unpack(const struct live_field *f, struct bytes_reader *r, char *to)
{
    uint64_t v;

    if (live_numbers[f->type].size)
        return bytes_get(r, 8, &v) && number_store(f, to + f->at, v);
    if (f->type == LIVE_TEXT)
        return bytes_get_name(r, to + f->at, f->size);
    return f->type == LIVE_METRICS ? metrics_unpack(f, r, to) : ranks_unpack(f, r, to);
}

void live_sections_pack(const struct live_section *s,
                        size_t n,
                        const void *whole,
                        struct strbuf *out)
{
    for (size_t i = 0; i < n; i++) {
        CLEANUP(strbuf_release) struct strbuf body = {0};

        strbuf_init(&body, LIVE_REPORT_MAX_BYTES);
        for (size_t k = 0; k < s[i].n; k++)
            field_pack(&s[i].fields[k], (const char *)whole + s[i].at, &body);
        if (strbuf_status(&body) < 0) {
            out->status = strbuf_status(&body);
            return;
        }
        bytes_put(out, s[i].id, 2);
        bytes_put_u32(out, (uint32_t)body.n);
        strbuf_add(out, strbuf_str(&body), body.n);
    }
}

static bool
section_unpack(const struct live_section *s, struct bytes_reader *r, char *to)
{
    for (size_t k = 0; k < s->n && r->left > 0; k++)
        if (!field_unpack(&s->fields[k], r, to + s->at))
            return false;
    return true;
}

int live_sections_unpack(const struct live_section *s,
                         size_t n,
                         const void *p,
                         size_t n_bytes,
                         void *whole,
                         const char *what,
                         struct err *err)
{
    struct bytes_reader r = {.p = p, .left = n_bytes};

    while (r.left > 0) {
        struct bytes_reader body = {0};
        uint64_t id = 0;

        if (bytes_get(&r, 2, &id))
            body.left = bytes_u32(&r);
        body.p = bytes_raw(&r, body.left);
        if (r.is_bad)
            return err_set(err, -EPROTO, "the %s is cut", what);
        for (size_t i = 0; i < n; i++)
            if (s[i].id == id && !section_unpack(&s[i], &body, whole))
                return err_set(err, -EPROTO, "the %s is malformed in section %u", what,
                               (unsigned)id);
    }
    return 0;
}

/* --- JSON ------------------------------------------------------------------------- */

static void json_put_text(const char *text, struct strbuf *out)
{
    strbuf_putc(out, '"');
    utf8_put_json(text, out);
    strbuf_putc(out, '"');
}

static void json_put_f64(double v, struct strbuf *out)
{
    if (isfinite(v))
        strbuf_printf(out, "%.6g", v);
    else
        strbuf_puts(out, "null");
}

static void json_put_time(uint64_t wall_us, struct strbuf *out)
{
    time_t s = (time_t)(wall_us / 1000000u);
    struct tm tm;
    char text[40];

    if (!gmtime_r(&s, &tm)
        || strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
        (void)strcpy(text, "");
    json_put_text(text, out);
}

/* False: the value is unknown. */
static bool field_is_known(const struct live_field *f, const char *section)
{
    double d;

    if (live_numbers[f->type].is_signed)
        return (int64_t)number_load(f, section + f->at) >= 0;
    if (f->type == LIVE_F64) {
        memcpy(&d, section + f->at, sizeof(d));
        return d >= 0;
    }
    if (f->type == LIVE_TIME)
        return number_load(f, section + f->at) > 0;
    if (f->type == LIVE_TEXT)
        return section[f->at] != '\0';
    return live_numbers[f->type].size || load_u32(section + f->count) > 0;
}

static void
metrics_put_json(const struct live_field *f, const char *section, struct strbuf *out)
{
    const struct live_metric *metrics = (const void *)(section + f->at);
    uint32_t n = count_load(f, section, LIVE_METRICS_MAX);

    for (uint32_t i = 0; i < n; i++) {
        strbuf_putc(out, i ? ',' : '{');
        json_put_text(metrics[i].name, out);
        strbuf_putc(out, ':');
        json_put_f64(metrics[i].value, out);
    }
    strbuf_putc(out, '}');
}

static void
ranks_put_json(const struct live_field *f, const char *section, struct strbuf *out)
{
    uint32_t n = count_load(f, section, LIVE_MISSING_MAX);

    for (uint32_t i = 0; i < n; i++)
        strbuf_printf(out, "%c%u", i ? ',' : '[',
                      load_u32(section + f->at + 4 * (size_t)i));
    strbuf_putc(out, ']');
}

static void
field_put_json(const struct live_field *f, const char *section, struct strbuf *out)
{
    const char *p = section + f->at;
    double d;

    switch (f->type) {
    case LIVE_U32:
    case LIVE_U64:
        strbuf_printf(out, "%" PRIu64, number_load(f, p));
        return;
    case LIVE_I32:
    case LIVE_I64:
        strbuf_printf(out, "%" PRId64, (int64_t)number_load(f, p));
        return;
    case LIVE_MS:
        strbuf_printf(out, "%" PRIu64 ".%03u", number_load(f, p) / 1000,
                      (unsigned)(number_load(f, p) % 1000));
        return;
    case LIVE_F64:
        memcpy(&d, p, sizeof(d));
        json_put_f64(d, out);
        return;
    case LIVE_BOOL:
        strbuf_puts(out, number_load(f, p) ? "true" : "false");
        return;
    case LIVE_TIME:
        json_put_time(number_load(f, p), out);
        return;
    case LIVE_TEXT:
        json_put_text(p, out);
        return;
    case LIVE_STATE:
        json_put_text(live_state_name((enum live_state)load_u32(p)), out);
        return;
    case LIVE_CAUSE:
        json_put_text(live_cause_name((enum live_cause)load_u32(p)), out);
        return;
    case LIVE_RANK_STATE:
        json_put_text(live_rank_state_name((enum live_rank_state)load_u32(p)), out);
        return;
    case LIVE_METRICS:
        metrics_put_json(f, section, out);
        return;
    case LIVE_RANKS:
        ranks_put_json(f, section, out);
        return;
    }
}

/* Appends the members of a section; *n_members counts those of the object. */
static void section_put_json(const struct live_section *s,
                             const char *section,
                             size_t *n_members,
                             struct strbuf *out)
{
    for (size_t k = 0; k < s->n; k++) {
        if (!field_is_known(&s->fields[k], section))
            continue;
        strbuf_puts(out, (*n_members)++ ? "," : "");
        json_put_text(s->fields[k].name, out);
        strbuf_putc(out, ':');
        field_put_json(&s->fields[k], section, out);
    }
}

void live_sections_json(const struct live_section *s,
                        size_t n,
                        const void *whole,
                        struct strbuf *out)
{
    size_t n_members = 0;

    strbuf_putc(out, '{');
    for (size_t i = 0; i < n; i++) {
        const char *section = (const char *)whole + s[i].at;
        size_t inner = 0;

        if (s[i].is_there && !s[i].is_there(section))
            continue;
        if (!s[i].name) {
            section_put_json(&s[i], section, &n_members, out);
            continue;
        }
        strbuf_printf(out, "%s\"%s\":{", n_members++ ? "," : "", s[i].name);
        section_put_json(&s[i], section, &inner, out);
        strbuf_putc(out, '}');
    }
    strbuf_putc(out, '}');
}
