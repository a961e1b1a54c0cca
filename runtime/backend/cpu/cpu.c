/* SPDX-License-Identifier: Apache-2.0 */
/* The cpu backend: the ops table.
 *
 * post() runs a batch to its end in the calling thread; poll() only returns the last
 * ticket. A sendrecv is only begun by post() and moved by poll() (transfer.c). After an
 * error the object cannot be used again (later posts repeat the first message), because
 * after a failed collective the ranks' positions in the segment and in the byte streams
 * differ.
 *
 * Called by the coordinator through backend_cpu. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/backend/cpu/cpu.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/unix.h"

static struct cpu *cpu_self(struct backend *b)
{
    return (struct cpu *)b; /* b is the first member */
}

static void cpu_close(struct backend *b)
{
    struct cpu *c = cpu_self(b);
    if (!c)
        return;
    agree_close(&c->agree);
    shm_detach(&c->shm);
    shm_map_release(&c->map);
    net_close(&c->net);
    fd_close(&c->unix_fd);
    fd_close(&c->tcp_fd);
    mem_free(c->peers);
    mem_free(c->host_of);
    mem_free(c->local_of);
    mem_free(c->order);
    mem_free(c->host_start);
    mem_free(c->pieces);
    mem_free(c->vecs);
    mem_free(c->own_global);
    mem_free(c);
}

static int listen_all(struct cpu *c, struct peer *me, struct err *err)
{
    const char *addr = c->env.local_addr;
    if (!addr || addr[0] == '\0')
        addr = "127.0.0.1";
    if (strlen(addr) >= sizeof(me->addr))
        return err_set(err, -EINVAL, "local address \"%.80s\" is too long", addr);
    snprintf(me->addr, sizeof(me->addr), "%s", addr);
    int rc = tcp_listen(addr, 0, &c->tcp_fd, &me->port, err);
    if (rc < 0 || !me->wants_shm)
        return rc;
    if (unix_listen(&c->unix_fd, me->sock, NULL) < 0)
        me->wants_shm = 0; /* no Unix sockets here: TCP works */
    return 0;
}

static int cpu_describe(const struct backend_env *env,
                        struct backend **ret,
                        void **ret_blob,
                        uint32_t *ret_n,
                        struct err *err)
{
    struct cpu *c = mem_zalloc(sizeof(*c));
    AUTOFREE struct peer *me = mem_zalloc(sizeof(*me));
    if (!c || !me) {
        mem_free(c);
        return err_set(err, -ENOMEM, "no memory for the cpu backend");
    }
    c->b.ops = &backend_cpu;
    agree_init(&c->agree);
    c->env = *env;
    c->is_wide = kernel_has_wide();
    c->w = (struct waiter){
        .check = cpu_check_waiting, .arg = c, .patience_ns = env->peer_timeout_ns};
    c->unix_fd = c->tcp_fd = c->map.fd = -1;
    size_t n = env->size;
    c->peers = mem_calloc(n, sizeof(*c->peers));
    c->host_of = mem_calloc(n, sizeof(*c->host_of));
    c->local_of = mem_calloc(n, sizeof(*c->local_of));
    c->order = mem_calloc(n, sizeof(*c->order));
    c->host_start = mem_calloc(n + 1, sizeof(*c->host_start));
    c->vecs = mem_calloc(n, 2 * sizeof(*c->vecs));
    int rc = 0;
    if (!c->peers || !c->host_of || !c->local_of || !c->order || !c->host_start
        || !c->vecs)
        rc = err_set(err, -ENOMEM, "no memory for %u ranks", env->size);
    if (rc == 0)
        rc = peer_describe(me, err);
    me->data_check = (uint8_t)env->data_check;
    if (rc == 0 && env->size > 1)
        rc = listen_all(c, me, err);
    if (rc < 0) {
        cpu_close(&c->b);
        return rc;
    }
    *ret = &c->b;
    *ret_n = sizeof(*me);
    *ret_blob = TAKE(me);
    return 0;
}

static int cpu_connect(struct backend *b,
                       uint8_t *const *blobs,
                       const uint32_t *sizes,
                       struct err *err)
{
    struct cpu *c = cpu_self(b);
    int rc = 0;
    for (uint32_t r = 0; r < c->env.size && rc == 0; r++)
        rc = peer_parse(blobs[r], sizes[r], cpu_global(c, r), &c->peers[r], err);
    if (rc == 0)
        rc = peers_check_data(c->peers, c->env.size, c->env.global, err);
    if (rc == 0)
        rc = group_connect(c, err);
    if (rc == 0)
        rc = agree_open(c, err);
    fd_close(&c->unix_fd);
    fd_close(&c->tcp_fd);
    if (rc < 0)
        (void)err_set(&c->broken, rc, "not connected");
    return rc;
}

static int cpu_post(struct backend *b,
                    const struct batch *batch,
                    uint64_t *ret_ticket,
                    struct err *err)
{
    struct cpu *c = cpu_self(b);
    int rc = coll_run(c, batch, err);
    if (rc == 0)
        *ret_ticket = ++c->n_posted;
    return rc;
}

static int cpu_poll(struct backend *b, uint64_t *ret_done, struct err *err)
{
    struct cpu *c = cpu_self(b);
    if (c->broken.code != 0)
        return err_set(err, -EPIPE, "%s", c->broken.text);
    int rc = transfer_move(c, err);
    *ret_done = c->n_posted - c->transfer.is_active;
    return rc;
}

/* Only the collectives between leaders of several hosts have such settings. */
static bool cpu_tune(struct backend *b, const struct tuning *t)
{
    struct cpu *c = cpu_self(b);
    if (t) {
        c->tuning = *t;
        net_set_tuning(&c->net, t);
    }
    return c->n_hosts > 1;
}

static void cpu_abort(struct backend *b)
{
    /* relaxed: waits check it every WAIT_SLICE_NS, and it publishes nothing else */
    atomic_store_explicit(&cpu_self(b)->is_aborted, true, memory_order_relaxed);
    agree_nudge(b);
}

const struct backend_ops backend_cpu = {
    .name = "cpu",
    .describe = cpu_describe,
    .connect = cpu_connect,
    .post = cpu_post,
    .poll = cpu_poll,
    .await = transfer_await,
    .subset = cpu_subset,
    .tune = cpu_tune,
    .agree_begin = agree_begin,
    .agree_poll = agree_poll,
    .doze = agree_doze,
    .nudge = agree_nudge,
    .abort = cpu_abort,
    .close = cpu_close,
};
