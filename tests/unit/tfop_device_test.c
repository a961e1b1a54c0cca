/* SPDX-License-Identifier: Apache-2.0 */
/* TensorFlow's operations on GPUs, with a fake TensorFlow and a fake runtime: which
 * kernels there are, what the runtime is told, and in which order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/tensorflow/use_gpu.h"
#include "tests/unit/tf_fake.h"

#define CAN "{\"can\":true,\"problem\":\"\"}"

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

#define CHECK(claim)                                                                   \
    do {                                                                               \
        if (!(claim)) {                                                                \
            (void)fprintf(stderr, "%s:%d: %s; said: %s\n", __FILE__, __LINE__, #claim, \
                          said);                                                       \
            _exit(1);                                                                  \
        }                                                                              \
    } while (0)

static const struct TF_KernelBuilder *find(const char *op, const char *device)
{
    for (size_t i = 0; i < fake_n_kernels; i++)
        if (!strcmp(fake_kernels[i].op, op) && !strcmp(fake_kernels[i].device, device))
            return &fake_kernels[i];
    return NULL;
}

static size_t count(const char *device)
{
    size_t n = 0;

    for (size_t i = 0; i < fake_n_kernels; i++)
        n += !strcmp(fake_kernels[i].device, device);
    return n;
}

/* Runs it with n_inputs vectors of n; what was said. */
static const char *run(const char *op, const char *device, int n_inputs, int64_t n)
{
    struct TF_OpKernelConstruction made = {.is_eager = false};
    struct TF_OpKernelContext context = {n_inputs, n};
    const struct TF_KernelBuilder *b = find(op, device);
    void *kernel;

    CHECK(b);
    kernel = b->create(&made);
    CHECK(kernel);
    said[0] = '\0';
    b->compute(kernel, &context);
    b->free(kernel);
    return said;
}

#define SAYS(op, n_inputs, n, text)                                                    \
    CHECK(!strcmp(run("Hvd" op, "GPU", n_inputs, n), text))

/* --- which kernels there are --- */

static void no_gpu(void)
{
    size_t n = fake_n_kernels;

    CHECK(n > 0 && count("CPU") == n);
    CHECK(!strcmp(said, "")); /* not at load */
    CHECK(hvd_tf_use_gpu() == 0);
    CHECK(fake_n_kernels == n);
    fake_report = CAN;
    CHECK(hvd_tf_use_gpu() == 0);
    CHECK(!strcmp(said, "report ")); /* once */
}

static void gpu(void)
{
    fake_report = CAN;
    CHECK(hvd_tf_use_gpu() == 1);
    CHECK(hvd_tf_use_gpu() == 1);
    CHECK(count("GPU") == 10);
    CHECK(find("HvdGroupedReducescatter", "GPU") && !find("HvdSize", "GPU"));
}

static void kernels_for_gpus_are_there_only_where_reported(void **state)
{
    (void)state;
    in_child(no_gpu);
    in_child(gpu);
}

static void hosts(void)
{
    fake_report = CAN;
    CHECK(hvd_tf_use_gpu() == 1);
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

static void what_the_host_reads_is_in_its_memory(void **state)
{
    (void)state;
    in_child(hosts);
}

/* --- what the runtime is told --- */

static void order(void)
{
    fake_report = CAN;
    CHECK(hvd_tf_use_gpu() == 1);
    SAYS("Allreduce", 1, 4, "make0 allreduce(allreduce.x,-2,all) wait ");
    SAYS("Broadcast", 1, 4, "make0 broadcast(broadcast.x,-2,all) wait ");
    SAYS("GroupedAllreduce", 2, 4,
         "make0 make1 allreduce(grouped_allreduce.x_1of2,-2,all,held) "
         "allreduce(grouped_allreduce.x_2of2,-2,all,held) submit2 wait wait ");
    SAYS("Allgather", 1, 4, "allgather(allgather.x,-2,all) wait make0 ");
    SAYS("Reducescatter", 1, 4, "reducescatter(reducescatter.x,-2,all) wait make0 ");
    SAYS("Alltoall", 2, 4, "alltoall(alltoall.x,-2,all) wait make0 make1 ");
}

static void outputs_are_made_before_the_submit(void **state)
{
    (void)state;
    in_child(order);
}

static void empty(void)
{
    fake_report = CAN;
    CHECK(hvd_tf_use_gpu() == 1);
    SAYS("Allreduce", 1, 0, "make0 allreduce(allreduce.x,-2,all) wait ");
    SAYS("Allgather", 1, 0, "allgather(allgather.x,-2,all) wait make0 ");
}

static void an_empty_tensor_is_on_the_gpu_too(void **state)
{
    (void)state;
    in_child(empty);
}

static void host(void)
{
    fake_report = CAN;
    CHECK(hvd_tf_use_gpu() == 1);
    CHECK(!strcmp(run("HvdAllreduce", "CPU", 1, 4),
                  "make0 allreduce(allreduce.x,-1) wait "));
    SAYS("Join", 0, 0, "join(join,-1) wait make0 ");
    SAYS("Barrier", 0, 0, "barrier(barrier.x,-1) wait ");
}

static void kernels_of_the_cpu_stay_in_host_memory(void **state)
{
    (void)state;
    in_child(host);
}

/* One name for two operations that are under way would be refused. */
static void numbers(void)
{
    struct TF_OpKernelConstruction made = {.is_eager = true};
    struct TF_OpKernelContext context = {1, 4};
    const struct TF_KernelBuilder *cpu, *other;
    void *kernel;

    fake_report = CAN;
    CHECK(hvd_tf_use_gpu() == 1);
    cpu = find("HvdAllreduce", "CPU");
    other = find("HvdAllreduce", "GPU");
    CHECK(cpu && other);
    kernel = cpu->create(&made);
    fake_inner_kernel = other->create(&made);
    fake_inner = other;
    said[0] = '\0';
    cpu->compute(kernel, &context);
    cpu->free(kernel);
    other->free(fake_inner_kernel);
    CHECK(!strcmp(said, "make0 allreduce(allreduce.eager.0.0,-1) wait "
                        "make0 allreduce(allreduce.eager.0.1,-2,all) wait "));
}

static void both_devices_count_together(void **state)
{
    (void)state;
    in_child(numbers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_for_gpus_are_there_only_where_reported),
        cmocka_unit_test(what_the_host_reads_is_in_its_memory),
        cmocka_unit_test(outputs_are_made_before_the_submit),
        cmocka_unit_test(an_empty_tensor_is_on_the_gpu_too),
        cmocka_unit_test(kernels_of_the_cpu_stay_in_host_memory),
        cmocka_unit_test(both_devices_count_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
