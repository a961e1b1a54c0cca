/* SPDX-License-Identifier: Apache-2.0 */
/* srun serves the gate and the rendezvous: it lives as long as its tasks, its address is known to
 * every node (SLURM_LAUNCH_NODE_IPADDR), and a port that it has bound cannot be taken
 * by another process: no guessed port, no race, no assumption about the node of rank 0.
 *
 * Two steps. The ticket (token and ports) is put into the environment in init_post_opt,
 * because Slurm copies the environment for the components of a heterogeneous step
 * before it calls local_user_init, which it then calls for only one of them. The server
 * starts in local_user_init, when job, step and size are known; earlier connections
 * wait in the listen queue.
 *
 * The server's thread blocks all signals: srun's own handling of Ctrl-C is
 * unaffected. */
#include "spank_plugin/srun.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/parse.h"
#include "runtime/rendezvous/rendezvous.h"
#include "spank_plugin/comment.h"
#include "spank_plugin/executable.h"
#include "spank_plugin/gate.h"
#include "spank_plugin/guard.h"
#include "spank_plugin/layout.h"
#include "spank_plugin/seal.h"
#include "spank_plugin/slurm_io.h"

#define MAX_HOSTFILE_BYTES   (4u << 20)
#define MAX_MULTI_PROG_BYTES (4u << 20)

static const char *own_env(void *arg, const char *name)
{
    (void)arg;
    return getenv(name);
}

/* On all addresses: only the nodes know which of srun's addresses they can reach. IPv4
 * only where the kernel has no IPv6. */
static int listen_on(uint16_t port, int *ret_fd, uint16_t *ret_port, struct err *err)
{
    if (tcp_listen("::", port, ret_fd, ret_port, err) == 0)
        return 0;
    return tcp_listen("0.0.0.0", port, ret_fd, ret_port, err);
}

/* start: a random number, so that several sruns of this host differ. */
static int
listen_in_range(uint32_t start, int *ret_fd, uint16_t *ret_port, struct err *err)
{
    const uint16_t *range = slurm_io_ports();
    if (!range || range[0] == 0)
        return listen_on(0, ret_fd, ret_port, err);
    uint32_t n = (uint32_t)range[1] - range[0] + 1;
    for (uint32_t i = 0; i < n; i++)
        if (listen_on((uint16_t)(range[0] + (start + i) % n), ret_fd, ret_port, err)
            == 0)
            return 0;
    return err_set(
        err, -EADDRINUSE,
        "slurm.conf: SrunPortRange=%u-%u: no port is free for the rendezvous "
        "(an srun --hvd requires three, with comment=off two)",
        range[0], range[1]);
}

static int srun_side_listen(struct srun_side *s, struct err *err)
{
    struct ticket *t = &s->ticket;
    uint32_t start = (uint32_t)(t->token.key[0] << 8 | t->token.key[1]);
    int rc = listen_in_range(start, &s->listen_fd, &t->port, err);
    if (!rc)
        rc = listen_in_range(start, &s->gate_fd, &t->gate_port, err);
    if (rc || s->mode == COMMENT_OFF)
        return rc;
    return listen_in_range(start, &s->ends_fd, &t->ends_port, err);
}

/* The first name in SLURM_HOSTFILE, if it can be read; otherwise Slurm itself reports
 * it. */
static int announce_first_host(struct err *err)
{
    const char *path = getenv("SLURM_HOSTFILE");
    AUTOFREE char *text = NULL;
    size_t n;
    (void)unsetenv(FIRST_HOST_ENV); /* an outer srun's */
    if (!path || fd_read_file(path, MAX_HOSTFILE_BYTES, &text, &n, NULL))
        return 0;
    char *name = text + strspn(text, " \t\n");
    name[strcspn(name, " \t\n*#")] = '\0';
    if (*name && setenv(FIRST_HOST_ENV, name, 1) != 0)
        return err_set(err, -ENOMEM, "out of memory");
    return 0;
}

int srun_side_check_command(struct err *err)
{
    char word[KEY_NAME_MAX * 4], name[KEY_NAME_MAX], path[PATH_MAX];
    struct step_key k;
    slurm_io_next_word(word, sizeof(word));
    (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(word, "=,"), word);
    if (!step_key_find(name, &k) || executable_find(word, getenv("PATH"), path))
        return 0;
    return err_set(err, -EINVAL,
                   "--hvd %s: there is no command \"%s\"; did you mean --hvd=%s? The "
                   "value follows \"=\" and not a blank",
                   word, word, word);
}

static int announce_keys(const struct step_options *o, struct err *err)
{
    CLEANUP(strbuf_release) struct strbuf keys;
    strbuf_init(&keys, 4 * STEP_MAX_BYTES);
    step_options_render(o, &keys);
    if (strbuf_status(&keys) || setenv(KEYS_ENV, strbuf_str(&keys), 1) != 0)
        return err_set(err, -ENOMEM, "out of memory");
    return 0;
}

void srun_side_clear(void)
{
    (void)unsetenv(TICKET_ENV);
    (void)unsetenv(KEYS_ENV);
    (void)unsetenv(FIRST_HOST_ENV);
}

int srun_side_check_munge(struct err *err)
{
    AUTOFREE char *cred = NULL;
    return seal_close(slurm_io_auth_info(), "", 0, &cred, err);
}

/* As for a bare srun (contract/from_slurm.c). */
static int read_generation(uint32_t *ret, struct err *err)
{
    const char *count = getenv("SLURM_RESTART_COUNT");
    if (!count || !*count)
        return 0;
    return parse_u32("SLURM_RESTART_COUNT", count, 0, UINT32_MAX, ret, err);
}

int srun_side_prepare(struct srun_side *s,
                      const struct step_options *o,
                      struct err *err)
{
    char text[TICKET_MAX_BYTES];
    AUTOFREE char *cred = NULL;
    int rc = token_random(&s->ticket.token, err);
    if (!rc)
        rc = read_generation(&s->ticket.generation, err);
    if (!rc)
        rc = srun_side_listen(s, err);
    if (rc)
        return rc;
    ticket_render(&s->ticket, text);
    rc = seal_close(slurm_io_auth_info(), text, strlen(text), &cred, err);
    explicit_bzero(text, sizeof(text));
    if (rc)
        return rc;
    if (setenv(TICKET_ENV, cred, 1) != 0)
        return err_set(err, -ENOMEM, "out of memory");
    rc = announce_keys(o, err);
    return rc ? rc : announce_first_host(err);
}

/* Slurm's item counts one component of a heterogeneous step; SLURM_NTASKS, which srun
 * itself has just set, counts them all. */
static int step_size(const struct plugin_step *step, uint32_t *ret, struct err *err)
{
    const char *n = getenv("SLURM_NTASKS");
    *ret = step->n_tasks;
    if (!getenv("SLURM_HET_SIZE") || !n)
        return 0;
    return parse_u32("SLURM_NTASKS", n, 1, WORLD_MAX_RANKS, ret, err);
}

/* With --multi-prog Slurm puts the text of the file argv[0] into argv[1], reads the
 * programs from there and argv[0] itself for debuggers. */
static bool is_multi_prog(char *const *argv, int argc)
{
    AUTOFREE char *text = NULL;
    size_t n;
    return argc > 1 && strchr(argv[1], '\n')
           && fd_read_file(argv[0], MAX_MULTI_PROG_BYTES, &text, &n, NULL) == 0
           && strcmp(text, argv[1]) == 0;
}

/* See guard.h. */
static int guard_command(struct spank_handle *sp, struct err *err)
{
    int argc = 0;
    char **argv = slurm_io_argv(sp, &argc);
    if (!argv)
        return err_set(err, -ENOENT, "Slurm does not provide the step's command");
    if (is_multi_prog(argv, argc))
        return 0;
    char *name = guard_put(argv[0]);
    if (!name)
        return err_set(err, -ENOMEM, "out of memory");
    argv[0] = name; /* stays: Slurm sends it until srun ends */
    return 0;
}

static void print_sentence(void *arg, const char *sentence)
{
    struct srun_side *s = arg;
    slurm_io_error("%s", sentence);
    if (s->comment)
        comment_take_sentence(s->comment, sentence);
}

static void srun_side_count(void *arg, uint32_t *ret_ready, uint32_t *ret_joined)
{
    const struct srun_side *s = arg;
    *ret_ready = gate_ready(s->gate);
    *ret_joined = rdv_server_joined(s->server);
}

/* A step without a comment runs all the same. */
static void srun_side_start_comment(struct srun_side *s,
                                    const struct plugin_step *step,
                                    uint32_t size,
                                    const char *job_id,
                                    const char *dir)
{
    const struct comment_config c = {.mode = s->mode,
                                     .token = &s->ticket.token,
                                     .job_id = job_id,
                                     .job = step->job_id,
                                     .step = step->step_id,
                                     .n_tasks = size,
                                     .start_ns = clock_now_ns(),
                                     .dir = dir};
    struct err err = ERR_INIT;
    if (s->mode == COMMENT_OFF
        || comment_start(&s->ends_fd, &c, &s->comment, &err) == 0)
        return;
    fd_close(&s->ends_fd);
    if (s->is_verbose)
        slurm_io_print("the job's comment does not show this step: %s", err.text);
}

static void print_waiting(const char *text, uint64_t waited_s)
{
    slurm_io_print("%s, for %llu s (HOROVOD_START_TIMEOUT is the limit)", text,
                   (unsigned long long)waited_s);
}

int srun_side_serve(struct srun_side *s,
                    struct spank_handle *sp,
                    const char *dir,
                    struct err *err)
{
    struct plugin_step step;
    char job_id[JOB_ID_MAX];
    uint32_t size;
    int rc = slurm_io_step(sp, &step, err);
    if (rc || !slurm_io_runs_tasks(&step)) /* salloc's shell */
        return rc;
    rc = guard_command(sp, err);
    if (rc || s->gate)
        return rc;
    rc = step_size(&step, &size, err);
    if (!rc)
        rc = layout_job_id(own_env, NULL, job_id, sizeof(job_id), err);
    if (rc)
        return rc;
    const struct auth_id id = {.token = &s->ticket.token,
                               .job_id = job_id,
                               .generation = s->ticket.generation};
    rc = rdv_server_start(s->listen_fd, &id, size, print_waiting, &s->server, err);
    if (rc)
        return rc;
    s->listen_fd = -1;
    srun_side_start_comment(s, &step, size, job_id, dir);
    rc = gate_open(&s->gate_fd, &s->ticket, job_id, size, print_sentence, s, &s->gate,
                   err);
    if (rc)
        return rc;
    if (s->comment)
        comment_count_by(s->comment, srun_side_count, s);
    if (s->is_verbose)
        slurm_io_print("%s: rendezvous for %u tasks at port %u", job_id, size,
                       s->ticket.port);
    return 0;
}

void srun_side_release(struct srun_side *s)
{
    if (s->comment)
        comment_count_by(s->comment, NULL, NULL);
    gate_close(s->gate);
    s->gate = NULL;
    rdv_server_stop(s->server);
    s->server = NULL;
    comment_end(s->comment);
    s->comment = NULL;
    fd_close(&s->listen_fd);
    fd_close(&s->gate_fd);
    fd_close(&s->ends_fd);
    token_wipe(&s->ticket.token);
}
