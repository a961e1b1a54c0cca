/* SPDX-License-Identifier: Apache-2.0 */
/* Writers append to a strbuf; readers return an error for invalid data (bytes.h). The
 * version is the first field and is read first, so that a JOB of another version is
 * refused with both versions in the error message. Called by remote.c and
 * remote_agent.c; fuzzed by tests/fuzz/errand_fuzz.c. */
#include "runtime/launch/core/errand.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/wire/bytes.h"

void words_release(struct errand_words *w)
{
    for (size_t i = 0; i < w->n; i++)
        mem_free(w->v[i]);
    mem_free(w->v);
    memset(w, 0, sizeof(*w));
}

static int words_room(struct errand_words *w, size_t n)
{
    memset(w, 0, sizeof(*w));
    w->v = n <= ERRAND_MAX_WORDS ? mem_calloc(n + 1, sizeof(*w->v)) : NULL;
    return w->v ? 0 : -ENOMEM;
}

int words_copy(char *const *from, struct errand_words *ret, struct err *err)
{
    size_t n = 0;
    while (from[n])
        n++;
    if (n > ERRAND_MAX_WORDS)
        return err_set(err, -E2BIG, "%zu words exceed %d", n, ERRAND_MAX_WORDS);
    int rc = words_room(ret, n);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        ret->v[i] = mem_strdup(from[i]);
        if (!ret->v[i])
            rc = -ENOMEM;
        else
            ret->n = i + 1;
    }
    if (rc < 0) {
        words_release(ret);
        return err_set(err, rc, "out of memory for %zu words", n);
    }
    return 0;
}

static void errand_put_words(struct strbuf *out, const struct errand_words *w)
{
    bytes_put_u32(out, (uint32_t)w->n);
    for (size_t i = 0; i < w->n; i++)
        bytes_put_str(out, w->v[i]);
}

static void errand_get_words(struct bytes_reader *r, struct errand_words *ret)
{
    uint32_t n = bytes_u32(r);
    /* each word has at least a length */
    if (n > r->left / 4 || words_room(ret, n) < 0) {
        r->is_bad = true;
        return;
    }
    for (uint32_t i = 0; i < n && !r->is_bad; i++) {
        ret->v[i] = bytes_text(r);
        if (ret->v[i])
            ret->n = i + 1;
    }
}

static void errand_put_hosts(struct strbuf *out, const struct hostlist *hosts)
{
    bytes_put_u32(out, (uint32_t)hosts->n);
    for (size_t i = 0; i < hosts->n; i++) {
        bytes_put_str(out, hosts->v[i].name);
        bytes_put_u32(out, hosts->v[i].slots);
    }
}

static void errand_get_hosts(struct bytes_reader *r, struct hostlist *ret)
{
    uint32_t n = bytes_u32(r);
    hostlist_init(ret);
    if (n > HOSTLIST_MAX_HOSTS)
        r->is_bad = true;
    for (uint32_t i = 0; i < n && !r->is_bad; i++) {
        char name[HOST_NAME_MAX_BYTES];
        bytes_host(r, name, sizeof(name));
        uint32_t slots = bytes_u32(r);
        if (!r->is_bad && hostlist_append(ret, name, slots, NULL) < 0)
            r->is_bad = true;
    }
}

void errand_release(struct errand *e)
{
    hostlist_release(&e->hosts);
    words_release(&e->argv);
    words_release(&e->env);
    words_release(&e->vars);
    memset(e, 0, sizeof(*e));
}

void errand_write(const struct errand *e, struct strbuf *out)
{
    bytes_put_str(out, e->version);
    bytes_put_str(out, e->job_id);
    strbuf_add(out, e->seed, sizeof(e->seed));
    errand_put_hosts(out, &e->hosts);
    bytes_put_u32(out, e->np);
    bytes_put_u32(out, e->local);
    bytes_put_u32(out, e->peer_timeout_ms);
    bytes_put_str(out, e->dir);
    bytes_put_str(out, e->iface);
    bytes_put_str(out, e->binding);
    bytes_put_str(out, e->nics);
    bytes_put_u32(out, e->is_verbose);
    bytes_put_u32(out, e->roles.framework);
    bytes_put_u32(out, e->roles.n_ps);
    bytes_put_u32(out, e->roles.has_evaluator);
    bytes_put_str(out, e->agent_path);
    bytes_put_str(out, e->ssh.program);
    bytes_put_str(out, e->ssh.identity);
    bytes_put_u32(out, e->ssh.port);
    bytes_put_u32(out, e->ssh.connect_s);
    bytes_put_u32(out, e->fanout);
    bytes_put_u32(out, e->elastic_slots);
    bytes_put_u32(out, e->keep_ms);
    errand_put_words(out, &e->argv);
    errand_put_words(out, &e->env);
    errand_put_words(out, &e->vars);
}

static void errand_get_roles(struct bytes_reader *r, struct tf_roles *ret)
{
    uint32_t framework = bytes_u32(r);
    if (framework >= FRAMEWORK_COUNT)
        r->is_bad = true;
    else
        ret->framework = (enum framework)framework;
    ret->n_ps = bytes_u32(r);
    uint32_t has_evaluator = bytes_u32(r);
    if (has_evaluator > 1)
        r->is_bad = true;
    ret->has_evaluator = has_evaluator != 0;
}

static void errand_get_rest(struct bytes_reader *r, struct errand *e)
{
    bytes_str(r, e->job_id, sizeof(e->job_id));
    const uint8_t *seed = bytes_raw(r, sizeof(e->seed));
    if (seed)
        memcpy(e->seed, seed, sizeof(e->seed));
    errand_get_hosts(r, &e->hosts);
    e->np = bytes_u32(r);
    e->local = bytes_u32(r);
    e->peer_timeout_ms = bytes_u32(r);
    bytes_str(r, e->dir, sizeof(e->dir));
    bytes_str(r, e->iface, sizeof(e->iface));
    bytes_str(r, e->binding, sizeof(e->binding));
    bytes_str(r, e->nics, sizeof(e->nics));
    e->is_verbose = bytes_u32(r);
    errand_get_roles(r, &e->roles);
    bytes_str(r, e->agent_path, sizeof(e->agent_path));
    bytes_str(r, e->ssh.program, sizeof(e->ssh.program));
    bytes_str(r, e->ssh.identity, sizeof(e->ssh.identity));
    e->ssh.port = bytes_u32(r);
    e->ssh.connect_s = bytes_u32(r);
    e->fanout = bytes_u32(r);
    e->elastic_slots = bytes_u32(r);
    if (e->elastic_slots > HOST_MAX_SLOTS)
        r->is_bad = true;
    e->keep_ms = bytes_u32(r);
    errand_get_words(r, &e->argv);
    errand_get_words(r, &e->env);
    errand_get_words(r, &e->vars);
}

int errand_read(const uint8_t *p,
                size_t n,
                const char *version,
                struct errand *ret,
                struct err *err)
{
    struct bytes_reader r = {.p = p, .left = n};
    AUTOFREE struct errand *e = mem_zalloc(sizeof(*e));
    if (!e)
        return err_set(err, -ENOMEM, "out of memory for a job");
    bytes_str(&r, e->version, sizeof(e->version));
    if (!r.is_bad && strcmp(e->version, version) != 0)
        return err_set(
            err, -EPROTO,
            "its hvd-agent has version %s, this horovodrun has %.60s: install "
            "the same on all hosts",
            version, e->version);
    errand_get_rest(&r, e);
    if (!e->argv.n || !e->np || !e->hosts.n || !e->peer_timeout_ms)
        r.is_bad = true;
    int rc = bytes_end(&r, "job", err);
    if (rc < 0) {
        errand_release(e);
        return rc;
    }
    *ret = *e;
    return 0;
}

int errand_vars(struct errand *e, struct option_var **ret, struct err *err)
{
    struct option_var *v = mem_calloc(e->vars.n + 1, sizeof(*v));
    if (!v)
        return err_set(err, -ENOMEM, "out of memory for %zu variables", e->vars.n);
    for (size_t i = 0; i < e->vars.n; i++) {
        char *equals = strchr(e->vars.v[i], '=');
        if (!equals) {
            mem_free(v);
            return err_set(err, -EPROTO,
                           "a job message is malformed: %.60s has no value",
                           e->vars.v[i]);
        }
        *equals = '\0';
        v[i] = (struct option_var){.name = e->vars.v[i], .value = equals + 1};
    }
    *ret = v;
    return 0;
}

void errand_process_write(const struct errand_process *s, struct strbuf *out)
{
    bytes_put_u32(out, s->slot);
    bytes_put_u32(out, s->incarnation);
}

struct errand_process errand_process_read(struct bytes_reader *r)
{
    struct errand_process s;

    s.slot = bytes_u32(r);
    s.incarnation = bytes_u32(r);
    return s;
}

void errand_place_write(const struct place *p, struct strbuf *out)
{
    bytes_put_u32(out, p->rank);
    bytes_put_u32(out, p->size);
    bytes_put_u32(out, p->local_rank);
    bytes_put_u32(out, p->local_size);
    bytes_put_u32(out, p->cross_rank);
    bytes_put_u32(out, p->cross_size);
}

struct place errand_place_read(struct bytes_reader *r)
{
    struct place p = {0};

    p.rank = bytes_u32(r);
    p.size = bytes_u32(r);
    p.local_rank = bytes_u32(r);
    p.local_size = bytes_u32(r);
    p.cross_rank = bytes_u32(r);
    p.cross_size = bytes_u32(r);
    return p;
}

enum { HAS_MEMBER = 1, HAS_WAITING = 2, HAS_DONE = 4 };

void errand_has_write(const struct errand_process *s,
                      const struct elastic_process *p,
                      struct strbuf *out)
{
    errand_process_write(s, out);
    bytes_put_u32(out, (p->is_member ? HAS_MEMBER : 0u)
                           | (p->is_waiting ? HAS_WAITING : 0u)
                           | (p->is_done ? HAS_DONE : 0u));
    bytes_put_u32(out, p->generation);
    bytes_put_u32(out, p->rank);
    bytes_put_u32(out, p->n_ranks);
    bytes_put_u32(out, p->since);
}

int errand_has_read(const uint8_t *p,
                    size_t n,
                    struct errand_process *ret,
                    struct elastic_process *ret_state,
                    struct err *err)
{
    struct bytes_reader r = {.p = p, .left = n};
    uint32_t bits;

    *ret = errand_process_read(&r);
    bits = bytes_u32(&r);
    *ret_state = (struct elastic_process){.incarnation = ret->incarnation,
                                          .is_member = (bits & HAS_MEMBER) != 0,
                                          .is_waiting = (bits & HAS_WAITING) != 0,
                                          .is_done = (bits & HAS_DONE) != 0};
    ret_state->generation = bytes_u32(&r);
    ret_state->rank = bytes_u32(&r);
    ret_state->n_ranks = bytes_u32(&r);
    ret_state->since = bytes_u32(&r);
    return bytes_end(&r, "process", err);
}

void errand_start_write(const struct errand_start *s, struct strbuf *out)
{
    bytes_put_u32(out, s->rdv_port);
    bytes_put_u32(out, s->master_port);
    bytes_put_str(out, s->rdv_host);
    errand_put_hosts(out, &s->reach);
}

void errand_start_release(struct errand_start *s)
{
    hostlist_release(&s->reach);
}

static uint16_t errand_get_port(struct bytes_reader *r)
{
    uint32_t port = bytes_u32(r);
    if (port > UINT16_MAX)
        r->is_bad = true;
    return (uint16_t)port;
}

int errand_start_read(const uint8_t *p,
                      size_t n,
                      struct errand_start *ret,
                      struct err *err)
{
    struct bytes_reader r = {.p = p, .left = n};
    struct errand_start s = {0};
    s.rdv_port = errand_get_port(&r);
    s.master_port = errand_get_port(&r);
    bytes_host(&r, s.rdv_host, sizeof(s.rdv_host));
    errand_get_hosts(&r, &s.reach);
    if (!s.reach.n)
        r.is_bad = true;
    int rc = bytes_end(&r, "start", err);
    if (rc == 0)
        *ret = s;
    else
        errand_start_release(&s);
    return rc;
}

void errand_ready_write(const struct errand_ready *s, struct strbuf *out)
{
    bytes_put_u32(out, s->master_port);
    bytes_put_u32(out, s->generation);
    bytes_put_u32(out, s->n_leaders);
    bytes_put_str(out, s->own);
    bytes_put_str(out, s->theirs);
}

int errand_ready_read(const uint8_t *p,
                      size_t n,
                      struct errand_ready *ret,
                      struct err *err)
{
    struct bytes_reader r = {.p = p, .left = n};
    struct errand_ready s = {0};
    s.master_port = errand_get_port(&r);
    s.generation = bytes_u32(&r);
    s.n_leaders = bytes_u32(&r);
    bytes_str(&r, s.own, sizeof(s.own));
    bytes_str(&r, s.theirs, sizeof(s.theirs));
    int rc = bytes_end(&r, "ready", err);
    if (rc == 0)
        *ret = s;
    return rc;
}

int errand_output_read(const uint8_t *p,
                       size_t n,
                       struct errand_output *ret,
                       struct err *err)
{
    struct bytes_reader r = {.p = p, .left = n};
    struct errand_output o = {0};
    o.rank = bytes_u32(&r);
    o.stream = bytes_u32(&r);
    o.p = r.p;
    o.n = r.left;
    if (r.is_bad || o.stream > 1)
        return err_set(err, -EPROTO,
                       "an output message is malformed (another version?)");
    *ret = o;
    return 0;
}

void errand_lost_write(const struct errand_lost *l, struct strbuf *out)
{
    bytes_put_u32(out, l->end);
    bytes_put_str(out, l->why);
}

int errand_lost_read(const uint8_t *p,
                     size_t n,
                     struct errand_lost *ret,
                     struct err *err)
{
    struct bytes_reader r = {.p = p, .left = n};
    struct errand_lost l = {0};
    l.end = bytes_u32(&r);
    bytes_str(&r, l.why, sizeof(l.why));
    int rc = bytes_end(&r, "loss", err);
    if (rc == 0)
        *ret = l;
    return rc;
}

/* The next host after h, except skip. */
static uint32_t host_next(uint32_t h, uint32_t skip)
{
    return h + 1 == skip ? h + 2 : h + 1;
}

bool errand_share(uint32_t first,
                  uint32_t end,
                  uint32_t skip,
                  uint32_t fanout,
                  uint32_t j,
                  uint32_t *ret_first,
                  uint32_t *ret_end)
{
    if (first == skip)
        first++;
    uint32_t n = first < end ? end - first : 0;
    n -= n && skip > first && skip < end;
    uint32_t shares = !fanout || n < fanout ? n : fanout;
    if (j >= shares)
        return false;
    uint32_t size = n / shares, longer = n % shares, at = first;
    for (uint32_t k = 0; k <= j; k++) {
        *ret_first = at;
        for (uint32_t i = 0; i < size + (k < longer); i++)
            at = host_next(at, skip);
    }
    *ret_end = at < end ? at : end;
    return true;
}
