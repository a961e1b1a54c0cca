/* SPDX-License-Identifier: Apache-2.0 */
/* A line of ours is recognised by its head, so the user's text may be anything else and
 * may change at any time. Called by spank_plugin/comment.c and launch/step_record.c. */
#include "runtime/contract/step_comment.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "runtime/contract/places.h"

#define RECORD_FIELDS 5 /* of STEP_COMMENT_FORMAT */

static const char mark[] = "hvd ", between[] = " | ";

/* Cuts a line off *rest into its fields. False: it is no row. */
static bool job_record_cut(char **rest, char *ret[RECORD_FIELDS])
{
    char *p = *rest, *end = p + strcspn(p, "\n");

    *rest = *end ? end + 1 : end;
    *end = '\0';
    for (int i = 0; i < RECORD_FIELDS; i++) {
        ret[i] = p;
        p = i + 1 < RECORD_FIELDS ? strchr(p, '|') : NULL;
        if (i + 1 < RECORD_FIELDS && !p)
            return false;
        if (p)
            *p++ = '\0';
    }
    return true;
}

int job_record_read(char *text, uint32_t job, struct job_record *ret)
{
    struct job_record found = {.job = 0};
    bool has_found = false;

    while (*text) {
        char *field[RECORD_FIELDS], *plus;
        uint32_t number;
        bool is_lead;

        if (!job_record_cut(&text, field)
            || parse_u32("job", field[0], 1, UINT32_MAX, &number, NULL) < 0)
            return -EINVAL;
        plus = strchr(field[1], '+');
        is_lead = job == 0 && plus && strcmp(plus, "+0") == 0;
        if ((has_found && !is_lead) || (job && number != job))
            continue;
        has_found = true;
        found.job = number;
        found.comment = strcmp(field[4], "(null)") == 0 ? "" : field[4];
        (void)snprintf(found.word, sizeof(found.word), "%s", field[1]);
        (void)snprintf(found.state, sizeof(found.state), "%s", field[2]);
        (void)snprintf(found.reason, sizeof(found.reason), "%s", field[3]);
    }
    if (!has_found)
        return -ENOENT;
    *ret = found;
    return 0;
}

uint32_t job_record_lead(const struct job_record *r)
{
    uint32_t lead, index;

    return sscanf(r->word, "%u+%u", &lead, &index) == 2 ? lead : r->job;
}

/* "hvd 12.0: ..." */
static bool step_comment_parse(const char *text, struct step_comment *ret)
{
    int end = 0;

    if (strncmp(text, mark, sizeof(mark) - 1) != 0
        || sscanf(text + sizeof(mark) - 1, "%u.%u: %n", &ret->job, &ret->step, &end)
               != 2
        || end == 0)
        return false;
    ret->line = text + sizeof(mark) - 1 + end;
    return true;
}

/* Where our part begins, the separator included; NULL: nowhere. */
static const char *step_comment_find(const char *comment, struct step_comment *ret)
{
    if (step_comment_parse(comment, ret))
        return comment;
    for (const char *p = comment; (p = strstr(p, between)) != NULL; p++)
        if (step_comment_parse(p + sizeof(between) - 1, ret))
            return p;
    return NULL;
}

bool step_comment_read(const char *comment, struct step_comment *ret)
{
    struct step_comment c = {.job = 0};

    if (!step_comment_find(comment, &c))
        return false;
    *ret = c;
    return true;
}

int step_comment_put(const char *comment,
                     uint32_t job,
                     uint32_t step,
                     const char *line,
                     struct strbuf *out)
{
    struct step_comment earlier;
    const char *ours = step_comment_find(comment, &earlier);
    size_t n_user = ours ? (size_t)(ours - comment) : strlen(comment);
    char head[48];
    size_t n, room;

    n = (size_t)snprintf(head, sizeof(head), "%s%s%u.%u: ", n_user > 0 ? between : "",
                         mark, job, step);
    if (n_user + n + 32 >= STEP_COMMENT_MAX)
        return -E2BIG;
    room = STEP_COMMENT_MAX - 1 - n_user - n;
    strbuf_add(out, comment, n_user);
    strbuf_puts(out, head);
    for (; *line && room > 0; line++, room--)
        strbuf_putc(out, (unsigned char)*line < 0x20 || *line == 0x7f ? '?' : *line);
    return strbuf_status(out);
}

bool step_comment_failure(const char *line, struct failure *ret)
{
    struct failure f = {.rank = -1};
    char host[HOST_NAME_MAX_BYTES];
    long rank;
    int end = 0;
    size_t n;

    _Static_assert(sizeof(host) == 256, "the width below");
    if (strncmp(line, STEP_COMMENT_FAILED, strlen(STEP_COMMENT_FAILED)) != 0)
        return false;
    line += strlen(STEP_COMMENT_FAILED);
    (void)snprintf(f.why, sizeof(f.why), "%s", line); /* may be cut */
    if (sscanf(line, "rank %ld on %255s %n", &rank, host, &end) == 2 && end > 0
        && rank >= 0 && rank < WORLD_MAX_RANKS) {
        line += end;
        end = 0;
        if (sscanf(line, "exited with code %d%n", &f.exit_code, &end) == 1
            || sscanf(line, "was killed by signal %d%n", &f.signal, &end) == 1) {
            f.rank = (int32_t)rank;
            memcpy(f.host, host, sizeof(f.host));
        }
    }
    n = strlen(f.why);
    while (n > 0 && f.why[n - 1] == '\n')
        f.why[--n] = '\0';
    *ret = f;
    return true;
}
