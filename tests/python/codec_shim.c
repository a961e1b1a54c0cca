/* SPDX-License-Identifier: Apache-2.0 */
/* What test_compress.py calls by ctypes: the codecs of runtime/core/compress behind
 * functions of plain numbers and pointers. A library of the tests alone; libhvd.so
 * exports none of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/core/compress/codec.h"

#define EXPORT __attribute__((visibility("default")))

struct shim_run {
    struct codec_run run;
    struct codec_step step;
    void *scratch;
};

EXPORT void *shim_state_new(uint64_t max_bytes, int is_wide);
EXPORT void shim_state_free(void *state);
EXPORT int shim_plan(const char *text,
                     int dtype,
                     int op,
                     uint32_t ndim,
                     const int64_t *shape,
                     uint32_t n,
                     struct codec_plan *ret,
                     char *error);
EXPORT size_t shim_plan_size(void);
EXPORT void shim_plan_figures(const struct codec_plan *p, uint64_t *ret, char *why);
EXPORT void *shim_begin(void *state,
                        const char *name,
                        const struct codec_plan *plan,
                        uint32_t me,
                        const void *in,
                        void *out,
                        double prescale,
                        double postscale,
                        char *error);
EXPORT int shim_next(void *run, uint64_t *ret, double *ret_postscale, char *error);
EXPORT void shim_end(void *run);

enum { ERROR_MAX = 480 };

static void copy_error(char *error, const struct err *err)
{
    (void)snprintf(error, ERROR_MAX, "%s", err->text);
}

void *shim_state_new(uint64_t max_bytes, int is_wide)
{
    struct codec_state *s;

    return codec_state_new(max_bytes, is_wide != 0, &s) < 0 ? NULL : s;
}

void shim_state_free(void *state)
{
    codec_state_free(state);
}

size_t shim_plan_size(void)
{
    return sizeof(struct codec_plan);
}

int shim_plan(const char *text,
              int dtype,
              int op,
              uint32_t ndim,
              const int64_t *shape,
              uint32_t n,
              struct codec_plan *ret,
              char *error)
{
    struct err err = ERR_INIT;
    struct codec c;
    int rc = codec_parse("codec", text, &c, &err);

    if (rc == 0)
        rc = codec_plan(&c, (enum dtype)dtype, (enum reduce_op)op, ndim, shape, n, ret,
                        &err);
    copy_error(error, &err);
    return rc;
}

void shim_plan_figures(const struct codec_plan *p, uint64_t *ret, char *why)
{
    const uint64_t figures[] = {
        p->is_compressed,  p->raw_bytes,   p->wire_bytes, p->sent_bytes,
        p->sent_raw_bytes, p->state_bytes, p->k};

    memcpy(ret, figures, sizeof(figures));
    (void)snprintf(why, ERROR_MAX, "%s", p->why ? p->why : "");
}

void *shim_begin(void *state,
                 const char *name,
                 const struct codec_plan *plan,
                 uint32_t me,
                 const void *in,
                 void *out,
                 double prescale,
                 double postscale,
                 char *error)
{
    struct codec_io io = {me, in, out, prescale, postscale};
    struct shim_run *r = calloc(1, sizeof(*r));
    struct err err = ERR_INIT;

    if (!r)
        return NULL;
    r->scratch = aligned_alloc(64, plan->scratch_bytes + 64);
    if (!r->scratch
        || codec_begin(&r->run, state, 0, name, plan, &io, r->scratch, &err) < 0) {
        copy_error(error, &err);
        free(r->scratch);
        free(r);
        return NULL;
    }
    return r;
}

int shim_next(void *run, uint64_t *ret, double *ret_postscale, char *error)
{
    struct shim_run *r = run;
    struct err err = ERR_INIT;
    int more = codec_next(&r->run, &r->step, &err);
    const struct codec_step *s = &r->step;

    copy_error(error, &err);
    if (more <= 0)
        return more;
    const uint64_t fields[] = {(uint64_t)s->coll,    (uint64_t)s->dtype,
                               (uint64_t)s->op,      (uintptr_t)s->in,
                               (uintptr_t)s->out,    s->count,
                               (uintptr_t)s->counts, (uintptr_t)s->send_counts};

    memcpy(ret, fields, sizeof(fields));
    *ret_postscale = s->postscale;
    return more;
}

void shim_end(void *run)
{
    struct shim_run *r = run;

    codec_cancel(&r->run);
    free(r->scratch);
    free(r);
}
