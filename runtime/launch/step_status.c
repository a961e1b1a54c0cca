/* SPDX-License-Identifier: Apache-2.0 */
/* Nothing of ours runs beside the ranks of a Slurm step that could be asked. So hvd-status
 * starts a second, overlapping step, one task on each node:
 *
 *   squeue -> which step, whose, on which nodes
 *   srun --jobid=J --overlap -N<nodes> hvd-agent step J.S    (one for each component)
 *        <- lines: records, rank 0's stall, findings (core/step_line.h)
 *        -> "E n": examine the ranks
 *
 * and leads the job for as long as it looks, with the code of the hub (live_lead.h). Slurm
 * authenticates: only the job's user can start a step in the job.
 *
 * One look takes two records of each rank, LIVE_EVERY_S seconds apart, for rates; of a job
 * that is stalled one record, and the stacks. A rank that delays the other ranks is known
 * after STRAGGLE_WINDOWS windows, so with --watch only.
 * Called by agent_main.c. */
#include "runtime/launch/step_status.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/launch/core/step_line.h"
#include "runtime/launch/live_lead.h"
#include "runtime/launch/report.h"
#include "runtime/launch/step_record.h"
#include "runtime/launch/step_target.h"
#include "runtime/live/live_text.h"

#define PRINT_NS  (LIVE_EVERY_S * NS_PER_S)
#define RATES_NS  (8 * NS_PER_S)  /* after this a report needs no rates */
#define ANSWER_NS (15 * NS_PER_S) /* for the other nodes, after the first */
#define FIRST_NS  (30 * NS_PER_S) /* for the first node */
#define INPUT_MAX (1u << 20)

struct step_peer { /* the process on a node */
    struct step_part part;
    bool is_present, has_ranks;
};

struct step_asker { /* an srun, which asks one component */
    struct slurm_srun srun;
    uint32_t first; /* of its tasks, among those of all components */
    struct strbuf in;
};

struct step_watch {
    bool is_json, is_line, with_ranks, repeats;
    struct slurm_commands slurm;
    struct step_word word;
    struct step_target target;
    struct step_asker *askers; /* [target.found.n_parts] */
    struct live_lead lead;
    bool has_lead;
    struct step_peer *peers; /* [target.n_tasks] */
    uint32_t *peer_of;       /* [found.n_tasks] by rank */
    uint32_t n_present, n_with_ranks;
    bool has_begun, has_world; /* ranks are known; all are in the world */
    uint64_t world_ms;
    struct strbuf stall; /* that came before has_world */
    bool has_stall;
    uint64_t begin_ns, print_ns;
    bool has_printed;
};

static const char usage[] =
    "usage: hvd-status [--watch] [--json | --line] [--verbose] JOB[.STEP]\n\n"
    "Prints what the ranks of a running srun --hvd do: progress, stall, straggler;\n"
    "of one that has ended, its first failure.\n"
    "  --watch    every 5 seconds, until the step ends\n"
    "  --json     one JSON object a report\n"
    "  --line     one line a report\n"
    "  --verbose  also each rank and, in a stall, the stacks\n";

/* --- the lead --------------------------------------------------------------------- */

/* To the processes on all nodes. */
static void watch_send(struct step_watch *w, const char *line)
{
    for (uint32_t i = 0; i < w->target.found.n_parts; i++)
        (void)fd_write_full(w->askers[i].srun.fd, line, strlen(line),
                            clock_now_ns() + NS_PER_S);
}

static void watch_examine(void *arg, uint32_t number)
{
    char line[32];

    (void)snprintf(line, sizeof(line), "E %u\n", number);
    watch_send(arg, line);
}

/* Of a process of ours. */
static const char *peer_host(const struct step_watch *w, uint32_t peer)
{
    uint32_t i = w->target.found.n_parts - 1;

    while (w->askers[i].first > peer)
        i--;
    return w->target.hosts[i].v[peer - w->askers[i].first].name;
}

static const char *watch_host_of(void *arg, uint32_t rank)
{
    const struct step_watch *w = arg;

    return rank < w->target.found.n_tasks ? peer_host(w, w->peer_of[rank]) : "";
}

static void watch_init_lead(struct step_watch *w)
{
    const struct live_lead_config c = {.examine = watch_examine,
                                       .host_of = watch_host_of,
                                       .is_silent = true,
                                       .arg = w};

    live_lead_init(&w->lead, &c);
    live_lead_meet(&w->lead, 0, (uint32_t)w->target.n_tasks);
    live_lead_set_present(&w->lead, w->n_present);
}

/* Ranks of a node as horovodrun places them; 1 where Slurm has dealt them differently. */
static uint32_t watch_slots(const struct step_watch *w, const struct step_hello *h)
{
    bool is_block = h->last - h->first + 1 == h->n_ranks && h->first % h->n_ranks == 0;

    return is_block && (uint64_t)h->n_ranks * w->target.n_tasks == h->size ? h->n_ranks
                                                                           : 1;
}

static void watch_begin(struct step_watch *w, const struct step_hello *h)
{
    w->has_begun = true;
    live_lead_release(&w->lead);
    watch_init_lead(w);
    live_lead_start(&w->lead, h->size, watch_slots(w, h));
    live_job_join(&w->lead.job, h->run_ms, 0);
}

static void watch_take_hello(struct step_watch *w, struct step_peer *p, struct err *err)
{
    struct step_hello h;

    if (step_hello_parse(strbuf_str(&p->part.data), p->part.data.n, &h, err) < 0)
        return;
    if (h.size > 0 && h.size != w->target.found.n_tasks) {
        (void)err_set(err, -EPROTO, "%s: a job of %u ranks, but the step has %u tasks",
                      h.host, h.size, w->target.found.n_tasks);
        return;
    }
    w->n_present += !p->is_present;
    w->n_with_ranks += h.n_ranks > 0;
    w->n_with_ranks -= p->has_ranks;
    p->is_present = true;
    p->has_ranks = h.n_ranks > 0;
    live_lead_set_present(&w->lead, w->n_present);
    if (p->has_ranks && !w->has_begun)
        watch_begin(w, &h);
}

static void watch_give(struct step_watch *w,
                       enum live_part part,
                       uint32_t number,
                       const struct strbuf *b)
{
    live_lead_take_part(&w->lead, part, number, strbuf_str(b), b->n);
}

static void watch_take_record(struct step_watch *w, uint32_t peer)
{
    const struct strbuf *b = &w->peers[peer].part.data;
    AUTOFREE struct live_rank *r = mem_alloc(sizeof(*r));

    if (!r || live_rank_unpack(strbuf_str(b), b->n, r, NULL) < 0
        || r->rank >= w->target.found.n_tasks)
        return;
    w->peer_of[r->rank] = peer;
    if (r->state == LIVE_RANK_IN_WORLD && r->age_ms > w->world_ms)
        w->world_ms = r->age_ms;
    watch_give(w, LIVE_PART_RECORD, 0, b);
    if (w->has_world || w->lead.job.state != LIVE_TRAINING)
        return;
    w->has_world = true;
    live_job_join(&w->lead.job, 0, w->world_ms);
    if (w->has_stall)
        watch_give(w, LIVE_PART_STALL, 0, &w->stall);
}

static void watch_take_part(struct step_watch *w, uint32_t peer, struct err *err)
{
    struct step_peer *p = &w->peers[peer];

    switch (p->part.kind) {
    case STEP_HELLO:
        watch_take_hello(w, p, err);
        break;
    case STEP_RECORD:
        watch_take_record(w, peer);
        break;
    case STEP_STALL:
        strbuf_clear(&w->stall);
        strbuf_add(&w->stall, strbuf_str(&p->part.data), p->part.data.n);
        w->has_stall = true;
        if (w->has_world)
            watch_give(w, LIVE_PART_STALL, 0, &p->part.data);
        break;
    case STEP_FINDING:
        watch_give(w, LIVE_PART_FINDING, p->part.number, &p->part.data);
        break;
    case STEP_FACTS: /* not asked for */
        break;
    }
}

static void
watch_take_line(struct step_watch *w, const struct step_asker *a, const char *line)
{
    struct err err = ERR_INIT;
    const char *rest;
    uint32_t task;

    if (!step_line_label(line, &task, &rest)
        || task >= w->target.hosts[a - w->askers].n)
        (void)err_set(&err, -EPROTO, "srun printed \"%.100s\"", line);
    else if (step_part_take(&w->peers[a->first + task].part, rest, &err) > 0)
        watch_take_part(w, a->first + task, &err);
    if (!err.code)
        return;
    step_line_clean(err.text);
    fprintf(stderr, "hvd-status: %s\n", err.text);
}

/* False: srun has closed its output. */
static bool watch_read(struct step_watch *w, struct step_asker *a)
{
    char text[65536];
    ssize_t n = read(a->srun.fd, text, sizeof(text));
    const char *from, *end;

    if (n <= 0)
        return n < 0 && (errno == EAGAIN || errno == EINTR);
    strbuf_add(&a->in, text, (size_t)n);
    if (strbuf_status(&a->in) < 0) {
        strbuf_clear(&a->in);
        return true;
    }
    from = strbuf_str(&a->in);
    while ((end = strchr(from, '\n')) != NULL) {
        a->in.p[end - a->in.p] = '\0';
        watch_take_line(w, a, from);
        from = end + 1;
    }
    a->in.n -= (size_t)(from - a->in.p);
    memmove(a->in.p, from, a->in.n + 1);
    return true;
}

/* --- the report ------------------------------------------------------------------- */

static void watch_put_ranks(const struct step_watch *w, struct strbuf *out)
{
    const struct live_job *j = &w->lead.job;

    if (w->is_json)
        strbuf_putc(out, '[');
    else
        live_rank_text(NULL, out);
    for (uint32_t i = 0; i < j->n_ranks; i++) {
        struct live_rank r = j->ranks[i];

        r.rank = i; /* of one that has not reported */
        if (w->is_json && i > 0)
            strbuf_putc(out, ',');
        if (w->is_json)
            live_rank_json(&r, out);
        else
            live_rank_text(&r, out);
    }
    if (w->is_json)
        strbuf_puts(out, "]\n");
}

static void watch_print(struct step_watch *w)
{
    AUTOFREE struct live_report *r = mem_alloc(sizeof(*r));
    CLEANUP(strbuf_release) struct strbuf out = {0};

    if (!r)
        return; /* the next time */
    strbuf_init(&out, REPORT_TEXT_MAX);
    live_job_advance(&w->lead.job, clock_now_ns());
    live_job_report(&w->lead.job, clock_wall_us(), r);
    if (r->state == LIVE_STARTING && w->n_with_ranks < w->target.n_tasks
        && w->world_ms == 0) {
        r->state = LIVE_MEETING; /* tasks wait at the gate for those of other nodes */
        r->n_present = w->n_with_ranks;
    }
    if (w->repeats && !w->is_json && !w->is_line && isatty(1))
        strbuf_puts(&out, "\033[H\033[2J");
    else if (w->has_printed && !w->is_json && !w->is_line)
        strbuf_putc(&out, '\n');
    if (w->is_json || w->is_line) {
        (w->is_json ? live_report_json : live_report_line)(r, &out);
        strbuf_putc(&out, '\n');
    } else {
        strbuf_printf(&out, "Slurm job %u, step %u, on %s\n", w->target.job.lead,
                      w->target.found.step, strbuf_str(&w->target.nodes));
        live_report_text(r, &out);
    }
    if (w->with_ranks)
        watch_put_ranks(w, &out);
    if (w->with_ranks && !w->is_json && r->stall.has_stacks && w->lead.exam.text)
        strbuf_puts(&out, w->lead.exam.text);
    (void)fwrite(strbuf_str(&out), 1, out.n, stdout);
    (void)fflush(stdout);
    w->has_printed = true;
}

/* --- the loop --------------------------------------------------------------------- */

/* Everything that one look can see is known. A job that is stalled has no rates. */
static bool watch_is_complete(const struct step_watch *w)
{
    const struct live_job *j = &w->lead.job;
    uint64_t age_ns = clock_now_ns() - w->begin_ns;
    bool is_stalled = j->state == LIVE_STALLED && j->stall.has_stacks;

    if (!w->has_begun || w->lead.exam.deadline_ns > 0)
        return false;
    if (age_ns >= ANSWER_NS)
        return true;
    return w->n_present == w->target.n_tasks
           && (j->n_samples >= 2 || is_stalled || age_ns >= RATES_NS);
}

static void watch_name_absent(const struct step_watch *w)
{
    CLEANUP(strbuf_release) struct strbuf names = {0};
    unsigned n = 0;

    strbuf_init(&names, 4096);
    for (size_t i = 0; i < w->target.n_tasks; i++)
        if (!w->peers[i].is_present && n++ < 8)
            strbuf_printf(&names, "%s%s", n > 1 ? ", " : "", peer_host(w, (uint32_t)i));
    fprintf(stderr, "hvd-status: %u of %zu nodes do not answer: %s%s\n", n,
            w->target.n_tasks, strbuf_str(&names), n > 8 ? ", .." : "");
}

/* None on the nodes that have answered, and the other nodes have had their time. */
static bool watch_has_no_ranks(const struct step_watch *w, uint64_t now_ns)
{
    uint64_t wait_ns = w->n_present == w->target.n_tasks ? RATES_NS : ANSWER_NS;

    return !w->has_begun && w->n_present > 0 && now_ns - w->begin_ns >= wait_ns;
}

/* 0 or 1: the loop ends with this exit code; -1: it continues. */
static int watch_step(struct step_watch *w)
{
    uint64_t now_ns = clock_now_ns();

    if (w->n_present > 0 && w->begin_ns == 0)
        w->begin_ns = now_ns;
    if (w->has_begun && w->n_with_ranks == 0) {
        fprintf(stderr, "hvd-status: step %u.%u has ended\n", w->target.job.lead,
                w->target.found.step);
        return !w->has_printed;
    }
    if (watch_has_no_ranks(w, now_ns)) {
        if (w->n_present < w->target.n_tasks)
            watch_name_absent(w);
        fprintf(stderr, "hvd-status: step %u.%u has no ranks of srun --hvd%s\n",
                w->target.job.lead, w->target.found.step,
                w->n_present < w->target.n_tasks ? " on the other nodes" : "");
        return 1;
    }
    live_lead_serve(&w->lead);
    if (now_ns < w->print_ns || !(w->has_printed || watch_is_complete(w)))
        return -1;
    if (!w->has_printed && w->n_present < w->target.n_tasks)
        watch_name_absent(w);
    watch_print(w);
    w->print_ns = now_ns + PRINT_NS;
    watch_send(w, "\n"); /* the reader is alive */
    return w->repeats ? -1 : w->n_present < w->target.n_tasks;
}

/* Waits and reads. False: an srun has closed its output, and with it the step ends. */
static bool watch_receive(struct step_watch *w, struct pollfd *p)
{
    const uint32_t n = w->target.found.n_parts;
    uint64_t due_ns =
        earlier_ns(live_lead_next_ns(&w->lead), clock_now_ns() + NS_PER_S);
    bool is_open = true;

    p[2 * n] = (struct pollfd){.fd = w->slurm.signals.fd, .events = POLLIN};
    for (uint32_t i = 0; i < n; i++) {
        const struct slurm_srun *r = &w->askers[i].srun;

        p[2 * i] = (struct pollfd){.fd = r->fd, .events = POLLIN};
        p[2 * i + 1] = (struct pollfd){.fd = r->child.stderr_fd, .events = POLLIN};
    }
    (void)poll(p, 2 * n + 1, clock_left_ms(due_ns));
    for (uint32_t i = 0; i < n; i++) {
        slurm_srun_take_messages(&w->askers[i].srun);
        if (p[2 * i].revents && !watch_read(w, &w->askers[i]))
            is_open = false;
    }
    return is_open;
}

static int watch_run(struct step_watch *w)
{
    AUTOFREE struct pollfd *p = mem_calloc(2 * w->target.found.n_parts + 1, sizeof(*p));
    uint64_t first_ns = clock_now_ns() + FIRST_NS;
    int code = -1;

    if (!p)
        fprintf(stderr, "hvd-status: out of memory\n");
    while (p && code < 0) {
        bool is_open = watch_receive(w, p);
        int sig = slurm_commands_take_signals(&w->slurm);

        if (sig)
            return 128 + sig;
        if (!is_open) {
            fprintf(stderr, "hvd-status: step %u.%u %s\n", w->target.job.lead,
                    w->target.found.step,
                    w->has_begun ? "has ended" : "cannot be asked (srun failed)");
            return !w->has_printed;
        }
        code = watch_step(w);
        if (code < 0 && w->n_present == 0 && clock_now_ns() >= first_ns) {
            fprintf(stderr,
                    "hvd-status: step %u.%u: no node answers within %llu s (%s)\n",
                    w->target.job.lead, w->target.found.step,
                    (unsigned long long)(FIRST_NS / NS_PER_S),
                    strbuf_str(&w->target.nodes));
            return 1;
        }
    }
    return code < 0 ? 1 : code;
}

/* --- start ------------------------------------------------------------------------ */

static int watch_start(struct step_watch *w, struct err *err)
{
    const uint32_t n = w->target.found.n_parts;
    uint32_t first = 0;
    int rc = 0;

    w->askers = mem_calloc(n, sizeof(*w->askers));
    w->peers = mem_calloc(w->target.n_tasks, sizeof(*w->peers));
    w->peer_of = mem_calloc(w->target.found.n_tasks, sizeof(*w->peer_of));
    for (uint32_t i = 0; w->askers && i < n; i++) {
        w->askers[i].srun.fd = w->askers[i].srun.child.stderr_fd = -1;
        w->askers[i].first = first;
        strbuf_init(&w->askers[i].in, INPUT_MAX);
        first += (uint32_t)w->target.hosts[i].n;
    }
    if (!w->askers || !w->peers || !w->peer_of)
        return err_set(err, -ENOMEM, "out of memory for %zu nodes", w->target.n_tasks);
    watch_init_lead(w);
    w->has_lead = true;
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        rc = step_target_ask(&w->target, i, &w->slurm, &w->askers[i].srun, err);
    return rc;
}

static void watch_end_askers(struct step_watch *w)
{
    for (uint32_t i = 0; w->askers && i < w->target.found.n_parts; i++)
        if (w->askers[i].srun.fd >= 0) /* all end at once */
            (void)shutdown(w->askers[i].srun.fd, SHUT_WR);
    for (uint32_t i = 0; w->askers && i < w->target.found.n_parts; i++) {
        slurm_srun_end(&w->askers[i].srun, &w->slurm);
        strbuf_release(&w->askers[i].in);
    }
    mem_free(w->askers);
}

static void watch_release(struct step_watch *w)
{
    if (w->has_lead)
        live_lead_release(&w->lead);
    for (size_t i = 0; w->peers && i < w->target.n_tasks; i++)
        step_part_release(&w->peers[i].part);
    mem_free(w->peers);
    mem_free(w->peer_of);
    step_target_release(&w->target);
    strbuf_release(&w->stall);
    slurm_commands_release(&w->slurm);
    mem_free(w);
}

/* -1, or the exit code. */
static int watch_read_words(struct step_watch *w, char *const *argv)
{
    const struct {
        const char *word, *letter;
        bool *is_set;
    } options[] = {{"--watch", "-w", &w->repeats},
                   {"--json", "-j", &w->is_json},
                   {"--line", "-l", &w->is_line},
                   {"--verbose", "-v", &w->with_ranks}};
    struct err err = ERR_INIT;
    const char *job = NULL;

    for (; *argv; argv++) {
        bool is_known = false;

        if (strcmp(*argv, "--help") == 0 || strcmp(*argv, "-h") == 0)
            return fputs(usage, stdout) < 0;
        for (size_t i = 0; i < ARRAY_LEN(options); i++)
            if (strcmp(*argv, options[i].word) == 0
                || strcmp(*argv, options[i].letter) == 0)
                *options[i].is_set = is_known = true;
        if (!is_known && (job || **argv == '-'))
            (void)err_set(&err, -EINVAL, "unknown %s: %s",
                          **argv == '-' ? "option" : "second job", *argv);
        else if (!is_known)
            job = *argv;
    }
    if (!err.code && !job)
        (void)err_set(&err, -EINVAL, "the number of the job is missing");
    if (!err.code && w->is_line && (w->is_json || w->with_ranks))
        (void)err_set(&err, -EINVAL, "--line excludes --json and --verbose");
    if (!err.code)
        (void)step_word_parse(job, &w->word, &err);
    if (!err.code)
        return -1;
    fprintf(stderr, "hvd-status: %s (see hvd-status --help)\n", err.text);
    return 2;
}

int step_status(char *const *argv)
{
    struct step_watch *w = mem_zalloc(sizeof(*w));
    struct err err = ERR_INIT;
    bool has_record;
    int code, rc;

    if (!w) {
        fprintf(stderr, "hvd-status: out of memory\n");
        return 1;
    }
    code = watch_read_words(w, argv);
    if (code >= 0) {
        mem_free(w);
        return code;
    }
    strbuf_init(&w->stall, STEP_PART_MAX);
    rc = slurm_commands_init(&w->slurm, &err);
    rc = rc < 0 ? rc : step_target_find(&w->target, &w->slurm, &w->word, &err);
    has_record = (rc == -ESRCH || rc == -ENOENT) && !w->slurm.stop
                 && step_record_print(&w->slurm, &w->word, w->is_json);
    rc = rc < 0 ? rc : watch_start(w, &err);
    code = !has_record;
    if (rc < 0 && !has_record)
        fprintf(stderr, "hvd-status: %s\n", err.text);
    else if (rc == 0)
        code = watch_run(w);
    watch_end_askers(w);
    watch_release(w);
    return code;
}
