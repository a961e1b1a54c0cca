/* SPDX-License-Identifier: Apache-2.0 */
/* Called by launch/report.c. */
#include "runtime/live/live_text.h"

#include <math.h>
#include "runtime/base/mem.h"

double live_eta_s(const struct live_report *r)
{
    const struct live_progress *p = &r->progress;

    if (p->step < 0 || p->total_steps < 0 || r->rates.steps_per_s <= 0)
        return -1;
    if (p->step >= p->total_steps)
        return 0;
    return (double)(p->total_steps - p->step) / r->rates.steps_per_s;
}

void live_put_duration(double seconds, struct strbuf *out)
{
    unsigned long long s =
        seconds < 0 || !isfinite(seconds) ? 0 : (unsigned long long)(seconds + 0.5);

    if (s >= 86400)
        strbuf_printf(out, "%llu d %llu h", s / 86400, s / 3600 % 24);
    else if (s >= 3600)
        strbuf_printf(out, "%llu h %llu min", s / 3600, s / 60 % 60);
    else if (s >= 60)
        strbuf_printf(out, "%llu min %llu s", s / 60, s % 60);
    else
        strbuf_printf(out, "%llu s", s);
}

/* The text comes from the program: it must not control a terminal. */
static void text_put(const char *text, struct strbuf *out)
{
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        strbuf_putc(out, *p < 0x20 || *p == 0x7f ? '?' : (char)*p);
}

static void text_put_state(const struct live_report *r, struct strbuf *out)
{
    strbuf_printf(out, "%s", live_state_name(r->state));
    switch (r->state) {
    case LIVE_MEETING:
        strbuf_printf(out, ": %u of %u workers are present", r->n_present,
                      r->n_workers);
        break;
    case LIVE_STARTING:
    case LIVE_TRAINING:
    case LIVE_STALLED:
    case LIVE_ENDING:
        strbuf_printf(out, ": %u ranks on %u workers", r->size, r->n_workers);
        break;
    }
    strbuf_putc(out, '\n');
}

static void
text_put_count(const char *name, int64_t n, int64_t total, struct strbuf *out)
{
    if (n < 0)
        return;
    strbuf_printf(out, ", %s %lld", name, (long long)n);
    if (total > 0)
        strbuf_printf(out, " of %lld", (long long)total);
}

/* ", step 12 of 100 (12 %), 3.2 steps/s, ends in 28 s", or nothing. */
static void text_put_step(const struct live_report *r, struct strbuf *out)
{
    const struct live_progress *p = &r->progress;
    double eta_s = live_eta_s(r);

    text_put_count("step", p->step, p->total_steps, out);
    if (p->step >= 0 && p->total_steps > 0)
        strbuf_printf(out, " (%.0f %%)",
                      floor(100.0 * (double)p->step / (double)p->total_steps));
    text_put_count("epoch", p->epoch, p->total_epochs, out);
    if (p->step < 0 && r->n_steps > 0)
        strbuf_printf(out, ", %llu steps", (unsigned long long)r->n_steps);
    if (r->rates.steps_per_s >= 0)
        strbuf_printf(out, ", %.3g steps/s", r->rates.steps_per_s);
    if (p->samples_per_s >= 0)
        strbuf_printf(out, ", %.4g samples/s", p->samples_per_s);
    if (eta_s >= 0) {
        strbuf_puts(out, ", ends in ");
        live_put_duration(eta_s, out);
    }
}

static void text_put_progress(const struct live_report *r, struct strbuf *out)
{
    const struct live_progress *p = &r->progress;
    CLEANUP(strbuf_release) struct strbuf line = {0};

    strbuf_init(&line, 4096);
    text_put_step(r, &line);
    if (line.n > 0)
        strbuf_printf(out, "Progress: %s\n", strbuf_str(&line) + 2);
    for (uint32_t i = 0; i < p->n_metrics; i++) {
        strbuf_puts(out, i ? ", " : "Metrics: ");
        text_put(p->metrics[i].name, out);
        strbuf_printf(out, " %.6g%s", p->metrics[i].value,
                      i + 1 == p->n_metrics ? "\n" : "");
    }
}

static void text_put_communication(const struct live_rates *x, struct strbuf *out)
{
    if (x->blocked_share >= 0)
        strbuf_printf(out,
                      "Communication: the program waits for it %.1f %% of the time",
                      100 * x->blocked_share);
    if (x->blocked_share >= 0 && x->bus_bytes_per_s >= 0)
        strbuf_printf(out, ", bus bandwidth %.3g GB/s", x->bus_bytes_per_s / 1e9);
    if (x->blocked_share >= 0)
        strbuf_putc(out, '\n');
}

static void text_put_times(const struct live_times *t, struct strbuf *out)
{
    strbuf_puts(out, "Time: meeting ");
    live_put_duration((double)t->meeting_ms / 1e3, out);
    strbuf_puts(out, ", starting ");
    live_put_duration((double)t->starting_ms / 1e3, out);
    strbuf_puts(out, ", training ");
    live_put_duration((double)t->training_ms / 1e3, out);
    strbuf_puts(out, ", stalled ");
    live_put_duration((double)t->stalled_ms / 1e3, out);
    strbuf_putc(out, '\n');
}

static void text_put_sentence(const char *name, const char *text, struct strbuf *out)
{
    if (!*text)
        return;
    strbuf_puts(out, name);
    text_put(text, out);
    strbuf_putc(out, '\n');
}

static void
text_put_elastic(uint32_t generation, const struct live_elastic *e, struct strbuf *out)
{
    if (e->max_ranks == 0)
        return;
    strbuf_printf(out, "Elastic: %u to %u ranks, world %u, %u resets, %u more ready\n",
                  e->min_ranks, e->max_ranks, generation, e->n_resets, e->n_ready);
    text_put_sentence("Waits: ", e->waits, out);
    if (e->n_excluded > 0) {
        strbuf_printf(out, "Excluded after failures: %u slots, the first one for ",
                      e->n_excluded);
        live_put_duration((double)e->excluded_ms / 1e3, out);
        strbuf_putc(out, '\n');
    }
    text_put_sentence("Last failure: ", e->failure, out);
}

void live_report_line(const struct live_report *r, struct strbuf *out)
{
    strbuf_printf(out, "%s: %u ranks", live_state_name(r->state), r->size);
    text_put_step(r, out);
    if (r->stall.since_wall_us > 0) {
        strbuf_puts(out, "; ");
        text_put(r->stall.text, out);
    } else if (r->straggler.rank >= 0) {
        strbuf_printf(out, "; the other ranks wait for rank %d on ", r->straggler.rank);
        text_put(r->straggler.host, out);
    }
}

void live_report_text(const struct live_report *r, struct strbuf *out)
{
    text_put_state(r, out);
    text_put_progress(r, out);
    text_put_communication(&r->rates, out);
    text_put_times(&r->times, out);
    text_put_elastic(r->generation, &r->elastic, out);
    if (r->stall.since_wall_us > 0) {
        strbuf_puts(out, "Stalled: ");
        text_put(r->stall.text, out);
        strbuf_putc(out, '\n');
    }
    if (r->straggler.rank >= 0) {
        strbuf_printf(
            out, "Straggler: the other ranks wait %.3g ms in each step for rank %d",
            1e3 * r->straggler.cost_s, r->straggler.rank);
        if (*r->straggler.host) {
            strbuf_puts(out, " on ");
            text_put(r->straggler.host, out);
        }
        strbuf_printf(out, " (%.0f %% of the step)\n", 100 * r->straggler.share);
    }
}

void live_rank_text(const struct live_rank *r, struct strbuf *out)
{
    double age_s;

    if (!r) {
        strbuf_printf(out, "%6s %8s %-8s %10s %10s %10s %10s\n", "RANK", "PID", "STATE",
                      "STEPS", "WAITING", "CPU", "MEMORY");
        return;
    }
    age_s = (double)r->age_ms / 1e3;
    strbuf_printf(out, "%6u %8u %-8s %10llu %9.1f%% %8.0f s %6.0f MiB\n", r->rank,
                  r->pid, live_rank_state_name(r->state), (unsigned long long)r->steps,
                  age_s > 0 ? 100.0 * (double)r->blocked_ns / 1e9 / age_s : 0,
                  (double)r->cpu_ms / 1e3, (double)r->rss_bytes / 1048576.0);
}
