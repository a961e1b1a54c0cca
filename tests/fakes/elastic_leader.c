/* SPDX-License-Identifier: Apache-2.0 */
/* elastic-leader TOKEN_FILE: the launcher of an elastic job, for tests/python. It does
 * what it reads, and writes what its processes say, one line each:
 *
 *   form GENERATION SLOT...      name NAME
 *   break GENERATION WHY         ready SLOT INCARNATION GENERATION
 *   notify GENERATION BITS       commit SLOT GENERATION
 *                                gone SLOT
 *
 * It ends with its input. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/elastic_leader.h"

static void lead_form(struct leader *l, uint32_t generation, const char *rest)
{
    uint32_t slots[LEADER_MAX], n = 0;
    char *end = NULL;

    for (const char *p = rest; n < LEADER_MAX; p = end) {
        slots[n] = (uint32_t)strtoul(p, &end, 10);
        if (end == p)
            break;
        n++;
    }
    if (leader_form(l, generation, slots, n) < 0)
        exit(3);
}

static void lead_do(struct leader *l, char *line)
{
    char word[16] = "";
    unsigned generation = 0;
    int at = 0;

    line[strcspn(line, "\n")] = 0;
    if (sscanf(line, "%15s %u %n", word, &generation, &at) < 2)
        exit(2);
    if (strcmp(word, "form") == 0)
        lead_form(l, generation, line + at);
    else if (strcmp(word, "break") == 0)
        leader_break(l, generation, line + at);
    else if (strcmp(word, "notify") == 0)
        leader_notify(l, generation, (uint32_t)strtoul(line + at, NULL, 10));
    else
        exit(2);
}

static void lead_show(const struct leader_event *e)
{
    const struct member_message *m = &e->message;

    if (e->type == LEADER_GONE)
        (void)printf("gone %u\n", e->slot);
    else if (e->type == LEADER_MESSAGE && m->type == MEMBER_READY)
        (void)printf("ready %u %u %u\n", m->slot, m->incarnation, m->generation);
    else if (e->type == LEADER_MESSAGE && m->type == MEMBER_COMMIT)
        (void)printf("commit %u %u\n", e->slot, m->generation);
    else if (e->type == LEADER_MESSAGE && m->type == MEMBER_ENDING)
        (void)printf("ending %u %u %s\n", e->slot, m->generation, m->why);
}

/* Lines that have arrived. False: the end of the input. */
static bool lead_read(struct leader *l)
{
    static char buf[4096];
    static size_t n;
    ssize_t k = read(STDIN_FILENO, buf + n, sizeof(buf) - 1 - n);
    char *end;

    if (k <= 0)
        return false;
    n += (size_t)k;
    buf[n] = 0;
    while ((end = strchr(buf, '\n'))) {
        size_t used = (size_t)(end + 1 - buf);

        lead_do(l, buf);
        n -= used;
        memmove(buf, buf + used, n + 1);
    }
    return true;
}

int main(int argc, char **argv)
{
    static struct leader l;
    struct err err = ERR_INIT;
    struct leader_event e;

    if (argc != 2 || leader_open(&l, argv[1], &err) < 0) {
        (void)fprintf(stderr, "elastic-leader: %s\n", err.text);
        return 2;
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    (void)printf("name %s\n", l.name);
    do {
        e = leader_next(&l, STDIN_FILENO, UINT64_MAX);
        lead_show(&e);
    } while (e.type != LEADER_NOTHING || lead_read(&l));
    leader_close(&l);
    return 0;
}
