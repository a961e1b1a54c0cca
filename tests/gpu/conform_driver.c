/* SPDX-License-Identifier: Apache-2.0 */
/* One script of calls of the CUDA driver, with the answers that the backend relies on:
 * on a GPU it checks the driver, on the fake it checks the fake. The calls are those
 * of gpu.c, event.c, memory.c, graph.c and launch.c, and wrong uses by users. One
 * rank, device 0. */
#include "tests/gpu/tap/conform.h"

enum { N = 1 << 18 };

static cu_ctx ctx;
static cu_stream a, b;

static void check_contexts(void)
{
    cu_ctx popped = NULL;
    cu_device d = -1;
    cu_event e = NULL;
    int n = 0;

    ANSWERS(CU_NOT_INITIALIZED, "cuDeviceGetCount before cuInit", cu.device_count(&n));
    NEEDS(cu.init(0));
    ANSWERS(CU_OK, "cuInit again", cu.init(0));
    ANSWERS(CU_INVALID_DEVICE, "cuDeviceGet of device 99", cu.device_get(&d, 99));
    NEEDS(cu.device_get(&d, 0));
    ANSWERS(CU_INVALID_CONTEXT, "cuCtxPopCurrent without one", cu.ctx_pop(&popped));
    ANSWERS(CU_INVALID_CONTEXT, "cuEventCreate without a context",
            cu.event_new(&e, CU_EVENT_DISABLE_TIMING));
    NEEDS(cu.ctx_retain(&ctx, d));
    cu_ctx again = NULL;
    NEEDS(cu.ctx_retain(&again, d));
    tap_point(again == ctx, "the primary context is one");
    ANSWERS(CU_OK, "cuDevicePrimaryCtxRelease of one of two", cu.ctx_release(d));
    NEEDS(cu.ctx_push(ctx));
    NEEDS(cu.ctx_push(ctx));
    ANSWERS(CU_OK, "cuCtxPopCurrent of one of two", cu.ctx_pop(&popped));
    tap_point(popped == ctx, "the popped context is ours");
    int least = 0, greatest = 0;
    NEEDS(cu.priority_range(&least, &greatest));
    tap_point(greatest <= least, "the greatest priority is the least number");
    NEEDS(cu.stream_new(&a, CU_STREAM_NON_BLOCKING, 0));
    NEEDS(cu.stream_new(&b, CU_STREAM_NON_BLOCKING, greatest - 5));
    tap_point(b != NULL, "a priority out of range is moved into it");
}

static void check_names(void)
{
    static const struct {
        int code;
        const char *name;
    } rows[] = {{CU_OK, "CUDA_SUCCESS"},
                {CU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
                {CU_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED"},
                {CU_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
                {CU_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
                {CU_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                {CU_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"},
                {CU_SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *got = NULL;
        int r = cu.error_name(rows[i].code, &got);
        tap_point(r == CU_OK && got && strcmp(got, rows[i].name) == 0,
                  "result %d is %s", rows[i].code, got ? got : "unnamed");
    }
}

static void check_memory(void)
{
    static uint8_t host[N];
    int type = 0, ordinal = -1;
    void *pinned = NULL;
    cu_ptr p = 0, q = 0;

    ANSWERS(CU_INVALID_VALUE, "cuMemAlloc of nothing", cu.mem_alloc(&p, 0));
    ANSWERS(CU_OUT_OF_MEMORY, "cuMemAlloc of 2 TiB", cu.mem_alloc(&p, (size_t)2 << 40));
    NEEDS(cu.mem_alloc(&p, N));
    NEEDS(cu.mem_alloc(&q, N));
    tap_point(p % 256 == 0 && q % 256 == 0, "memory begins at multiples of 256");
    NEEDS(cu.pointer_attr(&type, CU_POINTER_MEMORY_TYPE, p + 1000));
    NEEDS(cu.pointer_attr(&ordinal, CU_POINTER_ORDINAL, p + 1000));
    tap_point(type == CU_MEMORY_DEVICE && ordinal == 0,
              "a pointer into it is type %d of device %d", type, ordinal);
    ANSWERS(CU_INVALID_VALUE, "cuPointerGetAttribute of the host's memory",
            cu.pointer_attr(&type, CU_POINTER_MEMORY_TYPE, (uintptr_t)host));
    NEEDS(cu.host_alloc(&pinned, N, 0));
    NEEDS(cu.pointer_attr(&type, CU_POINTER_MEMORY_TYPE, (uintptr_t)pinned));
    tap_point(type == CU_MEMORY_HOST, "pinned memory is type %d", type);
    for (int i = 0; i < N; i++)
        host[i] = (uint8_t)(i * 7);
    ANSWERS(CU_OK, "copy up", cu.copy_up(p, host, N, a));
    memset(host, 0, N); /* what is not pinned has been read when the call returns */
    ANSWERS(CU_OK, "copy on the device", cu.copy(q, p, N, a));
    ANSWERS(CU_OK, "cuMemsetD8Async", cu.set_d8(q, 0x5a, 100, a));
    ANSWERS(CU_OK, "copy down into pinned memory", cu.copy_down(pinned, q, N, a));
    ANSWERS(CU_OK, "the stream's end", stream_end(a));
    bool is_same = true;
    for (int i = 0; i < N; i++)
        is_same &= ((uint8_t *)pinned)[i] == (i < 100 ? 0x5a : (uint8_t)(i * 7));
    tap_point(is_same, "the bytes came back");
    ANSWERS(CU_OK, "cuMemFree", cu.mem_free(p));
    ANSWERS(CU_OK, "cuMemFree", cu.mem_free(q));
    ANSWERS(CU_OK, "cuMemFreeHost", cu.host_free(pinned));
}

static void check_pools(void)
{
    struct cu_pool_props props = {.alloc_type = 1, .location_type = 1};
    uint64_t keep = 1 << 24;
    cu_pool pool = NULL;
    cu_ptr p = 0, q = 0;
    int has = 0, ordinal = -1, never = 0;

    NEEDS(cu.device_attr(&has, CU_ATTR_MEMORY_POOLS, 0));
    tap_point(has == 1, "the device has memory pools: %d", has);
    if (!has || !cu.pool_new)
        return;
    NEEDS(cu.pool_new(&pool, &props));
    ANSWERS(CU_OK, "cuMemPoolSetAttribute, what is kept",
            cu.pool_set(pool, CU_POOL_RELEASE_THRESHOLD, &keep));
    ANSWERS(CU_OK, "cuMemPoolSetAttribute, no stream is made to wait",
            cu.pool_set(pool, CU_POOL_MAKES_STREAMS_WAIT, &never));
    NEEDS(cu.mem_alloc_from(&p, N, pool, a));
    NEEDS(cu.pointer_attr(&ordinal, CU_POINTER_ORDINAL, p));
    tap_point(ordinal == 0, "a pool's memory is of device %d", ordinal);
    NEEDS(cu.set_d8(p, 1, N, a));
    ANSWERS(CU_OK, "cuMemFreeAsync in the stream", cu.mem_free_async(p, a));
    NEEDS(cu.mem_alloc_from(&q, N, pool, a));
    ANSWERS(CU_OK, "cuMemFree of a pool's memory", cu.mem_free(q));
    ANSWERS(CU_OK, "the stream's end", stream_end(a));
    ANSWERS(CU_OK, "cuMemPoolDestroy", cu.pool_free(pool));
}

static void check_events(void)
{
    static uint8_t back[8];
    cu_event e = NULL, f = NULL;
    cu_ptr p = 0, q = 0;

    NEEDS(cu.event_new(&e, CU_EVENT_DISABLE_TIMING));
    NEEDS(cu.event_new(&f, CU_EVENT_DISABLE_TIMING));
    ANSWERS(CU_OK, "cuEventQuery before any record", cu.event_query(e));
    ANSWERS(CU_OK, "cuStreamWaitEvent before any record", cu.stream_wait(a, e, 0));
    NEEDS(cu.mem_alloc(&p, (size_t)N * 64));
    NEEDS(cu.mem_alloc(&q, (size_t)N * 64));
    /* b reads what a has written, though a is long at it */
    for (int i = 0; i < 50; i++)
        NEEDS(cu.set_d8(p, (unsigned char)i, (size_t)N * 64, a));
    NEEDS(cu.event_record(e, a));
    NEEDS(cu.stream_wait(b, e, 0));
    NEEDS(cu.copy(q, p + (size_t)N * 64 - 8, 8, b));
    NEEDS(cu.event_record(f, b));
    ANSWERS(CU_OK, "the event of the stream that waited", event_end(f));
    ANSWERS(CU_OK, "the event that it waited for", cu.event_query(e));
    NEEDS(cu.copy_down(back, q, 8, b));
    NEEDS(stream_end(b));
    tap_point(back[0] == 49 && back[7] == 49, "it has read the last value: %d",
              back[0]);
    if (cu.ctx_record_event) {
        NEEDS(cu.set_d8(p, 1, N, a));
        NEEDS(cu.set_d8(q, 1, N, b));
        ANSWERS(CU_OK, "cuCtxRecordEvent", cu.ctx_record_event(ctx, e));
        ANSWERS(CU_OK, "its event", event_end(e));
        tap_point(cu.stream_query(a) == CU_OK && cu.stream_query(b) == CU_OK,
                  "all streams are done with it");
    }
    ANSWERS(CU_OK, "cuEventDestroy", cu.event_free(e));
    ANSWERS(CU_OK, "cuEventDestroy", cu.event_free(f));
    NEEDS(cu.mem_free(p));
    NEEDS(cu.mem_free(q));
}

static void check_captures(void)
{
    static uint8_t back[4];
    int mode = CU_CAPTURE_RELAXED, is_active = 0;
    cu_graph_exec exec = NULL;
    cu_graph g = NULL;
    cu_ptr p = 0, q = 0;

    NEEDS(cu.mem_alloc(&p, 4));
    NEEDS(cu.mem_alloc(&q, 4));
    NEEDS(cu.set_d8(p, 1, 4, a));
    NEEDS(cu.set_d8(q, 2, 4, a));
    NEEDS(stream_end(a));
    ANSWERS(CU_OK, "cuThreadExchangeStreamCaptureMode", cu.capture_mode(&mode));
    tap_point(mode == CU_CAPTURE_GLOBAL, "the mode of a thread is first %d", mode);
    int r = cu.capture_end(a, &g);
    tap_point(r != CU_OK, "cuStreamEndCapture without a capture: %d", r);
    ANSWERS(CU_CAPTURE_UNSUPPORTED, "a capture of the legacy stream",
            cu.capture_begin(NULL, CU_CAPTURE_RELAXED));
    NEEDS(cu.capture_begin(a, CU_CAPTURE_RELAXED));
    NEEDS(cu.stream_capturing(a, &is_active));
    tap_point(is_active == CU_CAPTURE_ACTIVE, "the stream captures: %d", is_active);
    NEEDS(cu.stream_capturing(b, &is_active));
    tap_point(is_active == CU_CAPTURE_NONE, "the other one does not: %d", is_active);
    ANSWERS(CU_OK, "a copy into the capture", cu.copy(q, p, 4, a));
    ANSWERS(CU_OK, "cuStreamEndCapture", cu.capture_end(a, &g));
    NEEDS(cu.copy_down(back, q, 4, b));
    NEEDS(stream_end(b));
    tap_point(back[0] == 2, "what was captured did not run: %d", back[0]);
    if (!cu.graph_make)
        return;
    ANSWERS(CU_OK, "cuGraphInstantiateWithFlags", cu.graph_make(&exec, g, 0));
    ANSWERS(CU_OK, "cuGraphDestroy of what an instance was made of", cu.graph_free(g));
    for (int i = 5; i < 7; i++) {
        NEEDS(cu.set_d8(p, (unsigned char)i, 4, b));
        NEEDS(stream_end(b));
        ANSWERS(CU_OK, "cuGraphLaunch", cu.graph_launch(exec, b));
        NEEDS(cu.copy_down(back, q, 4, b));
        NEEDS(stream_end(b));
        tap_point(back[0] == i, "the graph copied %d", back[0]);
    }
    ANSWERS(CU_OK, "cuGraphExecDestroy", cu.graph_exec_free(exec));
    mode = CU_CAPTURE_GLOBAL;
    NEEDS(cu.capture_mode(&mode));
    tap_point(mode == CU_CAPTURE_RELAXED, "the mode was kept: %d", mode);
    NEEDS(cu.mem_free(p));
    NEEDS(cu.mem_free(q));
}

/* A call about the whole context also concerns a stream that is being captured. */
static void broken_captures(void)
{
    int mode = CU_CAPTURE_RELAXED;
    cu_event e = NULL;
    cu_graph g = NULL;

    if (!cu.ctx_record_event)
        return;
    NEEDS(cu.event_new(&e, CU_EVENT_DISABLE_TIMING));
    NEEDS(cu.capture_mode(&mode));
    NEEDS(cu.capture_begin(a, CU_CAPTURE_THREAD_LOCAL));
    ANSWERS(CU_CAPTURE_UNSUPPORTED, "cuCtxRecordEvent while a stream is captured",
            cu.ctx_record_event(ctx, e));
    ANSWERS(CU_CAPTURE_INVALIDATED, "the end of that capture", cu.capture_end(a, &g));
    NEEDS(cu.capture_mode(&mode));
    NEEDS(cu.event_free(e));
}

static void check_modules(void)
{
    static const char garbage[] = "this is no image of kernels";
    static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                              ".visible .entry hvd_none() { ret; }\n";
    cu_module m = NULL;
    cu_func f = NULL;

    /* what is neither a cubin nor a list of them may be taken for PTX; launch.c takes
     * both answers for a refusal */
    int r = cu.module_load(&m, garbage);
    tap_point(r == CU_INVALID_IMAGE || r == CU_INVALID_PTX,
              "cuModuleLoadData of no image refuses it");
    ANSWERS(CU_OK, "cuModuleLoadData of PTX", cu.module_load(&m, ptx));
    ANSWERS(CU_NOT_FOUND, "cuModuleGetFunction of what is not there",
            cu.module_func(&f, m, "not_there"));
    ANSWERS(CU_OK, "cuModuleUnload", cu.module_free(m));
}

int main(void)
{
    open_driver();
    (void)printf("# CUDA %d\n", cu.version);
    check_names();
    check_contexts();
    check_memory();
    check_pools();
    check_events();
    check_captures();
    broken_captures();
    check_modules();
    ANSWERS(CU_OK, "cuStreamDestroy", cu.stream_free(a));
    ANSWERS(CU_OK, "cuStreamDestroy", cu.stream_free(b));
    ANSWERS(CU_OK, "cuCtxSynchronize", cu.ctx_sync());
    return end_points();
}
