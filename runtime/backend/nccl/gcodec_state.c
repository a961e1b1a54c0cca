/* SPDX-License-Identifier: Apache-2.0 */
/* State of tensors between steps, in device memory.
 *
 * The index (core/compress/codec_index.h) belongs to the seat: what is kept, for how
 * long, and what is evicted is decided when a batch is posted, so a bound that is too
 * small is reported before anything starts. Memory belongs to the launcher: the first
 * batch that uses it takes and zeroes it, and the first batch posted after it was
 * dropped gives it back in stream order; batches are numbered for that. The end of the
 * device frees the rest.
 *
 * Batches of several streams use the same state, so each waits for the one before.
 *
 * Lock: a leaf, over the list of dropped entries. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "runtime/backend/nccl/gcodec.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/core/compress/layout.h"

struct gcodec_kept {
    struct codec_entry entry; /* the seat's; its plan never changes */
    struct gcodec_kept *next; /* of the dropped ones; under the lock */
    uint64_t dropped_at;      /* likewise; the batch that may give it back */
    cu_ptr at;                /* the launcher's; 0: not taken yet */
    char name[];
};

struct gcodec_states {
    struct codec_index index; /* the seat's, with the next two */
    uint64_t n_batches;
    bool has_warned;
    pthread_mutex_t lock;
    struct gcodec_kept *dropped, **tail; /* oldest first */
    cu_stream last_stream;               /* the launcher's, with the next */
    struct device_event *last;           /* the batch before */
};

static struct gcodec_kept *kept_of(struct codec_entry *e)
{
    return e ? (struct gcodec_kept *)((char *)e - offsetof(struct gcodec_kept, entry))
             : NULL;
}

static void gcodec_states_drop(void *arg, struct codec_entry *e)
{
    struct gcodec_states *s = arg;
    struct gcodec_kept *k = kept_of(e);

    k->dropped_at = s->n_batches;
    k->next = NULL;
    (void)pthread_mutex_lock(&s->lock);
    *s->tail = k;
    s->tail = &k->next;
    (void)pthread_mutex_unlock(&s->lock);
}

int gcodec_states_new(uint64_t max_bytes, struct gcodec_states **ret)
{
    struct gcodec_states *s = mem_zalloc(sizeof(*s));

    if (!s)
        return -ENOMEM;
    codec_index_init(&s->index, max_bytes, gcodec_states_drop, s);
    (void)pthread_mutex_init(&s->lock, NULL);
    s->tail = &s->dropped;
    *ret = s;
    return 0;
}

/* Gives back the state dropped until batch `number`. */
static void give_back(struct gcodec_states *s,
                      struct gpu_memory *m,
                      uint64_t number,
                      cu_stream stream)
{
    for (;;) {
        (void)pthread_mutex_lock(&s->lock);
        struct gcodec_kept *k = s->dropped;
        const bool has = k && k->dropped_at <= number;
        if (has) {
            s->dropped = k->next;
            s->tail = s->dropped ? s->tail : &s->dropped;
        }
        (void)pthread_mutex_unlock(&s->lock);
        if (!has)
            return;
        memory_give(m, k->at, stream);
        mem_free(k);
    }
}

void gcodec_states_free(struct gcodec_states *s, struct device *g)
{
    if (!s)
        return;
    codec_index_release(&s->index);
    give_back(s, g->memory, UINT64_MAX, NULL);
    event_unref(s->last);
    (void)pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

uint64_t gcodec_states_bytes(const struct gcodec_states *s)
{
    return s->index.bytes;
}

uint64_t gcodec_states_evicted(const struct gcodec_states *s)
{
    return s->index.n_evicted;
}

/* --- the seat --- */

static int gcodec_states_add(struct gcodec_states *s,
                             uint32_t set,
                             const char *name,
                             const struct codec_plan *plan,
                             uint32_t me)
{
    const size_t n = strlen(name) + 1;
    struct gcodec_kept *k = mem_zalloc(sizeof(*k) + n);

    if (!k)
        return -ENOMEM;
    memcpy(k->name, name, n);
    int rc = codec_index_add(&s->index, &k->entry, set, k->name, plan, me);
    if (rc)
        mem_free(k);
    return rc;
}

static int gcodec_states_reserve_one(struct gcodec_states *s,
                                     uint32_t set,
                                     const char *name,
                                     const struct codec_plan *plan,
                                     uint32_t me,
                                     struct err *err)
{
    char shown[NAME_SHOWN_MAX];
    int rc = codec_index_room(&s->index, set, name, plan, me, err);

    if (rc)
        return rc < 0 ? rc : 0;
    rc = gcodec_states_add(s, set, name, plan, me);
    return rc ? err_set(err, rc, "compression of %s: out of memory",
                        name_shown(name, shown))
              : 0;
}

static void warn_once(struct gcodec_states *s)
{
    if (s->has_warned || s->index.n_evicted == 0)
        return;
    s->has_warned = true;
    log_warn("compression dropped the state of a GPU tensor, continuing",
             "bytes=%" PRIu64 " (HVD_COMPRESSION_MEMORY is too small)",
             s->index.max_bytes);
}

int gcodec_states_reserve(struct gcodec_states *s,
                          const struct batch *batch,
                          const char *const *names,
                          uint32_t set,
                          const struct codec_plan *plans,
                          uint32_t me,
                          struct gcodec_kept **ret,
                          uint64_t *ret_number,
                          struct err *err)
{
    size_t n = batch->n_items;
    int rc = 0;

    *ret_number = ++s->n_batches; /* it uses nothing that is dropped from here on */
    for (size_t i = 0; i < n && !rc; i++) {
        ret[i] = NULL;
        if (!plans[i].is_compressed || plans[i].state_bytes == 0)
            continue;
        if (batch->items[i].in)
            rc = gcodec_states_reserve_one(s, set, names[i], &plans[i], me, err);
        if (!rc)
            ret[i] = kept_of(codec_index_find(&s->index, set, names[i], &plans[i], me));
        if (ret[i])
            ret[i]->entry.is_running = true; /* another tensor of the batch must not
                                                drop it */
        n = rc ? i + 1 : n;
    }
    for (size_t i = 0; i < n; i++)
        if (ret[i])
            ret[i]->entry.is_running = false;
    warn_once(s);
    return rc;
}

void gcodec_forget_set(struct device *g, uint32_t set)
{
    struct gcodec_states *s = g->codecs;

    if (!s)
        return;
    const uint64_t number = ++s->n_batches;
    codec_index_forget_set(&s->index, set);
    struct gpu_job *job = job_new(JOB_CODEC, NULL, NULL, NULL, sizeof(number));
    if (!job)
        return; /* the next batch gives the memory back */
    memcpy(job->extra, &number, sizeof(number));
    job->stream = g->streams[0];
    if (launcher_push(&g->launcher, job, NULL))
        job_free(job); /* so does the device's end */
}

/* --- the launcher --- */

int gcodec_states_begin(struct device *g,
                        uint64_t number,
                        struct gpu_job *job,
                        struct err *err)
{
    struct gcodec_states *s = g->codecs;
    int rc = 0;

    if (s->last && s->last_stream != job->stream)
        rc = event_put_wait(s->last, job->stream, err);
    if (rc)
        return rc;
    give_back(s, g->memory, number, job->stream);
    if (!job->done)
        return 0;
    event_unref(s->last);
    s->last = event_ref(job->done);
    s->last_stream = job->stream;
    return 0;
}

int gcodec_states_find(struct device *g,
                       struct gcodec_kept *k,
                       cu_stream stream,
                       struct gcodec_item *it,
                       struct err *err)
{
    if (!k)
        return 0;
    const struct codec_kept n = codec_kept_of(&k->entry.plan);
    uint64_t bytes = 0;
    const uint64_t residual = gcodec_piece(&bytes, n.residual * sizeof(float));
    const uint64_t shard = gcodec_piece(&bytes, n.shard * sizeof(float));
    const uint64_t q = gcodec_piece(&bytes, n.q * sizeof(float));
    if (!k->at) {
        cu_ptr at;
        int rc = memory_take(g->memory, bytes, stream, &at, err);
        if (!rc)
            rc = CUDA_TRY(g->cu, set_d8, err, at, 0, bytes, stream);
        if (rc)
            return rc;
        k->at = at;
    }
    it->residual = n.residual ? k->at + residual : 0;
    it->shard = n.shard ? k->at + shard : 0;
    it->q = n.q ? k->at + q : 0;
    return 0;
}
