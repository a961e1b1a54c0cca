/* SPDX-License-Identifier: Apache-2.0 */
/* TensorFlow's operations on GPUs, with a fake TensorFlow and a fake runtime: which
 * kernels there are, what the runtime receives, and in which order. */
#include "tests/unit/unit.h"
#include <sys/wait.h>

#include "hvd.h"
#include "runtime/tensorflow/use_gpu.h"
#include "tests/unit/tf_fake.h"

static const char *fake_report = "{\"can\":false,\"problem\":\"none\"}";
#define CAN "{\"can\":true,\"problem\":\"\"}"

/* --- the runtime: logs each call, and ends all operations well --- */

static struct fake_op {
    hvd_alloc_fn alloc;
    void *arg;
    int64_t n;
} fake_ops[64];
static hvd_handle fake_n_ops;
/* An operation that begins while the next one is waited for; NULL: none. */
static const struct TF_KernelBuilder *fake_inner;
static void *fake_inner_kernel;
static struct TF_OpKernelContext *fake_inner_context;

/* The submit of t, which is of n elements. */
static int fake_submit(const char *what,
                       const struct hvd_tensor *t,
                       hvd_alloc_fn alloc,
                       void *arg,
                       hvd_handle *ret)
{
    struct fake_op *op = &fake_ops[fake_n_ops++ % 64];

    *op = (struct fake_op){alloc, arg, t->ndim > 0 ? t->shape[0] : 0};
    *ret = fake_n_ops;
    fake_log("%s(%s,%d%s%s%s) ", what, t->name, t->device,
             t->stream == HVD_STREAM_ALL ? ",all" : "", t->is_held ? ",held" : "",
             t->ndim > 0 && !t->data ? ",NULL" : "");
    return HVD_OK;
}

int hvd_allreduce_async(const struct hvd_tensor *t,
                        int op,
                        double prescale,
                        double postscale,
                        int set,
                        hvd_handle *ret)
{
    return fake_submit("allreduce", t, NULL, NULL, ret);
}

int hvd_allgather_async(
    const struct hvd_tensor *t, hvd_alloc_fn alloc, void *arg, int set, hvd_handle *ret)
{
    return fake_submit("allgather", t, alloc, arg, ret);
}

int hvd_broadcast_async(const struct hvd_tensor *t, int root, int set, hvd_handle *ret)
{
    return fake_submit("broadcast", t, NULL, NULL, ret);
}

int hvd_reducescatter_async(const struct hvd_tensor *t,
                            int op,
                            double prescale,
                            double postscale,
                            hvd_alloc_fn alloc,
                            void *arg,
                            int set,
                            hvd_handle *ret)
{
    return fake_submit("reducescatter", t, alloc, arg, ret);
}

int hvd_alltoall_async(const struct hvd_tensor *t,
                       const int64_t *splits,
                       int n_splits,
                       hvd_alloc_fn alloc,
                       void *arg,
                       int set,
                       hvd_handle *ret)
{
    return fake_submit("alltoall", t, alloc, arg, ret);
}

int hvd_barrier_async(const struct hvd_tensor *t, int set, hvd_handle *ret)
{
    return fake_submit("barrier", t, NULL, NULL, ret);
}

int hvd_join_async(const struct hvd_tensor *t, hvd_handle *ret)
{
    return fake_submit("join", t, NULL, NULL, ret);
}

int hvd_submit_held(const hvd_handle *handles, int n)
{
    fake_log("submit%d ", n);
    return HVD_OK;
}

int hvd_wait(hvd_handle h, int64_t timeout_ms)
{
    struct fake_op *op = &fake_ops[(h - 1) % 64];

    fake_log("wait ");
    if (fake_inner) {
        const struct TF_KernelBuilder *inner = fake_inner;

        fake_inner = NULL;
        inner->compute(fake_inner_kernel, fake_inner_context);
    }
    if (op->alloc && !op->alloc(op->arg, 1, &op->n, (size_t)op->n * sizeof(float)))
        return HVD_NO_MEMORY;
    return HVD_OK;
}

int hvd_received_splits(hvd_handle h, int64_t *ret, int n)
{
    if (n > 0)
        ret[0] = 4;
    return 1;
}

/* Rank 1 of two on one host. */
#define FAKE_ANSWER(result, name, parameters, answer)                                  \
    result name parameters                                                             \
    {                                                                                  \
        return answer;                                                                 \
    }
FAKE_ANSWER(int, hvd_release, (hvd_handle h), HVD_OK)
FAKE_ANSWER(int, hvd_joined_last, (hvd_handle h), 0)
FAKE_ANSWER(const char *, hvd_last_error, (void), "")
FAKE_ANSWER(int, hvd_is_initialized, (void), 1)
FAKE_ANSWER(int, hvd_rank, (void), 1)
FAKE_ANSWER(int, hvd_local_rank, (void), 1)
FAKE_ANSWER(int, hvd_local_size, (void), 2)
FAKE_ANSWER(int, hvd_process_set_size, (int set), 2)
FAKE_ANSWER(int, hvd_process_set_rank, (int set), 1)

size_t hvd_device_report(char *buf, size_t n)
{
    fake_log("report ");
    return (size_t)snprintf(buf, n, "%s", fake_report);
}

/* --- helpers --- */

/* The library is asked once in a process. */
static void in_child(void (*test)(void))
{
    int status = 0;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        test();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* A test whose body runs in a child. */
#define CHILD_TEST(name)                                                               \
    static void name##_child(void);                                                    \
    UNIT_TEST(name)                                                                    \
    {                                                                                  \
        in_child(name##_child);                                                        \
    }                                                                                  \
    static void name##_child(void)

#define CHECK(claim)                                                                   \
    do {                                                                               \
        if (!(claim)) {                                                                \
            (void)fprintf(stderr, "%s:%d: %s; said: %s\n", __FILE__, __LINE__, #claim, \
                          said);                                                       \
            _exit(1);                                                                  \
        }                                                                              \
    } while (0)

static void use_gpu(void)
{
    fake_report = CAN;
    CHECK(hvd_tf_use_gpu() == 1);
}

static size_t count_kernels(const char *device)
{
    size_t n = 0;

    for (size_t i = 0; i < fake_n_kernels; i++)
        n += !strcmp(fake_kernels[i].device, device);
    return n;
}

/* With n_inputs vectors of n. */
static struct TF_OpKernelContext context_of(int n_inputs, int64_t n)
{
    struct TF_OpKernelContext c = {.n_inputs = n_inputs};

    for (int i = 0; i < n_inputs; i++)
        c.inputs[i] = fake_tensor(TF_FLOAT, n);
    return c;
}

/* Runs it with n_inputs vectors of n; what was said. */
static const char *
run_kernel(const char *op, const char *device, int n_inputs, int64_t n)
{
    struct TF_OpKernelConstruction made = {.name = "x", .is_blocking = true};
    struct TF_OpKernelContext context = context_of(n_inputs, n);
    const struct TF_KernelBuilder *b = fake_find(op, device);
    void *kernel;

    CHECK(b);
    kernel = b->create(&made);
    CHECK(kernel);
    said[0] = '\0';
    b->compute(kernel, &context);
    CHECK(!*context.failure);
    b->free(kernel);
    fake_clear(&context);
    return said;
}

#define SAYS(op, n_inputs, n, text)                                                    \
    CHECK(!strcmp(run_kernel("Hvd" op, "GPU", n_inputs, n), text))

/* --- which kernels there are --- */

static void no_gpu(void)
{
    size_t n = fake_n_kernels;

    CHECK(n > 0 && count_kernels("CPU") == n);
    CHECK(!strcmp(said, "")); /* not at load */
    CHECK(hvd_tf_use_gpu() == 0);
    CHECK(fake_n_kernels == n);
    fake_report = CAN;
    CHECK(hvd_tf_use_gpu() == 0);
    CHECK(!strcmp(said, "report ")); /* once */
}

static void child_with_gpu(void)
{
    use_gpu();
    CHECK(hvd_tf_use_gpu() == 1);
    CHECK(count_kernels("GPU") == 10);
    CHECK(fake_find("HvdGroupedReducescatter", "GPU") && !fake_find("HvdSize", "GPU"));
}

UNIT_TEST(kernels_for_gpus_are_there_only_where_reported)
{
    in_child(no_gpu);
    in_child(child_with_gpu);
}

CHILD_TEST(what_the_host_reads_is_in_its_memory)
{
    use_gpu();
    for (size_t i = 0; i < fake_n_kernels; i++) {
        const struct TF_KernelBuilder *b = &fake_kernels[i];
        bool is_gpu = !strcmp(b->device, "GPU");
        const char *wanted = is_gpu && !strcmp(b->op, "HvdAlltoall")
                                 ? "splits,received_splits"
                             : is_gpu && !strcmp(b->op, "HvdJoin") ? "output"
                                                                   : "";
        CHECK(!strcmp(b->hosts, wanted));
    }
}

/* Only where one was looked for, and only tensors. */
CHILD_TEST(the_runtime_receives_that_there_is_no_gpu)
{
    CHECK(!strcmp(run_kernel("HvdAllreduce", "CPU", 1, 4),
                  "make0 allreduce(allreduce.x,-1) wait "));
    CHECK(hvd_tf_use_gpu() == 0);
    CHECK(!strcmp(run_kernel("HvdAllreduce", "CPU", 1, 4),
                  "make0 allreduce(allreduce.x,-3) wait "));
    CHECK(!strcmp(run_kernel("HvdAllgather", "CPU", 1, 4),
                  "allgather(allgather.x,-3) wait make0 "));
    CHECK(!strcmp(run_kernel("HvdJoin", "CPU", 0, 0), "join(join,-1) wait make0 "));
    CHECK(
        !strcmp(run_kernel("HvdBarrier", "CPU", 0, 0), "barrier(barrier.x,-1) wait "));
}

/* --- what the runtime receives --- */

CHILD_TEST(outputs_are_made_before_the_submit)
{
    use_gpu();
    SAYS("Allreduce", 1, 4, "make0 allreduce(allreduce.x,-2,all) wait ");
    SAYS("Broadcast", 1, 4, "make0 broadcast(broadcast.x,-2,all) wait ");
    SAYS("GroupedAllreduce", 2, 4,
         "make0 make1 allreduce(grouped_allreduce.x_1of2,-2,all,held) "
         "allreduce(grouped_allreduce.x_2of2,-2,all,held) submit2 wait wait ");
    SAYS("Allgather", 1, 4, "allgather(allgather.x,-2,all) wait make0 ");
    SAYS("Reducescatter", 1, 4, "reducescatter(reducescatter.x,-2,all) wait make0 ");
    SAYS("Alltoall", 2, 4, "alltoall(alltoall.x,-2,all) wait make0 make1 ");
    /* an empty tensor is on the GPU too */
    SAYS("Allreduce", 1, 0, "make0 allreduce(allreduce.x,-2,all) wait ");
    SAYS("Allgather", 1, 0, "allgather(allgather.x,-2,all) wait make0 ");
}

CHILD_TEST(kernels_of_the_cpu_stay_in_host_memory)
{
    use_gpu();
    CHECK(!strcmp(run_kernel("HvdAllreduce", "CPU", 1, 4),
                  "make0 allreduce(allreduce.x,-1) wait "));
    SAYS("Join", 0, 0, "join(join,-1) wait make0 ");
    SAYS("Barrier", 0, 0, "barrier(barrier.x,-1) wait ");
}

/* One name for two operations that are under way would be refused. */
CHILD_TEST(both_devices_count_together)
{
    struct TF_OpKernelConstruction made = {"x", .is_eager = true, .is_blocking = true};
    struct TF_OpKernelContext context = context_of(1, 4), inner = context_of(1, 4);
    const struct TF_KernelBuilder *cpu, *other;
    void *kernel;

    use_gpu();
    cpu = fake_find("HvdAllreduce", "CPU");
    other = fake_find("HvdAllreduce", "GPU");
    CHECK(cpu && other);
    kernel = cpu->create(&made);
    fake_inner_kernel = other->create(&made);
    fake_inner_context = &inner;
    fake_inner = other;
    said[0] = '\0';
    cpu->compute(kernel, &context);
    cpu->free(kernel);
    other->free(fake_inner_kernel);
    fake_clear(&context);
    fake_clear(&inner);
    CHECK(!strcmp(said, "make0 allreduce(allreduce.eager.0.0,-1) wait "
                        "make0 allreduce(allreduce.eager.0.1,-2,all) wait "));
}

UNIT_MAIN(NULL, NULL)
