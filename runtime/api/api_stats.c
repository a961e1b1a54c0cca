/* SPDX-License-Identifier: Apache-2.0 */
/* The exported C API: counters, progress and timeline. Stateless. */
#include "runtime/api/api.h"

#include <string.h>

#include "runtime/world/membership.h"

int hvd_stats(struct hvd_stats *ret)
{
    struct err *err = api_fresh_error();
    struct world *w;
    int rc = runtime_get(&w, err);

    if (rc < 0)
        return rc;
    if (!ret)
        rc = err_set(err, HVD_INVALID_ARGUMENT, "ret: is NULL");
    else if (ret->size_bytes < offsetof(struct hvd_stats, tensors))
        rc =
            err_set(err, HVD_INVALID_ARGUMENT,
                    "size_bytes: %zu is not sizeof(struct hvd_stats)", ret->size_bytes);
    else {
        stats_read(&coordinator_observer(w->co)->stats, clock_now_ns(), ret);
        /* rank in this world; the page has the rank in the job */
        ret->rank = (int)w->contract.place.rank;
        ret->size = (int)w->contract.place.size;
    }
    runtime_put(w);
    return rc;
}

int hvd_stats_text(char *buf, size_t n, size_t *ret_n)
{
    CLEANUP(strbuf_release) struct strbuf text = {0};
    struct err *err = api_fresh_error();
    const struct stats_page *page;
    struct world *w;
    int rc = runtime_get(&w, err);

    if (rc < 0)
        return rc;
    strbuf_init(&text, 1 << 20);
    page = coordinator_observer(w->co)->stats.page;
    stats_page_text(&page, 1, &text);
    runtime_put(w);
    if (strbuf_status(&text) < 0)
        return err_set(err, HVD_NO_MEMORY, "out of memory for the statistics");
    if (buf && n > 0) {
        size_t k = text.n < n ? text.n : n - 1;

        memcpy(buf, strbuf_str(&text), k);
        buf[k] = 0;
    }
    if (ret_n)
        *ret_n = text.n;
    return HVD_OK;
}

int hvd_progress(const struct hvd_progress *progress)
{
    struct hvd_progress given = {0};
    struct err *err = api_fresh_error();
    struct world *w;
    int rc = runtime_get(&w, err);

    if (rc < 0)
        return rc;
    if (!progress || progress->size_bytes < offsetof(struct hvd_progress, is_commit)) {
        rc = err_set(err, HVD_INVALID_ARGUMENT,
                     "progress: is NULL or of no version of struct hvd_progress");
    } else {
        memcpy(&given, progress,
               progress->size_bytes < sizeof(given) ? progress->size_bytes
                                                    : sizeof(given));
        rc = progress_update(runtime_progress(), &given, clock_wall_us(),
                             coordinator_observer(w->co)->stats.page, err);
        if (rc == HVD_OK && given.is_commit && w->membership
            && w->contract.place.rank == 0)
            membership_commit(w->membership, w->contract.generation, clock_now_ns());
    }
    runtime_put(w);
    return rc;
}

static int timeline_world(struct world **ret, struct err *err)
{
    if (op_in_callback())
        return err_set(err, HVD_INVALID_ARGUMENT,
                       "hvd_timeline_start, _stop: called inside a callback");
    return runtime_get(ret, err);
}

int hvd_timeline_start(const char *path, int mark_cycles)
{
    struct err *err = api_fresh_error();
    struct world *w;
    int rc = timeline_world(&w, err);

    if (rc < 0)
        return rc;
    if (!path || !path[0])
        rc = err_set(err, HVD_INVALID_ARGUMENT, "path: is NULL or empty");
    else if (w->contract.place.rank == 0)
        rc = timeline_start(&coordinator_observer(w->co)->timeline, path,
                            mark_cycles != 0, w->settings.timeline_all, err);
    runtime_put(w);
    return rc;
}

int hvd_timeline_stop(void)
{
    struct err *err = api_fresh_error();
    struct world *w;
    int rc = timeline_world(&w, err);

    if (rc < 0)
        return rc;
    timeline_stop(&coordinator_observer(w->co)->timeline,
                  coordinator_status(w->co, NULL) == 0);
    runtime_put(w);
    return HVD_OK;
}
