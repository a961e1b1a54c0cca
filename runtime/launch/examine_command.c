/* SPDX-License-Identifier: Apache-2.0 */
/* hvd-agent examine: the same examination by hand, for a job under any launcher. Also
 * reads for it, and for the agent, what ranks leave in HVD_STATS_DIR. Called by agent_main.c. */
#include "runtime/launch/examine.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/parse.h"
#include "runtime/contract/contract.h"
#include "runtime/contract/stats_page.h"
#include "runtime/launch/process.h"
#include "runtime/launch/stats_dir.h"

#define TEXT_MAX_BYTES   (64u << 20)
#define EXAMINE_LIMIT_NS (30 * NS_PER_S)

int examine_list(const char *stats_dir, struct examined_process **ret, size_t *ret_n)
{
    struct stats_page **pages;
    size_t n = stats_dir_read(stats_dir, &pages);
    struct examined_process *v = mem_calloc(n + 1, sizeof(*v));

    for (size_t i = 0; i < n && v; i++) {
        const struct stats_page *p = pages[i];
        CLEANUP(strbuf_release) struct strbuf gpu = {0};

        strbuf_init(&gpu, sizeof(v[i].gpu) - 1);
        hang_gpu_put(stats_word(p, STATS_DEVICE_SM), stats_word(p, STATS_DEVICE_NCCL),
                     stats_word(p, STATS_DEVICE_CUDA),
                     stats_word(p, STATS_DEVICE_BATCHES), &gpu);
        v[i].rank = p->rank;
        v[i].pid = p->pid;
        v[i].generation = p->generation;
        (void)snprintf(v[i].gpu, sizeof(v[i].gpu), "%s", strbuf_str(&gpu));
    }
    stats_dir_free(pages, n);
    if (!v)
        return -ENOMEM;
    *ret = v;
    *ret_n = n;
    return 0;
}

bool examine_read_stall(const char *stats_dir, struct stall_record *ret)
{
    char path[CONTRACT_PATH_MAX + 16];
    AUTOFREE char *text = NULL;
    size_t n;

    (void)snprintf(path, sizeof(path), "%s/%s", stats_dir, STALL_FILE);
    return fd_read_file(path, STALL_FILE_MAX_BYTES, &text, &n, NULL) == 0
           && stall_record_unpack(text, n, ret, NULL) == 0;
}

/* --- the command --- */

struct command {
    char dir[CONTRACT_PATH_MAX];
    struct examined_process *v;
    size_t n;
};

static int command_refuse(const char *what, const char *word)
{
    fprintf(stderr, "hvd-agent: examine: %s%s\n", what, word);
    return 2;
}

/* Only the processes that are named. Their folder is in their environment. */
static int command_select(struct command *c, char **words)
{
    AUTOFREE struct examined_process *all = TAKE(c->v);
    size_t n_all, n = 0;

    while (words[n])
        n++;
    if (!process_variable((uint32_t)strtoul(words[0], NULL, 10), "HVD_STATS_DIR",
                          c->dir, sizeof(c->dir)))
        return command_refuse("HVD_STATS_DIR is not in the environment of process ",
                              words[0]);
    if (examine_list(c->dir, &all, &n_all) < 0)
        return command_refuse("out of memory", "");
    c->v = mem_calloc(n, sizeof(*c->v));
    if (!c->v)
        return command_refuse("out of memory", "");
    for (; c->n < n; c->n++) {
        struct examined_process *p = &c->v[c->n];

        if (parse_u32("pid", words[c->n], 1, INT32_MAX, &p->pid, NULL) < 0)
            return command_refuse("not a process number: ", words[c->n]);
        p->rank = UINT32_MAX;
        for (size_t i = 0; i < n_all; i++)
            if (all[i].pid == p->pid)
                *p = all[i];
        if (p->rank == UINT32_MAX)
            return command_refuse("no rank of a world: process ", words[c->n]);
    }
    return 0;
}

static void command_print(const struct command *c, const struct examination *e)
{
    size_t n;
    const struct hang_finding *const *v = examination_findings(e, &n);
    AUTOFREE struct stack_text *texts = mem_calloc(n + 1, sizeof(*texts));
    CLEANUP(strbuf_release) struct strbuf out = {0};
    struct stall_record record;
    struct live_stall verdict;

    strbuf_init(&out, TEXT_MAX_BYTES);
    if (examine_read_stall(c->dir, &record)) {
        hang_conclude(&record, v, n, NULL, NULL, clock_wall_us(), &verdict);
        strbuf_printf(&out, "%s: %s\n", live_cause_name(verdict.cause), verdict.text);
    } else {
        strbuf_puts(&out, "no collective waits longer than the stall time\n");
    }
    for (size_t i = 0; i < n && texts; i++) {
        strbuf_printf(&out, "rank %u (pid %u): %s: %s\n", v[i]->rank, v[i]->pid,
                      live_cause_name(v[i]->cause), v[i]->does);
        texts[i] = (struct stack_text){v[i]->rank, v[i]->stacks};
    }
    if (texts) {
        strbuf_putc(&out, '\n');
        stacks_group(texts, n, &out);
    }
    (void)fputs(strbuf_str(&out), stdout);
}

int examine_command(char **words)
{
    struct command c = {.n = 0};
    struct examination *e = NULL;
    struct err err = ERR_INIT;
    int rc = 0;

    if (!words[0] || words[0][0] == '-')
        return command_refuse("it needs HVD_STATS_DIR of the ranks, or their process "
                              "numbers",
                              "");
    if (words[0][0] >= '0' && words[0][0] <= '9') {
        rc = command_select(&c, words);
    } else if (words[1]) {
        rc = command_refuse("one folder only, not also ", words[1]);
    } else {
        (void)snprintf(c.dir, sizeof(c.dir), "%s", words[0]);
        rc = examine_list(c.dir, &c.v, &c.n) < 0 ? command_refuse("out of memory", "")
                                                 : 0;
        if (rc == 0 && c.n == 0)
            rc = command_refuse("no rank has a page in ", c.dir);
    }
    if (rc == 0 && examination_start(c.v, c.n, c.dir, false, &e, &err) < 0)
        rc = command_refuse(err.text, "");
    if (rc == 0
        && fd_wait(examination_fd(e), POLLIN, clock_now_ns() + EXAMINE_LIMIT_NS) > 0)
        command_print(&c, e);
    else if (rc == 0)
        rc = command_refuse("the processes could not be examined within 30 s", "");
    examination_free(e);
    mem_free(c.v);
    return rc;
}
