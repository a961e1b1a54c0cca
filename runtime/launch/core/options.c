/* SPDX-License-Identifier: Apache-2.0 */
/* Spellings are Horovod's, including its single-dash long ones (-np, -hostfile,
 * -prefix-timestamp), so getopt_long does not fit. "--name=value" and "--name value"
 * both work. Every row of the table is in --help and, by tests/launch/manual.sh, in
 * horovodrun(1). Called by horovodrun.c. */
#include "runtime/launch/core/options.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/parse.h"

enum kind { KIND_FLAG, KIND_TEXT, KIND_COUNT, KIND_SECONDS };

struct option_row {
    const char *name, *alias; /* alias "" : none */
    const char *value;        /* name of the value in help, "" for flags */
    enum kind kind;
    size_t offset;
    const char *help;
};

#define AT(field) offsetof(struct run_options, field)

static const struct option_row table[] = {
    {"-np", "--num-proc", "N", KIND_COUNT, AT(np), "number of processes to start"},
    {"-H", "--hosts", "HOST:SLOTS,...", KIND_TEXT, AT(hosts),
     "hosts and their slots; this version: localhost only (default: localhost:N)"},
    {"-hostfile", "--hostfile", "FILE", KIND_TEXT, AT(hostfile),
     "the same from a file, lines \"HOST slots=N\""},
    {"--start-timeout", "", "SECONDS", KIND_SECONDS, AT(start_timeout_ms),
     "how long ranks wait for each other at start (default: 600)"},
    {"--output-filename", "", "DIR", KIND_TEXT, AT(output_dir),
     "also write each rank's output to DIR/rank.N/stdout and stderr"},
    {"-prefix-timestamp", "--prefix-output-with-timestamp", "", KIND_FLAG,
     AT(with_timestamp), "put the time before the rank prefix of each line"},
    {"--log-level", "", "LEVEL", KIND_TEXT, AT(log_level),
     "TRACE, DEBUG, INFO, WARNING, ERROR or FATAL (default: WARNING)"},
    {"--gloo", "", "", KIND_FLAG, AT(is_gloo),
     "accepted and ignored: there is one engine"},
    {"--verbose", "", "", KIND_FLAG, AT(verbose),
     "say what is started and how it ended"},
    {"-v", "--version", "", KIND_FLAG, AT(wants_version), "print the version and exit"},
    {"-h", "--help", "", KIND_FLAG, AT(wants_help), "print this help and exit"},
};

/* Edit distance, bounded: names are short. */
static unsigned distance(const char *a, size_t a_len, const char *b)
{
    enum { MAX = 48 };
    unsigned row[MAX + 1];
    size_t b_len = strlen(b);
    if (a_len > MAX || b_len > MAX)
        return MAX;
    for (size_t j = 0; j <= b_len; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; i <= a_len; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b_len; j++) {
            unsigned change = diagonal + (a[i - 1] != b[j - 1]);
            unsigned gap = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = change < gap ? change : gap;
        }
    }
    return row[b_len];
}

static const char *nearest(const char *name, size_t len)
{
    const char *best = table[0].name;
    unsigned best_distance = UINT32_MAX;
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const char *names[2] = {table[i].name, table[i].alias};
        for (size_t k = 0; k < 2; k++) {
            unsigned d = *names[k] ? distance(name, len, names[k]) : UINT32_MAX;
            if (d < best_distance) {
                best_distance = d;
                best = names[k];
            }
        }
    }
    return best;
}

static const struct option_row *find(const char *name, size_t len)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const char *names[2] = {table[i].name, table[i].alias};
        for (size_t k = 0; k < 2; k++)
            if (*names[k] && strlen(names[k]) == len && !strncmp(names[k], name, len))
                return &table[i];
    }
    return NULL;
}

static int store(const struct option_row *row,
                 const char *value,
                 struct run_options *o,
                 struct err *err)
{
    char *at = (char *)o + row->offset;
    switch (row->kind) {
    case KIND_FLAG:
        *(bool *)(void *)at = true;
        return 0;
    case KIND_TEXT:
        memcpy(at, &value, sizeof(value));
        return 0;
    case KIND_COUNT:
        return parse_u32(row->name, value, 1, OPTIONS_MAX_NP, (uint32_t *)(void *)at,
                         err);
    case KIND_SECONDS:
        return parse_duration_ms(row->name, value, 1, 7ull * 24 * 3600 * 1000,
                                 (uint64_t *)(void *)at, err);
    }
    return 0;
}

int options_parse(int argc, char *const *argv, struct run_options *ret, struct err *err)
{
    struct run_options o = {0};
    int i = 1;
    for (; i < argc && argv[i][0] == '-' && argv[i][1]; i++) {
        const char *word = argv[i], *value = NULL;
        if (!strcmp(word, "--")) {
            i++;
            break;
        }
        const char *equals = strchr(word, '=');
        size_t len = equals ? (size_t)(equals - word) : strlen(word);
        const struct option_row *row = find(word, len);
        if (!row)
            return err_set(err, -EINVAL,
                           "unknown option %.*s; the nearest is %s (see --help)",
                           (int)len, word, nearest(word, len));
        if (row->kind == KIND_FLAG && equals)
            return err_set(err, -EINVAL, "%s takes no value", row->name);
        if (row->kind != KIND_FLAG) {
            value = equals ? equals + 1 : i + 1 < argc ? argv[++i] : NULL;
            if (!value)
                return err_set(err, -EINVAL, "%s needs a value: %s", row->name,
                               row->value);
        }
        int rc = store(row, value, &o, err);
        if (rc < 0)
            return rc;
    }
    o.command = argv + i;
    *ret = o;
    return 0;
}

void options_help(const char *program, struct strbuf *out)
{
    strbuf_printf(
        out,
        "usage: %s -np N [options] [--] command [arguments]\n\n"
        "Starts N processes of the command, each as one rank of a Horovod job.\n\n",
        program);
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const struct option_row *r = &table[i];
        strbuf_printf(out, "  %s%s%s%s%s\n      %s\n", r->name, *r->alias ? ", " : "",
                      r->alias, *r->value ? " " : "", r->value, r->help);
    }
    strbuf_printf(
        out,
        "\nThe exit code is that of the first rank that failed, 128 + signal when it "
        "was killed,\n127 or 126 when the command cannot be started, 2 for a wrong "
        "command line, 125 for\na failure of %s itself.\n",
        program);
}
