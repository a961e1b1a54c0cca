/* SPDX-License-Identifier: Apache-2.0 */
/* One job step with a task on each idle node, which prints a line of facts; the judgement
 * is in core/node_facts.c. The step runs without --hvd, because a node without the plugin
 * ends any step that has it.
 *
 *   scontrol show config, sinfo -> what to ask, whom
 *   munge -> a credential of this host  --standard input of srun--> unmunge on each node
 *
 * The credential is sent by srun's connection and not as an argument, where others could
 * read it. Called by agent_main.c. */
#include "runtime/launch/slurm_check.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/launch/core/step_line.h"
#include "runtime/launch/slurm_facts.h"

#define ANSWER_NS   (120 * NS_PER_S)
#define OUTPUT_MAX  (16u << 20)
#define CHECK_NODES 65536u

struct survey {
    struct slurm_commands slurm;
    const char *nodelist, *partition; /* of the user; NULL: none */
    char plugstack[300], plugin_dir[1024], auth_info[300], credential[2048];
    struct node_facts login;
    struct node_facts *nodes; /* that are shown */
    size_t n, cap, n_idle, n_other;
    struct step_part *parts; /* [n_idle], by task */
};

static const char usage[] =
    "usage: hvd-slurm-check [--nodelist LIST] [--partition NAME]\n\n"
    "Asks all idle nodes (or those that are named) what they have of what srun --hvd\n"
    "needs: the plugin, the runtime, munge, versions, interfaces, memory limits. "
    "Prints\n"
    "a table, and a sentence for each problem. Exit code 1: there are problems.\n";

/* --- questions -------------------------------------------------------------------- */

/* "Key   = value" of scontrol show config. "": not there, or "(null)". */
static void
check_take_setting(const char *text, const char *key, char *ret, size_t size)
{
    size_t n = strlen(key);

    *ret = '\0';
    for (const char *p = text; *p;) {
        size_t line = strcspn(p, "\n");
        const char *value = memchr(p, '=', line);

        if (value && strncmp(p, key, n) == 0 && strchr(" \t=", p[n])) {
            value += 1 + strspn(value + 1, " \t");
            (void)snprintf(ret, size, "%.*s", (int)(p + line - value), value);
        }
        p += line + (p[line] == '\n');
    }
    if (strcmp(ret, "(null)") == 0)
        *ret = '\0';
}

static int check_read_config(struct survey *c, struct err *err)
{
    char scontrol[] = "scontrol", show[] = "show", config[] = "config";
    char *argv[] = {scontrol, show, config, NULL};
    CLEANUP(strbuf_release) struct strbuf out = {0};
    int rc;

    strbuf_init(&out, OUTPUT_MAX);
    rc = slurm_commands_run(&c->slurm, argv, SLURM_COMMAND_MS, &out, err);
    check_take_setting(strbuf_str(&out), "PlugStackConfig", c->plugstack,
                       sizeof(c->plugstack));
    check_take_setting(strbuf_str(&out), "PluginDir", c->plugin_dir,
                       sizeof(c->plugin_dir));
    check_take_setting(strbuf_str(&out), "AuthInfo", c->auth_info,
                       sizeof(c->auth_info));
    return rc;
}

static void check_read_credential(struct survey *c)
{
    char socket[300], script[400], sh[] = "sh", flag[] = "-c";
    char *argv[] = {sh, flag, script, NULL};
    CLEANUP(strbuf_release) struct strbuf out = {0};
    struct err err = ERR_INIT;

    slurm_munge_socket(c->auth_info, socket, sizeof(socket));
    (void)snprintf(script, sizeof(script), "munge %s-n", socket);
    strbuf_init(&out, sizeof(c->credential) - 1);
    /* without it each node says that this host has no munge */
    if (slurm_commands_run(&c->slurm, argv, SLURM_COMMAND_MS, &out, &err) == 0)
        (void)snprintf(c->credential, sizeof(c->credential), "%.*s",
                       (int)strcspn(strbuf_str(&out), "\n"), strbuf_str(&out));
}

/* One that is not asked has a state. */
static int
check_add_node(struct survey *c, const char *name, const char *state, struct err *err)
{
    void *v = c->nodes;
    bool is_idle = strcmp(state, "idle") == 0;
    struct node_facts *f;

    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->nodes[i].node, name) == 0)
            return 0; /* of another partition */
    c->n_idle += is_idle;
    c->n_other += !is_idle;
    if (!is_idle && !c->nodelist)
        return 0;
    if (mem_grow(&v, c->n, &c->cap, sizeof(*c->nodes), CHECK_NODES) < 0)
        return err_set(err, -ENOMEM, "out of memory for %zu nodes", c->n);
    c->nodes = v;
    f = &c->nodes[c->n++];
    *f = (struct node_facts){.state = is_idle ? "no answer" : "not idle"};
    (void)snprintf(f->node, sizeof(f->node), "%s", name);
    (void)snprintf(f->slurm, sizeof(f->slurm), "%s", state);
    return 0;
}

static int check_read_nodes(struct survey *c, struct err *err)
{
    char sinfo[] = "sinfo", h[] = "-h", n[] = "-N", o[] = "-o", format[] = "%N|%T";
    char p[] = "-p", w[] = "-n";
    AUTOFREE char *partition = c->partition ? mem_strdup(c->partition) : NULL;
    AUTOFREE char *list = c->nodelist ? mem_strdup(c->nodelist) : NULL;
    char *argv[12] = {sinfo, h, n, o, format};
    CLEANUP(strbuf_release) struct strbuf out = {0};
    size_t k = 5;
    int rc;

    if ((c->partition && !partition) || (c->nodelist && !list))
        return err_set(err, -ENOMEM, "out of memory");
    if (partition) {
        argv[k++] = p;
        argv[k++] = partition;
    }
    if (list) {
        argv[k++] = w;
        argv[k++] = list;
    }
    strbuf_init(&out, OUTPUT_MAX);
    rc = slurm_commands_run(&c->slurm, argv, SLURM_COMMAND_MS, &out, err);
    for (char *rest = out.p, *line; rc == 0 && (line = strsep(&rest, "\n")) != NULL;) {
        char *bar = strchr(line, '|');

        if (!bar)
            continue;
        *bar = '\0';
        rc = check_add_node(c, line, bar + 1, err);
    }
    if (rc == 0 && c->n_idle + c->n_other == 0)
        rc = err_set(err, -ENOENT, "Slurm knows no such node or partition");
    return rc;
}

/* --- the step --------------------------------------------------------------------- */

static char *check_nodelist(const struct survey *c)
{
    struct strbuf b;
    unsigned n = 0;

    strbuf_init(&b, OUTPUT_MAX);
    strbuf_puts(&b, "--nodelist=");
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->nodes[i].slurm, "idle") == 0)
            strbuf_printf(&b, "%s%s", n++ ? "," : "", c->nodes[i].node);
    return strbuf_take(&b);
}

static int check_start(struct survey *c, struct slurm_srun *ret, struct err *err)
{
    char words[][24] = {"srun",
                        "--ntasks-per-node=1",
                        "--cpus-per-task=1",
                        "--mem=0",
                        "--mpi=none",
                        "--quiet",
                        "--label",
                        "--kill-on-bad-exit=0",
                        "--immediate=60",
                        "--chdir=/",
                        "--time=5",
                        "--job-name=hvd-check"};
    char nodes[32], tasks[32], facts[] = "facts", partition[300];
    AUTOFREE char *list = check_nodelist(c);
    char *argv[ARRAY_LEN(words) + 10];
    size_t n = 0;

    c->parts = mem_calloc(c->n_idle, sizeof(*c->parts));
    if (!list || !c->parts)
        return err_set(err, -ENOMEM, "out of memory");
    for (; n < ARRAY_LEN(words); n++)
        argv[n] = words[n];
    (void)snprintf(nodes, sizeof(nodes), "--nodes=%zu", c->n_idle);
    (void)snprintf(tasks, sizeof(tasks), "--ntasks=%zu", c->n_idle);
    argv[n++] = nodes;
    argv[n++] = tasks;
    argv[n++] = list;
    if (c->partition) {
        (void)snprintf(partition, sizeof(partition), "--partition=%s", c->partition);
        argv[n++] = partition;
    }
    argv[n++] = c->slurm.self;
    argv[n++] = facts;
    argv[n++] = c->plugstack;
    argv[n++] = c->auth_info;
    argv[n] = NULL;
    return slurm_srun_start(&c->slurm, argv, ret, err);
}

static void check_take_line(struct survey *c, const char *line)
{
    struct node_facts f;
    struct err err = ERR_INIT;
    const char *rest;
    uint32_t task;
    int rc = 1;

    if (!step_line_label(line, &task, &rest) || task >= c->n_idle)
        rc = err_set(&err, -EPROTO, "%s", line); /* srun's own */
    rc = rc < 0 ? rc : step_part_take(&c->parts[task], rest, &err);
    if (rc > 0)
        rc = node_facts_parse(strbuf_str(&c->parts[task].data), &f, &err);
    else if (rc == 0)
        return; /* more follows */
    if (rc < 0) {
        step_line_clean(err.text);
        fprintf(stderr, "hvd-slurm-check: %s\n", err.text);
        return;
    }
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->nodes[i].node, f.node) == 0)
            c->nodes[i] = f;
}

/* Until all have answered, srun has ended or the time is over. Returns a signal that ends
 * this program, or 0. */
static int check_collect(struct survey *c, struct slurm_srun *srun)
{
    uint64_t deadline_ns = clock_now_ns() + ANSWER_NS;
    struct strbuf in;
    bool is_open = true;
    int sig = 0;

    strbuf_init(&in, OUTPUT_MAX);
    (void)fd_write_full(srun->fd, c->credential, strlen(c->credential), deadline_ns);
    (void)fd_write_full(srun->fd, "\n", 1, deadline_ns);
    (void)fd_write_full(srun->fd, c->plugin_dir, strlen(c->plugin_dir), deadline_ns);
    (void)fd_write_full(srun->fd, "\n", 1, deadline_ns);
    (void)shutdown(srun->fd, SHUT_WR);
    while (is_open && sig == 0 && clock_now_ns() < deadline_ns) {
        struct pollfd p[3] = {{.fd = srun->fd, .events = POLLIN},
                              {.fd = c->slurm.signals.fd, .events = POLLIN},
                              {.fd = srun->child.stderr_fd, .events = POLLIN}};
        char text[4096];

        (void)poll(p, 3, clock_left_ms(deadline_ns));
        slurm_srun_take_messages(srun);
        sig = slurm_commands_take_signals(&c->slurm);
        ssize_t n = p[0].revents ? read(srun->fd, text, sizeof(text)) : -1;
        if (n > 0)
            strbuf_add(&in, text, (size_t)n);
        is_open = n != 0;
    }
    for (char *rest = in.p, *line; (line = strsep(&rest, "\n")) != NULL;)
        if (*line)
            check_take_line(c, line);
    strbuf_release(&in);
    return sig;
}

/* --- the answer ------------------------------------------------------------------- */

static int check_print(const struct survey *c)
{
    CLEANUP(strbuf_release) struct strbuf table = {0}, problems = {0};
    unsigned n = 0;

    strbuf_init(&table, OUTPUT_MAX);
    strbuf_init(&problems, OUTPUT_MAX);
    node_facts_row(NULL, &table);
    for (size_t i = 0; i < c->n; i++) {
        node_facts_row(&c->nodes[i], &table);
        n += node_facts_judge(&c->nodes[i], &c->login, &problems);
    }
    (void)fputs(strbuf_str(&table), stdout);
    if (c->n_other > 0 && !c->nodelist)
        printf("%zu other nodes are not idle and were not asked.\n", c->n_other);
    if (n > 0)
        printf("\n%s", strbuf_str(&problems));
    else
        printf("\nNo problem on %zu nodes.\n", c->n_idle);
    return n > 0;
}

static int check_run(struct survey *c, int *ret_code, struct err *err)
{
    struct slurm_srun srun = {.fd = -1, .child = {.stderr_fd = -1}};
    int sig = 0, rc = check_read_config(c, err);

    rc = rc < 0 ? rc : check_read_nodes(c, err);
    if (rc < 0)
        return rc;
    check_read_credential(c);
    const struct facts_question q = {.plugstack = c->plugstack,
                                     .plugin_dir = c->plugin_dir,
                                     .auth_info = c->auth_info};
    slurm_facts_read(&c->slurm, &q, &c->login);
    if (strcmp(c->login.plugstack, FACTS_OK) != 0)
        fprintf(stderr, "hvd-slurm-check: this host: %s: srun has no --hvd here\n",
                c->login.plugstack);
    if (c->n_idle > 0)
        rc = check_start(c, &srun, err);
    if (rc == 0 && c->n_idle > 0)
        sig = check_collect(c, &srun);
    slurm_srun_end(&srun, &c->slurm);
    if (rc == 0)
        *ret_code = sig ? 128 + sig : check_print(c);
    return rc;
}

/* -1, or the exit code. */
static int check_read_words(struct survey *c, char *const *argv)
{
    for (; *argv; argv++) {
        const char *value = strchr(*argv, '=');
        size_t n = value ? (size_t)(value - *argv) : strlen(*argv);
        bool is_list = (n == 10 && strncmp(*argv, "--nodelist", n) == 0)
                       || strcmp(*argv, "-w") == 0;
        bool is_partition = (n == 11 && strncmp(*argv, "--partition", n) == 0)
                            || strcmp(*argv, "-p") == 0;

        if (strcmp(*argv, "--help") == 0 || strcmp(*argv, "-h") == 0)
            return fputs(usage, stdout) < 0;
        if (!is_list && !is_partition) {
            fprintf(
                stderr,
                "hvd-slurm-check: unknown option: %s (see hvd-slurm-check --help)\n",
                *argv);
            return 2;
        }
        value = value ? value + 1 : argv[1] ? *++argv : "";
        if (!*value) {
            fprintf(stderr, "hvd-slurm-check: %s requires a value\n",
                    is_list ? "--nodelist" : "--partition");
            return 2;
        }
        *(is_list ? &c->nodelist : &c->partition) = value;
    }
    return -1;
}

int slurm_check(char *const *argv)
{
    struct survey *c = mem_zalloc(sizeof(*c));
    struct err err = ERR_INIT;
    int code = c ? check_read_words(c, argv) : 1, rc;

    if (code >= 0) {
        mem_free(c);
        return code;
    }
    code = 1;
    rc = slurm_commands_init(&c->slurm, &err);
    rc = rc < 0 ? rc : check_run(c, &code, &err);
    if (rc < 0)
        fprintf(stderr, "hvd-slurm-check: %s\n", err.text);
    slurm_commands_release(&c->slurm);
    for (size_t i = 0; c->parts && i < c->n_idle; i++)
        step_part_release(&c->parts[i]);
    mem_free(c->parts);
    mem_free(c->nodes);
    mem_free(c);
    return code;
}

int agent_facts(char *const *argv)
{
    struct slurm_commands slurm = {.env = NULL};
    CLEANUP(strbuf_release) struct strbuf out = {0}, facts = {0};
    struct err err = ERR_INIT;
    struct node_facts f;
    char credential[2048] = "", plugin_dir[1024] = "";

    if (!argv[0] || !argv[1] || argv[2]) {
        fprintf(stderr, "hvd-agent: facts is started by hvd-slurm-check\n");
        return 2;
    }
    if (fgets(credential, sizeof(credential), stdin))
        credential[strcspn(credential, "\n")] = '\0';
    if (fgets(plugin_dir, sizeof(plugin_dir), stdin))
        plugin_dir[strcspn(plugin_dir, "\n")] = '\0';
    (void)setenv(FACTS_CREDENTIAL, credential, 1); /* before the commands' copy */
    if (slurm_commands_init(&slurm, &err) < 0) {
        fprintf(stderr, "hvd-agent: %s\n", err.text);
        return 1;
    }
    const struct facts_question q = {.plugstack = argv[0],
                                     .plugin_dir = plugin_dir,
                                     .auth_info = argv[1],
                                     .has_credential = *credential != '\0'};
    slurm_facts_read(&slurm, &q, &f);
    slurm_commands_release(&slurm);
    strbuf_init(&facts, 8192);
    strbuf_init(&out, 32768);
    node_facts_put(&f, &facts);
    step_line_put(STEP_FACTS, 0, strbuf_str(&facts), facts.n, &out);
    (void)fputs(strbuf_str(&out), stdout);
    return fflush(stdout) != 0;
}
