/* SPDX-License-Identifier: Apache-2.0 */
/* Captures and graphs of the fake: entries put into a capturing stream become nodes,
 * which run one after the other at each launch. Also the texts of errors. */
#include "tests/fakes/cuda/fake_cuda.h"

#include <stdlib.h>

int cuStreamBeginCapture_v2(cu_stream s, int mode)
{
    FAKE_ENTER(true);
    LOCK_HERE(&fake.lock);
    s = fake_stream(s);
    if (s->is_legacy || s->capture)
        return CU_CAPTURE_UNSUPPORTED;
    s->capture = fake_zalloc(sizeof(*s->capture));
    s->capture->tail = &s->capture->head;
    s->capture_mode = mode;
    s->capture_status = CU_CAPTURE_ACTIVE;
    fake.n_global_captures += mode == CU_CAPTURE_GLOBAL;
    return 0;
}

int fake_break_capture(cu_stream s)
{
    FAKE_ENTER(true);
    LOCK_HERE(&fake.lock);
    s = fake_stream(s);
    if (!s->capture)
        return 0;
    s->capture_status = CU_CAPTURE_BROKEN;
    return CU_INVALID_VALUE;
}

int cuStreamEndCapture(cu_stream s, cu_graph *ret)
{
    FAKE_ENTER(true);
    *ret = NULL;
    LOCK_HERE(&fake.lock);
    s = fake_stream(s);
    cu_graph g = s->capture;
    bool is_broken = s->capture_status == CU_CAPTURE_BROKEN;
    if (!g)
        return CU_INVALID_VALUE;
    fake.n_global_captures -= s->capture_mode == CU_CAPTURE_GLOBAL;
    s->capture = NULL;
    s->capture_status = CU_CAPTURE_NONE;
    if (!is_broken) {
        *ret = g;
        return 0;
    }
    fake_graph_clear(g);
    free(g);
    return CU_CAPTURE_INVALIDATED;
}

static void copy_graph(cu_graph to, const struct cu_graph_s *from)
{
    to->head = NULL;
    to->tail = &to->head;
    for (const struct entry *e = from->head; e; e = e->next) {
        struct entry *c = fake_entry(e->fn, e->arg, e->bytes);
        *to->tail = c;
        to->tail = &c->next;
    }
}

int cuGraphInstantiateWithFlags(cu_graph_exec *ret,
                                cu_graph g,
                                unsigned long long flags)
{
    FAKE_ENTER(true);
    cu_graph_exec x = fake_zalloc(sizeof(*x));
    copy_graph(&x->graph, g);
    *ret = x;
    return 0;
}

int cuGraphLaunch(cu_graph_exec x, cu_stream s)
{
    int rc = 0;

    FAKE_ENTER(true);
    LOCK_HERE(&fake.lock);
    s = fake_stream(s);
    for (const struct entry *e = x->graph.head; e && rc == 0; e = e->next)
        rc = fake_push(s, fake_entry(e->fn, e->arg, e->bytes));
    return rc;
}

int cuGraphExecDestroy(cu_graph_exec x)
{
    fake_graph_clear(&x->graph);
    free(x);
    return fake_call(false);
}

int cuGraphDestroy(cu_graph g)
{
    fake_graph_clear(g);
    free(g);
    return fake_call(false);
}

/* --- texts --- */

static const struct {
    int code;
    const char *name, *text;
} texts[] = {
    {CU_OK, "CUDA_SUCCESS", "no error"},
    {CU_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CU_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CU_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {CU_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CU_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CU_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CU_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {CU_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CU_SYSTEM_NOT_READY, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
    {CU_SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "system has unsupported display driver / cuda driver combination"},
};

static int text_of(int result, const char **ret, bool is_name)
{
    fake_n_calls++;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (texts[i].code == result) {
            *ret = is_name ? texts[i].name : texts[i].text;
            return 0;
        }
    *ret = NULL;
    return CU_INVALID_VALUE;
}

int cuGetErrorName(int result, const char **ret)
{
    return text_of(result, ret, true);
}

int cuGetErrorString(int result, const char **ret)
{
    return text_of(result, ret, false);
}
