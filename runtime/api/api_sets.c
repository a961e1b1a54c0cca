/* SPDX-License-Identifier: Apache-2.0 */
/* The exported C API: process sets. world_sets.c adds and removes them; queries are
 * answered from copies of the table. Stateless. */
#include "runtime/api/api.h"

static int
process_set_add_by(const int *ranks, int n, enum set_callers callers, int *ret_id)
{
    struct err *err = api_fresh_error();
    struct world *w;
    int rc = runtime_get(&w, err);

    if (rc < 0)
        return rc;
    if (!ret_id)
        rc = err_set(err, HVD_INVALID_ARGUMENT, "ret_id: is NULL");
    else
        rc = world_set_add(w, ranks, n, callers, UINT64_MAX, ret_id, err);
    runtime_put(w);
    return rc;
}

int hvd_process_set_add(const int *ranks, int n, int *ret_id)
{
    return process_set_add_by(ranks, n, SET_BY_ALL, ret_id);
}

int hvd_process_set_meet(const int *ranks, int n, int *ret_id)
{
    return process_set_add_by(ranks, n, SET_BY_MEMBERS, ret_id);
}

int hvd_process_set_remove(int id)
{
    struct err *err = api_fresh_error();
    struct world *w;
    int rc = runtime_get(&w, err);

    if (rc < 0)
        return rc;
    rc = world_set_remove(w, id, err);
    runtime_put(w);
    return rc;
}

int hvd_process_set_ids(int *ret, int n)
{
    struct world *w;
    int rc = runtime_get(&w, api_fresh_error());

    if (rc < 0)
        return rc;
    rc = sets_ids(&w->sets, ret, n);
    runtime_put(w);
    return rc;
}

static int process_set_find_place(int id, uint32_t *ret_n, uint32_t *ret_me)
{
    struct err *err = api_fresh_error();
    struct world *w;
    int rc = runtime_get(&w, err);

    if (rc < 0)
        return rc;
    if (id < 0 || sets_place(&w->sets, (uint32_t)id, ret_n, ret_me) < 0)
        rc = sets_report_unknown(&w->sets, id, err);
    runtime_put(w);
    return rc;
}

int hvd_process_set_size(int id)
{
    uint32_t n = 0, me = SET_NOT_IN;
    int rc = process_set_find_place(id, &n, &me);

    return rc < 0 ? rc : (int)n;
}

int hvd_process_set_rank(int id)
{
    uint32_t n = 0, me = SET_NOT_IN;
    int rc = process_set_find_place(id, &n, &me);

    if (rc < 0)
        return rc;
    return me == SET_NOT_IN ? -1 : (int)me;
}

int hvd_process_set_ranks(int id, int *ret, int n)
{
    struct err *err = api_fresh_error();
    struct world *w;
    int rc = runtime_get(&w, err);

    if (rc < 0)
        return rc;
    rc = id < 0 ? -1 : sets_ranks(&w->sets, (uint32_t)id, ret, n);
    if (rc < 0)
        rc = sets_report_unknown(&w->sets, id, err);
    runtime_put(w);
    return rc;
}
