/* SPDX-License-Identifier: Apache-2.0 */
/* A set of links (link.c). At most AT_ONCE attempts run at the same time: sshd drops
 * connections beyond MaxStartups, and each ssh is a process on this host. Called by
 * remote.c and remote_agent.c. */
#include "runtime/launch/links.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/contract/slurm_step.h"

#define AT_ONCE   32
#define LINKS_MAX HOSTLIST_MAX_HOSTS

/* Our environment without the variables of our own ssh session; for srun without those
 * of a step, which it would read as options. */
static int link_common_set_environment(struct link_common *k, struct err *err)
{
    size_t kept = 0;
    if (words_copy(k->c.env, &k->env, err) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < k->env.n; i++) {
        if (!strncmp(k->env.v[i], "SSH_CONNECTION=", 15)
            || !strncmp(k->env.v[i], "SSH_CLIENT=", 11)
            || (*k->c.ssh.slurm_job && slurm_step_owns(k->env.v[i])))
            mem_free(k->env.v[i]);
        else
            k->env.v[kept++] = k->env.v[i];
    }
    k->env.n = kept;
    k->env.v[kept] = NULL;
    return 0;
}

int links_init(struct link_set *s, const struct links_config *c, struct err *err)
{
    memset(s, 0, sizeof(*s));
    s->common.c = *c;
    return link_common_set_environment(&s->common, err);
}

void links_release(struct link_set *s)
{
    for (size_t i = 0; i < s->n; i++)
        link_release(&s->common, &s->v[i]);
    mem_free(s->v);
    words_release(&s->common.env);
    token_wipe(&s->common.c.root);
    memset(s, 0, sizeof(*s));
}

int links_add(struct link_set *s,
              enum link_kind kind,
              const char *host,
              uint32_t first,
              uint32_t end,
              struct err *err)
{
    void *v = s->v;
    int rc = mem_grow(&v, s->n, &s->cap, sizeof(*s->v), LINKS_MAX);
    s->v = v;
    if (rc < 0)
        return err_set(err, rc, "out of memory for the hosts");
    link_init(&s->v[s->n++], kind, host, first, end);
    return 0;
}

void links_renew(struct link_set *s,
                 size_t i,
                 enum link_kind kind,
                 const char *host,
                 uint64_t deadline_ns)
{
    struct link *l = &s->v[i];
    const uint32_t first = l->first, end = l->end;
    link_release(&s->common, l);
    link_init(l, kind, host, first, end);
    s->common.c.deadline_ns = deadline_ns;
}

void links_drop(struct link_set *s, size_t i, const char *why)
{
    if (s->v[i].state != LINK_ENDING && s->v[i].state != LINK_GONE)
        link_end(&s->common, &s->v[i], why);
}

void links_adopt(struct link_set *s, size_t i, pid_t pid, int fd)
{
    link_adopt(&s->v[i], pid, fd);
}

void links_child_reaped(struct link_set *s, pid_t pid)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i].pid == pid)
            link_kill(&s->common, &s->v[i]); /* what is left of its group */
}

static struct link *links_to(struct link_set *s, uint32_t host)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i].first <= host && host < s->v[i].end && s->v[i].state == LINK_OPEN)
            return &s->v[i];
    return NULL;
}

static void links_start_some(struct link_set *s)
{
    size_t busy = 0;
    for (size_t i = 0; i < s->n; i++)
        busy += link_is_opening(&s->v[i]);
    for (size_t i = 0; i < s->n && busy < AT_ONCE; i++) {
        if (s->v[i].state != LINK_NEW)
            continue;
        busy++;
        link_start(&s->common, &s->v[i]);
    }
}

nfds_t links_pollfds(const struct link_set *s, struct pollfd *p)
{
    nfds_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        n += link_pollfds(&s->v[i], p + n);
    return n;
}

void links_serve(struct link_set *s)
{
    uint64_t now_ns = clock_now_ns();
    for (size_t i = 0; i < s->n; i++)
        link_serve(&s->common, &s->v[i], now_ns);
    links_start_some(s);
}

uint64_t links_next_ns(const struct link_set *s, uint64_t now_ns)
{
    uint64_t due = UINT64_MAX;
    for (size_t i = 0; i < s->n; i++)
        due = earlier_ns(due, link_next_ns(&s->common, &s->v[i]));
    return due < now_ns ? now_ns : due;
}

void links_send(struct link_set *s,
                enum errand_type type,
                uint32_t host,
                const struct strbuf *payload)
{
    struct link *l = links_to(s, host);
    if (l)
        link_send(&s->common, l, type, host, payload);
}

size_t links_left(const struct link_set *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        n += s->v[i].state != LINK_GONE;
    return n;
}

bool links_are_opening(const struct link_set *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (link_is_opening(&s->v[i]) || s->v[i].state == LINK_ENDING)
            return true;
    return false;
}

void links_close(struct link_set *s, bool all)
{
    for (size_t i = 0; i < s->n; i++) {
        struct link *l = &s->v[i];
        if (l->state == LINK_NEW)
            l->state = LINK_GONE;
        else if (link_is_opening(l) || (all && l->state == LINK_OPEN))
            link_end(&s->common, l, "closed");
    }
}
