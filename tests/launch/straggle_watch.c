/* SPDX-License-Identifier: Apache-2.0 */
/* Follows the ranks of a job by their pages, as agents and hub do, and prints each change
 * of straggle.c's verdict:
 *
 *     launch-straggle-watch FOLDER RANKS SLOTS SPEED SECONDS
 *
 *     SECOND rank R worker W: MS ms, PERCENT % of a step, N ranks      or: SECOND nobody
 *
 * With SPEED 10 a second of the ranks counts as ten, in all their counters, so that a
 * minute of evidence takes six seconds. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/launch/core/straggle.h"
#include "runtime/launch/stats_dir.h"
#include "runtime/live/live_page.h"

static uint64_t sped(double v, double speed)
{
    return (uint64_t)(v * speed);
}

static void
watch_rank(struct straggle *s, const char *folder, uint32_t rank, double speed)
{
    struct live_rank r = {.state = LIVE_RANK_IN_WORLD};
    char path[1024];
    struct stats_page *page;

    (void)snprintf(path, sizeof(path), "%s/rank.%u", folder, rank);
    page = stats_page_read(path);
    if (!page)
        return;
    live_page_fill(page, clock_wall_us(), &r);
    mem_free(page);
    r.age_ms = sped((double)r.age_ms, speed);
    r.step_ns = sped((double)r.step_ns, speed);
    r.blocked_ns = sped((double)r.blocked_ns, speed);
    r.ready_ns = sped((double)r.ready_ns, speed);
    straggle_feed(s, &r);
}

int main(int argc, char **argv)
{
    const uint64_t begin_ns = clock_now_ns();
    const struct straggle_verdict *v;
    struct straggle s;
    struct err err = ERR_INIT;
    double speed, at_s = 0;
    int32_t named = -1;

    if (argc != 6
        || straggle_init(&s, (uint32_t)atoi(argv[2]), (uint32_t)atoi(argv[3]), &err)
               < 0) {
        (void)fprintf(stderr,
                      "usage: launch-straggle-watch FOLDER RANKS SLOTS SPEED "
                      "SECONDS %s\n",
                      err.text);
        return 2;
    }
    speed = atof(argv[4]);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    while (at_s < atof(argv[5])) {
        struct timespec nap = clock_timespec((uint64_t)(LIVE_EVERY_S * 1e9 / speed));

        (void)nanosleep(&nap, NULL);
        for (uint32_t i = 0; i < s.n; i++)
            watch_rank(&s, argv[1], i, speed);
        at_s = (double)(clock_now_ns() - begin_ns) / 1e9;
        v = straggle_check(&s, sped(at_s * 1e9, speed), sped(at_s * 1e6, speed));
        if (v->rank >= 0 && v->rank != named)
            printf("%.0f rank %d worker %u: %.2f ms, %.1f %% of a step, %u ranks\n",
                   at_s, (int)v->rank, v->worker, v->cost_s * 1e3 / speed,
                   v->share * 100, v->n_ranks);
        else if (v->rank < 0 && named >= 0)
            printf("%.0f nobody\n", at_s);
        named = v->rank;
    }
    straggle_release(&s);
    return 0;
}
