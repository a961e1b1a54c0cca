/* SPDX-License-Identifier: Apache-2.0 */
/* Three questions in the order in which a user should ask them: how much of a step is
 * communication that computation does not hide, is it the network or a slow rank, and what
 * to change.
 *
 *   not hidden   the time in which a thread of the program waits for an operation, or with
 *                HVD_DRY_RUN the difference between steps with and without communication
 *   slowest      the rank whose tensors wait least for the other ranks': it submits them
 *                last. How long a tensor of another rank waits longer is its lead.
 *   advice       one sentence by shares of a step
 *
 * Called by observe/reporter.c. */
#include "runtime/core/report.h"

#include <errno.h>
#include <inttypes.h>

#include "runtime/wire/bytes.h"

enum { WIRE_VERSION = 1 };
static const char LINE[] = "horovod: report: ";

/* Shares of a step. */
static const double HIDDEN = 0.10, SLOW = 0.10;
/* A batch that is moved in about the time of its latency. */
static const uint64_t SMALL_BATCH_BYTES = 64u << 10;
static const uint64_t DRY_STEPS_MIN = 3; /* of each kind, for a median */

/* --- wire --- */

void report_totals_pack(const struct report_totals *t, struct strbuf *out)
{
    bytes_put(out, WIRE_VERSION, 1);
    bytes_put(out, REPORT_N, 1);
    for (int i = 0; i < REPORT_N; i++)
        bytes_put(out, t->v[i], 8);
}

int report_totals_unpack(const void *p,
                         size_t n,
                         struct report_totals *ret,
                         struct err *err)
{
    struct bytes_reader in = {.p = p, .left = n};
    struct report_totals t;
    uint64_t version, n_totals;

    if (!bytes_get(&in, 1, &version) || !bytes_get(&in, 1, &n_totals))
        return err_set(err, -EBADMSG, "totals: %zu bytes", n);
    if (version != WIRE_VERSION || n_totals < REPORT_N || in.left != 8 * n_totals)
        return err_set(err, -EBADMSG,
                       "totals: version %" PRIu64 " with %" PRIu64
                       " numbers, this is %d with %d",
                       version, n_totals, WIRE_VERSION, REPORT_N);
    for (int i = 0; i < REPORT_N; i++)
        (void)bytes_get(&in, 8, &t.v[i]); /* they are there */
    *ret = t;
    return 0;
}

/* --- what is known --- */

struct report_view {
    const struct job_report *r;
    uint32_t n_known;
    bool has_steps;
    double whole_ns;   /* a step, or the whole run if there were no steps */
    double blocked_ns; /* of it, on average of the ranks */
    double bytes;      /* in it, of each rank, on average */
    uint32_t slowest;
    double lead_ns; /* of the other ranks' tensors over the slowest rank's */
};

/* Of a step, by the ranks' own numbers of steps, which may differ by one; or of the run. */
static double
report_mean(const struct job_report *r, enum report_total of, bool is_of_step)
{
    double sum = 0, n = 0;

    for (uint32_t i = 0; i < r->n_ranks; i++) {
        double steps = is_of_step ? (double)r->totals[i].v[REPORT_STEPS] : 1;

        if (!r->has[i] || steps == 0)
            continue;
        sum += (double)r->totals[i].v[of] / steps;
        n++;
    }
    return n > 0 ? sum / n : 0;
}

static uint64_t report_total(const struct job_report *r, enum report_total of)
{
    return r->totals[0].v[of];
}

static double tensor_wait_ns(const struct report_view *v, uint32_t rank)
{
    const uint64_t *t = v->r->totals[rank].v;
    uint64_t n = t[v->has_steps ? REPORT_STEP_TENSORS : REPORT_TENSORS];

    return n > 0 ? (double)t[v->has_steps ? REPORT_STEP_WAIT_NS : REPORT_WAIT_NS]
                       / (double)n
                 : 0;
}

static void view_find_slowest(struct report_view *v)
{
    double least = 0, sum = 0;
    bool any = false;

    for (uint32_t i = 0; i < v->r->n_ranks; i++) {
        double ns = tensor_wait_ns(v, i);

        if (!v->r->has[i])
            continue;
        sum += ns;
        if (!any || ns < least) {
            least = ns;
            v->slowest = i;
        }
        any = true;
    }
    if (v->n_known > 1)
        v->lead_ns = (sum - least) / (v->n_known - 1) - least;
}

static struct report_view view_of(const struct job_report *r)
{
    struct report_view v = {.r = r, .has_steps = report_total(r, REPORT_STEPS) > 0};
    const bool is = v.has_steps;

    for (uint32_t i = 0; i < r->n_ranks; i++)
        v.n_known += r->has[i];
    v.whole_ns = report_mean(r, is ? REPORT_STEP_NS : REPORT_AGE_NS, is);
    v.blocked_ns = report_mean(r, is ? REPORT_STEP_BLOCKED_NS : REPORT_BLOCKED_NS, is);
    if (v.blocked_ns > v.whole_ns)
        v.blocked_ns = v.whole_ns;
    v.bytes = report_mean(r, is ? REPORT_STEP_BYTES : REPORT_BYTES, is);
    view_find_slowest(&v);
    return v;
}

/* Can the time that threads waited show what communication costs? A program on GPUs
 * lets streams wait, and TensorFlow waits by itself. */
static bool view_sees_waits(const struct report_view *v)
{
    return v->blocked_ns > 0
           && 2 * report_total(v->r, REPORT_DEVICE_BATCHES)
                  < report_total(v->r, REPORT_BATCHES);
}

static bool dry_is_measured(const struct job_report *r)
{
    return r->dry.n_with >= DRY_STEPS_MIN && r->dry.n_without >= DRY_STEPS_MIN
           && r->dry.with_ns > 0;
}

/* Share of a step that communication costs. */
static double view_share(const struct report_view *v)
{
    const struct dry_run_result *d = &v->r->dry;

    if (v->r->is_dry)
        return d->with_ns > d->without_ns
                   ? (double)(d->with_ns - d->without_ns) / (double)d->with_ns
                   : 0;
    return v->whole_ns > 0 ? v->blocked_ns / v->whole_ns : 0;
}

/* --- words --- */

static void put_time(struct strbuf *out, double ns)
{
    if (ns < 1e6)
        strbuf_printf(out, "%.0f us", ns / 1e3);
    else if (ns < 10e9)
        strbuf_printf(out, "%.1f ms", ns / 1e6);
    else
        strbuf_printf(out, "%.1f s", ns / 1e9);
}

static void put_bytes(struct strbuf *out, double n)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    size_t u = 0;

    for (; n >= 1000 && u < 4; u++)
        n /= 1000;
    strbuf_printf(out, u > 0 && n < 10 ? "%.1f %s" : "%.0f %s", n, units[u]);
}

static int share_to_percent(double share)
{
    return (int)(share * 100 + 0.5);
}

/* --- lines --- */

static void put_missing(const struct report_view *v, struct strbuf *out)
{
    const struct job_report *r = v->r;
    uint32_t first = 0;

    while (first < r->n_ranks && r->has[first])
        first++;
    if (r->cause[0])
        strbuf_printf(out, "%sthe job ended early: %s\n", LINE, r->cause);
    if (first < r->n_ranks)
        strbuf_printf(
            out,
            "%sthe totals of %u of %u ranks are missing, the first is rank %u "
            "(host %s)\n",
            LINE, r->n_ranks - v->n_known, r->n_ranks, first,
            r->host_of(r->arg, first));
}

static void put_dry(const struct report_view *v, struct strbuf *out)
{
    const struct dry_run_result *d = &v->r->dry;

    strbuf_printf(out, "%sdry run: ", LINE);
    if (!dry_is_measured(v->r)) {
        strbuf_printf(out,
                      "%" PRIu64 " steps with communication and %" PRIu64
                      " without were measured, %" PRIu64
                      " of each are needed; %u equal steps in a row give them\n",
                      d->n_with, d->n_without, DRY_STEPS_MIN, 3 * DRY_RUN_PHASE);
        return;
    }
    strbuf_puts(out, "a step takes ");
    put_time(out, (double)d->with_ns);
    strbuf_puts(out, " with communication and ");
    put_time(out, (double)d->without_ns);
    strbuf_printf(out, " without: communication costs %d %% of a step\n",
                  share_to_percent(view_share(v)));
}

static void put_steps(const struct report_view *v, struct strbuf *out)
{
    const char *of = v->has_steps ? "a step" : "it";

    strbuf_puts(out, LINE);
    if (v->has_steps)
        strbuf_printf(out, "%" PRIu64 " steps of ", report_total(v->r, REPORT_STEPS));
    else
        strbuf_puts(out, "no steps that repeat the same tensors; the run took ");
    put_time(out, v->whole_ns);
    if (v->r->is_dry) {
        strbuf_puts(out, "\n");
    } else if (view_sees_waits(v)) {
        strbuf_puts(out, "; ");
        put_time(out, v->blocked_ns);
        strbuf_printf(
            out,
            " (%d %%) of %s waited for communication that computation did not "
            "hide\n",
            share_to_percent(view_share(v)), of);
    } else {
        strbuf_printf(
            out,
            "; how much of %s waited for communication cannot be seen, because "
            "no thread of the program waits for it\n",
            of);
    }
}

static void put_volume(const struct report_view *v, struct strbuf *out)
{
    uint64_t ns = report_total(v->r, REPORT_ALLREDUCE_NS);

    strbuf_puts(out, LINE);
    put_bytes(out, v->bytes);
    strbuf_puts(out, v->has_steps ? " per step and rank" : " per rank");
    if (ns > 0 && report_total(v->r, REPORT_BUS_BYTES) > 0) {
        strbuf_puts(out, "; bus bandwidth of allreduce ");
        put_bytes(out, (double)report_total(v->r, REPORT_BUS_BYTES) * 1e9 / (double)ns);
        strbuf_puts(out, "/s");
    }
    strbuf_puts(out, "\n");
}

static void put_slowest(const struct report_view *v, struct strbuf *out)
{
    if (v->n_known < 2)
        return;
    strbuf_printf(out,
                  "%srank %u (host %s) was the slowest: the other ranks' tensors "
                  "waited ",
                  LINE, v->slowest, v->r->host_of(v->r->arg, v->slowest));
    put_time(out, v->lead_ns);
    strbuf_puts(out, " for its tensors on average\n");
}

static void put_advice(const struct report_view *v, struct strbuf *out)
{
    const struct job_report *r = v->r;
    double share = view_share(v);
    uint64_t n_batches = report_total(r, REPORT_BATCHES);

    strbuf_printf(out, "%sadvice: ", LINE);
    if (r->n_ranks == 1)
        strbuf_puts(out,
                    "one rank has nothing to communicate; compare with two or more");
    else if (v->lead_ns > SLOW * v->whole_ns && v->has_steps)
        strbuf_printf(
            out,
            "the ranks wait for rank %u, not only for the network: look at its "
            "input and its host first",
            v->slowest);
    else if (r->is_dry ? !dry_is_measured(r) : !view_sees_waits(v))
        strbuf_puts(out, "run some steps with HVD_DRY_RUN=1, which measures what "
                         "communication costs");
    else if (share < HIDDEN)
        strbuf_puts(out, "communication is not the bottleneck: look at computation and "
                         "input");
    else if (n_batches > 0
             && report_total(r, REPORT_BYTES) / n_batches < SMALL_BATCH_BYTES)
        strbuf_puts(out,
                    "communication is a bottleneck, and the tensors are small: send "
                    "them together (grouped_allreduce, HOROVOD_CYCLE_TIME) or less "
                    "often (backward_passes_per_step)");
    else
        strbuf_puts(out,
                    "communication is a bottleneck: send fewer bytes (compression, "
                    "HVD_COMPRESSION) or less often (backward_passes_per_step), or "
                    "use a faster network");
    strbuf_puts(out, "\n");
}

void job_report_write(const struct job_report *r, struct strbuf *out)
{
    const struct report_view v = view_of(r);

    put_missing(&v, out);
    if (r->is_dry)
        put_dry(&v, out);
    put_steps(&v, out);
    put_volume(&v, out);
    put_slowest(&v, out);
    put_advice(&v, out);
}
