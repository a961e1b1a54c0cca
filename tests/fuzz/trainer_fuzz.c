/* SPDX-License-Identifier: Apache-2.0 */
/* A report to the agent as the status server of a trainer: a request in the pieces in which
 * it may arrive, and its body. What is accepted gives possible numbers and printable
 * names. */
#include <errno.h>

#include "runtime/base/utf8.h"
#include "runtime/launch/core/post.h"
#include "runtime/launch/trainer_json.h"
#include "runtime/live/live_progress.h"
#include "tests/fuzz/fuzz.h"

static void progress_check(const struct live_progress *p)
{
    MUST(p->step >= -1 && p->total_steps >= -1 && p->epoch >= -1);
    MUST(p->total_epochs == -1 && p->samples == -1 && p->commit_step == -1);
    MUST(p->n_metrics <= LIVE_METRICS_MAX && p->updated_wall_us == 7);
    for (size_t i = 0; i < p->n_metrics; i++) {
        const unsigned char *s = (const unsigned char *)p->metrics[i].name;

        MUST(*s && memchr(s, 0, LIVE_NAME_MAX));
        for (size_t k; *s; s += k) {
            k = utf8_length(s);
            MUST(k > 0 && *s >= ' ' && *s != 0x7f);
        }
    }
}

static void body_check(const char *p, size_t n)
{
    struct trainer_report r;
    struct live_progress progress;
    struct err err = ERR_INIT;
    int rc;

    fuzz_fill(&r, sizeof(r));
    rc = trainer_json_read(p, n, &r, &err);
    if (rc < 0) {
        MUST(rc == -EINVAL && err.code == rc && err.text[0]);
        MUST(fuzz_is_filled(&r, sizeof(r)));
        return;
    }
    MUST(r.percent >= -1 && r.percent <= 100);
    live_progress_init(&progress);
    trainer_progress_update(&progress, &r, 7);
    progress_check(&progress);
    r.percent = 100;
    trainer_progress_update(&progress, &r, 7);
    progress_check(&progress);
}

static bool is_within(const char *p, size_t n, const char *part, size_t n_part)
{
    return part >= p && n_part <= n && (size_t)(part - p) <= n - n_part;
}

FUZZ_TARGET(trainer)
{
    const char *p = (const char *)data;
    struct post whole, part;
    enum post_state state = post_read(p, n, &whole);
    size_t n_least = n;

    body_check(p, n);
    for (size_t k = 0; k <= n && n < 2048; k++) /* longer: too slow */
        if (post_read(p, k, &part) != POST_PARTIAL) {
            n_least = k;
            MUST(post_read(p, n, &whole) == post_read(p, k, &part));
            break;
        }
    MUST(state == POST_PARTIAL ? n_least == n : n_least <= n);
    MUST((state == POST_REFUSED) == (whole.status != NULL));
    MUST(state != POST_REFUSED || (whole.why && *whole.why));
    if (state != POST_COMPLETE)
        return 0;
    MUST(post_is_one(p, n) && is_within(p, n, whole.path, whole.n_path));
    MUST(is_within(p, n, whole.bearer, whole.n_bearer));
    MUST(is_within(p, n, whole.body, whole.n_body) && whole.n_body <= POST_BODY_MAX);
    body_check(whole.body, whole.n_body);
    return 0;
}
