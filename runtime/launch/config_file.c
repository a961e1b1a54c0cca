/* SPDX-License-Identifier: Apache-2.0 */
/* YAML -> options_set_key, by libyaml's events:
 *
 *     params:                      section
 *       cycle_time_ms: 5           key in a section  -> params.cycle_time_ms
 *     controller: gloo             key at top level  -> controller
 *
 * The format consists of two levels of mappings and scalars; everything else is an
 * error. The installed program is static (musl) and contains Debian's libyaml.a, whose
 * parser needs only ISO C functions. Called by horovodrun.c. */
#include "runtime/launch/config_file.h"

#include <errno.h>
#include <string.h>

#include <yaml.h>

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"

#define FILE_MAX_BYTES (1u << 20)
#define KEY_MAX_BYTES  128

struct config_reader {
    struct launch_options *o;
    unsigned depth;
    char section[KEY_MAX_BYTES]; /* "params." or "" */
    /* key "": a key is expected next */
    char key[KEY_MAX_BYTES], full[2 * KEY_MAX_BYTES];
    unsigned documents;
    size_t line;
    struct err *err;
};

static bool event_is_null(const yaml_event_t *e)
{
    const char *s = (const char *)e->data.scalar.value;
    return e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE
           && (!*s || !strcmp(s, "~") || !strcasecmp(s, "null"));
}

static int reader_on_key(struct config_reader *r, const yaml_event_t *e)
{
    const char *s = (const char *)e->data.scalar.value;
    if (!*s || strlen(s) >= sizeof(r->key))
        return err_set(r->err, -EINVAL, "\"%.64s\" is not a key", s);
    r->line = e->start_mark.line + 1;
    (void)snprintf(r->key, sizeof(r->key), "%s", s);
    (void)snprintf(r->full, sizeof(r->full), "%s%s", r->section, r->key);
    return 0;
}

static int reader_on_scalar(struct config_reader *r, const yaml_event_t *e)
{
    const char *value = event_is_null(e) ? NULL : (const char *)e->data.scalar.value;
    if (!r->depth)
        return value ? err_set(r->err, -EINVAL,
                               "keys are expected, such as "
                               "\"params:\"")
                     : 0;
    if (!*r->key)
        return reader_on_key(r, e);
    r->key[0] = '\0';
    if (r->depth == 1 && options_has_section(r->full))
        return value ? err_set(r->err, -EINVAL,
                               "%s is a section: its keys must be below it, indented",
                               r->full)
                     : 0;
    return options_set_key(r->o, r->full, value, r->err);
}

static int reader_on_mapping(struct config_reader *r)
{
    if (r->depth == 2 || (r->depth && !*r->key))
        return err_set(r->err, -EINVAL,
                       "%s has keys below it where a value is expected", r->full);
    if (r->depth && !options_has_section(r->full)) {
        int rc = options_set_key(r->o, r->full, NULL, r->err);
        return rc < 0
                   ? rc
                   : err_set(r->err, -EINVAL,
                             "%s has keys below it where a value is expected", r->full);
    }
    if (r->depth)
        (void)snprintf(r->section, sizeof(r->section), "%.*s.", KEY_MAX_BYTES - 2,
                       r->full);
    r->key[0] = '\0';
    r->depth++;
    return 0;
}

static int reader_on_event(struct config_reader *r, const yaml_event_t *e)
{
    switch (e->type) {
    case YAML_SCALAR_EVENT:
        return reader_on_scalar(r, e);
    case YAML_MAPPING_START_EVENT:
        return reader_on_mapping(r);
    case YAML_MAPPING_END_EVENT:
        r->depth--;
        r->section[0] = '\0';
        return 0;
    case YAML_DOCUMENT_START_EVENT:
        return r->documents++ ? err_set(r->err, -EINVAL, "more than one document") : 0;
    case YAML_SEQUENCE_START_EVENT:
        return err_set(r->err, -EINVAL, "%s is a list; no key allows one",
                       *r->full ? r->full : "the file");
    case YAML_ALIAS_EVENT:
        return err_set(r->err, -EINVAL, "aliases (*%.40s) are not supported",
                       (const char *)e->data.alias.anchor);
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_STREAM_END_EVENT:
    case YAML_DOCUMENT_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        return 0;
    }
    return 0;
}

static int
parser_syntax_error(const yaml_parser_t *p, const char *path, struct err *err)
{
    if (p->error == YAML_MEMORY_ERROR)
        return err_set(err, -ENOMEM, "out of memory for %s", path);
    return err_set(err, -EINVAL, "%s: line %zu: %s", path, p->problem_mark.line + 1,
                   p->problem ? p->problem : "invalid YAML");
}

static int reader_read_events(yaml_parser_t *p,
                              const char *path,
                              struct config_reader *r,
                              struct err *err)
{
    for (bool is_end = false; !is_end;) {
        yaml_event_t e;
        if (!yaml_parser_parse(p, &e))
            return parser_syntax_error(p, path, err);
        int rc = reader_on_event(r, &e);
        size_t line = r->line ? r->line : e.start_mark.line + 1;
        is_end = e.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&e);
        if (rc < 0)
            return err_prefix(err, "%s: line %zu", path, line), rc;
    }
    return 0;
}

int config_text_read(const char *path,
                     const char *text,
                     size_t n,
                     struct launch_options *o,
                     struct err *err)
{
    yaml_parser_t parser;
    struct config_reader r = {.o = o, .err = err};
    if (!yaml_parser_initialize(&parser))
        return err_set(err, -ENOMEM, "out of memory for %s", path);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
    int rc = reader_read_events(&parser, path, &r, err);
    yaml_parser_delete(&parser);
    return rc;
}

int config_file_read(void *arg,
                     const char *path,
                     struct launch_options *o,
                     struct err *err)
{
    AUTOFREE char *text = NULL;
    size_t n = 0;
    (void)arg;
    int rc = fd_read_file(path, FILE_MAX_BYTES, &text, &n, err);
    if (rc < 0)
        return err_prefix(err, "--config-file"), rc;
    return config_text_read(path, text, n, o, err);
}
