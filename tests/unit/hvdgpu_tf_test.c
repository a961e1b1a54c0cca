/* SPDX-License-Identifier: Apache-2.0 */
/* TensorFlow's operations on tensors of GPUs, through the whole runtime: a fake
 * TensorFlow, worlds of processes, the fake driver and the fake NCCL.
 *
 * As in TensorFlow, inputs are produced by a stream that the operation does not get,
 * and memory of outputs may still be written by work of an earlier owner: here each
 * input is filled, and each output overwritten, by slow work that is in a stream when
 * the operation gets it. So a result is right only if the runtime waits for all
 * streams, and does so after the output was allocated. */
#include "tests/unit/hvdgpu_world.h"

#include <semaphore.h>

#include "runtime/tensorflow/use_gpu.h"
#include "tests/unit/tf_fake.h"

enum { N = 5, SLOW_US = 4000 };

/* --- the stream that the runtime does not get --- */

static struct cuda_api cu;
static cu_ctx context;
static cu_stream stream;
static int (*enqueue)(cu_stream s, int (*fn)(void *arg), const void *arg, size_t bytes);

struct fill {
    float *to;
    size_t n;
    float first, step;
    unsigned slow_us;
};
static unsigned slow_us = SLOW_US;

static int input_fill(void *arg)
{
    const struct fill *f = arg;

    (void)usleep(f->slow_us);
    for (size_t i = 0; i < f->n; i++)
        f->to[i] = f->first + f->step * (float)i;
    return 0;
}

static void fill_later(float *to, size_t n, float first, float step)
{
    struct fill f = {to, n, first, step, slow_us};

    CHECK(enqueue(stream, input_fill, &f, sizeof(f)) == 0, "nothing can be enqueued");
}

/* Any thread: as TensorFlow's allocator, which gives what a stream still uses. */
static void *used_memory(size_t bytes)
{
    cu_ctx was;
    cu_ptr p;

    CHECK(cu.ctx_push(context) == 0 && cu.mem_alloc(&p, bytes) == 0, "no memory");
    fill_later((float *)(uintptr_t)p, bytes / sizeof(float), -1000, 0);
    CHECK(cu.ctx_pop(&was) == 0, "no context");
    return (void *)(uintptr_t)p;
}

static void open_stream(int rank)
{
    struct err err = ERR_INIT;
    void *lib;

    (void)floats_on_gpu(rank, 1); /* makes the context this thread's */
    lib = dlopen(CUDA_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
    CHECK(lib && cuda_load(CUDA_LIBRARY, &cu, &err) == 0, "%s", err.text);
    *(void **)&enqueue = dlsym(lib, "hvd_fake_enqueue");
    CHECK(enqueue, "not the fake driver");
    CHECK(cu.ctx_pop(&context) == 0 && cu.ctx_push(context) == 0, "no context");
    CHECK(cu.stream_new(&stream, CU_STREAM_NON_BLOCKING, 0) == 0, "no stream");
    fake_gpu_memory = used_memory;
}

/* --- TensorFlow's asynchronous kernels --- */

struct TF_KernelBuilder *TF_NewAsyncKernelBuilder(const char *op,
                                                  const char *device,
                                                  tf_create_fn create,
                                                  tf_async_compute_fn compute,
                                                  tf_delete_fn del)
{
    struct TF_KernelBuilder *b = fake_kernel(op, device, create, del);

    b->compute_async = compute;
    return b;
}

/* libstdc++'s std::function, as tfop_done_test has it; posts a semaphore. */
struct function {
    void *storage[2];
    int (*manager)(void *to, const void *from, int operation);
    void (*invoker)(const void *storage);
};

static int function_manage(void *to, const void *from, int operation)
{
    if (operation == 2)
        ((struct function *)to)->storage[0] =
            ((const struct function *)from)->storage[0];
    return 0;
}

static void function_invoke(const void *storage)
{
    (void)sem_post(((const struct function *)storage)->storage[0]);
}

/* --- a run --- */

struct run {
    struct TF_OpKernelContext c;
    const struct TF_KernelBuilder *b;
    void *kernel;
    sem_t done;
};

static bool blocks; /* operations do, as where the self-test failed */

#define ON_GPU                                                                         \
    {                                                                                  \
        .c = {.is_on_gpu = true }                                                      \
    }

/* What compute() begins; inputs are in r->c. */
static void run_begin(struct run *r, const char *op, const char *name)
{
    struct TF_OpKernelConstruction made = {.name = name, .is_blocking = blocks};
    struct function f = {{&r->done, NULL}, function_manage, function_invoke};

    r->b = fake_find(op, r->c.is_on_gpu ? "GPU" : "CPU");
    CHECK(r->b, "no kernel of %s", op);
    CHECK(sem_init(&r->done, 0, 0) == 0, "no semaphore");
    r->kernel = r->b->create(&made);
    CHECK(r->kernel, "%s", said);
    r->b->compute_async(r->kernel, &r->c, (void *)&f);
    memset(&f, 0xee, sizeof(f));
    if (blocks) /* it has ended */
        (void)sem_post(&r->done);
}

static void run_end(struct run *r)
{
    while (sem_wait(&r->done) != 0)
        ;
    CHECK(!*r->c.failure, "%s", r->c.failure);
}

/* The GPU has done its work when `done` runs: the host reads at once. */
static void
run_expect(const struct run *r, int output, int64_t n, float first, float step)
{
    const struct TF_Tensor *t = r->c.outputs[output];
    const float *v = t ? t->data : NULL;

    CHECK(t && t->n == n && !t->is_host, "output %d", output);
    for (int64_t i = 0; i < n; i++)
        CHECK(v[i] == first + step * (float)i, "%s: output %d: [%d] is %g, not %g",
              r->b->op, output, (int)i, (double)v[i],
              (double)(first + step * (float)i));
}

static void close_run(struct run *r)
{
    r->b->free(r->kernel);
    fake_clear(&r->c);
    (void)sem_destroy(&r->done);
}

static void add_input(struct run *r, int64_t n, float first, float step)
{
    struct TF_Tensor *t = fake_tensor(r->c.is_on_gpu, TF_FLOAT, n);

    if (n > 0 && r->c.is_on_gpu)
        fill_later(t->data, (size_t)n, first, step);
    r->c.inputs[r->c.n_inputs++] = t;
}

/* --- the operations --- */

static void rank_reduces(int rank, int size)
{
    struct run r = ON_GPU, g = ON_GPU;
    const int sum = size * (size + 1) / 2;
    const float all = (float)sum;

    add_input(&r, N, (float)(rank + 1), 1);
    run_begin(&r, "HvdAllreduce", "a");
    add_input(&g, N, (float)(rank + 1), 0);
    add_input(&g, 1, (float)(rank + 1), 0);
    add_input(&g, 0, 0, 0);
    run_begin(&g, "HvdGroupedAllreduce", "g");
    run_end(&r);
    run_expect(&r, 0, N, all, (float)size);
    run_end(&g);
    run_expect(&g, 0, N, all, 0);
    run_expect(&g, 1, 1, all, 0);
    close_run(&r);
    close_run(&g);
}

static void rank_moves(int rank, int size)
{
    const int rows = size * (size - 1) / 2 + 2 * rank * size;
    struct run gather = ON_GPU, cast = ON_GPU, share = ON_GPU;

    add_input(&gather, rank == 0 ? 2 : 1, (float)(rank ? rank + 1 : 0), 1);
    run_begin(&gather, "HvdAllgather", "ag");
    add_input(&cast, N, (float)(10 + rank), 1);
    run_begin(&cast, "HvdBroadcast", "b");
    add_input(&share, size, (float)rank, 2);
    run_begin(&share, "HvdReducescatter", "rs");
    run_end(&gather);
    run_expect(&gather, 0, size + 1, 0, 1);
    run_end(&cast);
    run_expect(&cast, 0, N, 10, 1);
    run_end(&share);
    run_expect(&share, 0, 1, (float)rows, 0);
    close_run(&gather);
    close_run(&cast);
    close_run(&share);
}

static void rank_alltoall(int rank, int size)
{
    struct run r = ON_GPU;
    struct TF_Tensor *splits = fake_tensor(true, TF_INT32, size);
    const int32_t *received;

    CHECK(splits->data, "no memory");
    for (int i = 0; i < size; i++)
        ((int32_t *)splits->data)[i] = 1;
    add_input(&r, size, (float)(100 * rank), 1);
    r.c.inputs[r.c.n_inputs++] = splits;
    run_begin(&r, "HvdAlltoall", "aa");
    run_end(&r);
    run_expect(&r, 0, size, (float)rank, 100);
    CHECK(r.c.outputs[1]->is_host && r.c.outputs[1]->n == size, "received splits");
    received = r.c.outputs[1]->data;
    for (int i = 0; i < size; i++)
        CHECK(received[i] == 1, "from %d: %d", i, (int)received[i]);
    close_run(&r);
}

static void tf_body(int rank, int size)
{
    CHECK_OK(hvd_init(NULL));
    open_stream(rank);
    CHECK(hvd_tf_use_gpu() == 1, "%s", said);
    for (int i = 0; i < 3; i++) {
        rank_reduces(rank, size);
        rank_moves(rank, size);
        rank_alltoall(rank, size);
    }
    CHECK_OK(hvd_shutdown());
}

static void blocking_body(int rank, int size)
{
    blocks = true;
    tf_body(rank, size);
}

/* Whoever has an empty tensor only, and first, uses the GPU of its local rank. */
static void empty_body(int rank, int size)
{
    struct run r = ON_GPU, none = ON_GPU, share = ON_GPU;

    CHECK_OK(hvd_init(NULL));
    open_stream(rank);
    CHECK(hvd_tf_use_gpu() == 1, "%s", said);
    add_input(&r, rank == 1 ? 0 : 1, (float)rank, 0);
    run_begin(&r, "HvdAllgather", "e");
    run_end(&r);
    run_expect(&r, 0, size - 1, 0, 2);
    close_run(&r);
    add_input(&none, 0, 0, 0);
    run_begin(&none, "HvdAllgather", "n");
    run_end(&none);
    run_expect(&none, 0, 0, 0, 0);
    close_run(&none);
    add_input(&share, 1, 1, 0); /* the first rank's */
    run_begin(&share, "HvdReducescatter", "s");
    run_end(&share);
    run_expect(&share, 0, rank == 0 ? 1 : 0, (float)size, 0);
    close_run(&share);
    rank_reduces(rank, size);
    CHECK_OK(hvd_shutdown());
}

/* One rank places it on the CPU: all ranks report it, and none hangs. */
RANK_BODY(mixed_body)
{
    struct run r = ON_GPU;

    CHECK_OK(hvd_init(NULL));
    open_stream(rank);
    CHECK(hvd_tf_use_gpu() == 1, "%s", said);
    r.c.is_on_gpu = rank != 1;
    add_input(&r, N, 1, 0);
    run_begin(&r, "HvdAllreduce", "m");
    while (sem_wait(&r.done) != 0)
        ;
    CHECK(strstr(r.c.failure, "Mismatched CPU/GPU device selection"), "%s",
          r.c.failure);
    close_run(&r);
    CHECK_OK(hvd_shutdown());
}

/* One rank sees no GPU: all ranks report its name and the reason. */
RANK_BODY(none_body)
{
    struct run r = ON_GPU;

    if (rank == 1)
        (void)setenv("CUDA_VISIBLE_DEVICES", "", 1);
    CHECK_OK(hvd_init(NULL));
    if (rank != 1)
        open_stream(rank);
    CHECK(hvd_tf_use_gpu() == (rank != 1), "%s", said);
    r.c.is_on_gpu = rank != 1;
    add_input(&r, N, 1, 0);
    run_begin(&r, "HvdAllreduce", "none");
    while (sem_wait(&r.done) != 0)
        ;
    CHECK(strstr(r.c.failure, "(rank 1 has no GPU: no CUDA device is visible "
                              "(CUDA_VISIBLE_DEVICES=\"\"))"),
          "%s", r.c.failure);
    close_run(&r);
    CHECK_OK(hvd_shutdown());
}

/* The last rank dies before its allreduce has started on its GPU. The GPUs of the
 * others wait for it, and so would a thread that synchronises with them: behind it
 * they allocate the output of an allgather. */
static void lost_body(int rank, int size)
{
    struct run r = ON_GPU, behind = ON_GPU;
    char who[32];

    if (rank == size - 1) /* which does not wait at the submit */
        (void)setenv("HVD_FAKE_CUDA", "12050", 1);
    CHECK_OK(hvd_init(NULL));
    open_stream(rank);
    CHECK(hvd_tf_use_gpu() == 1, "%s", said);
    rank_reduces(rank, size);
    if (rank == size - 1)
        slow_us = 2000000;
    add_input(&r, N, 1, 0);
    run_begin(&r, "HvdAllreduce", "l");
    slow_us = SLOW_US;
    add_input(&behind, N, 1, 0);
    run_begin(&behind, "HvdAllgather", "m");
    if (rank == size - 1) {
        (void)usleep(300000);
        (void)kill(getpid(), SIGKILL);
    }
    (void)snprintf(who, sizeof(who), "rank %d (", size - 1);
    for (struct run *x = &r; x; x = x == &r ? &behind : NULL) {
        while (sem_wait(&x->done) != 0)
            ;
        CHECK(strstr(x->c.failure, who) && strstr(x->c.failure, " was lost"), "%s",
              x->c.failure);
        close_run(x);
    }
    (void)hvd_shutdown(); /* of a broken world */
}

static bool case_prepare(const char *cuda)
{
    if (!has_kernels())
        return false;
    use_nccl("22705");
    (void)setenv("HVD_FAKE_CUDA", cuda, 1);
    return true;
}

static void case_run(const char *cuda, int size, rank_fn body)
{
    if (!case_prepare(cuda))
        return;
    world_run(size, body);
    (void)unsetenv("HVD_FAKE_CUDA");
}

UNIT_TEST(all_streams_are_waited_for_by_one_event)
{
    case_run("12050", 3, tf_body);
}

UNIT_TEST(all_streams_are_waited_for_by_older_drivers)
{
    case_run("12040", 3, tf_body);
    (void)setenv("HVD_GPU_READY", "sync", 1);
    case_run("12050", 2, tf_body);
    (void)unsetenv("HVD_GPU_READY");
}

UNIT_TEST(operations_may_block)
{
    case_run("12050", 2, blocking_body);
    case_run("12040", 2, blocking_body);
}

UNIT_TEST(an_empty_tensor_may_be_the_first)
{
    case_run("12050", 3, empty_body);
}

UNIT_TEST(a_rank_that_computes_on_the_cpu_is_an_error)
{
    case_run("12050", 2, mixed_body);
}

UNIT_TEST(a_rank_without_a_gpu_is_named_on_all)
{
    case_run("12050", 3, none_body);
}

UNIT_TEST(a_lost_rank_is_reported_while_the_gpu_waits_for_it)
{
    struct proc_world w;

    if (!case_prepare("12040"))
        return;
    world_start(&w, 3, lost_body);
    world_end(&w, 2);
    (void)unsetenv("HVD_FAKE_CUDA");
}

UNIT_MAIN(NULL, NULL)
