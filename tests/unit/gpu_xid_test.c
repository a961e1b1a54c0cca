/* SPDX-License-Identifier: Apache-2.0 */
/* XIDs in front of a device's cause: their texts, which of several is reported, and
 * the one that ends the device by itself; and a device next to an NVML that does not
 * answer. */
#include "runtime/backend/nccl/xid.h"
#include "runtime/contract/gpu_cause.h"
#include "tests/unit/gpu_hooks.h"

#define LONG_NS (20 * NS_PER_S)

static void (*xid_inject)(int xid);
static int (*nvml_hang)(int on); /* how many calls are in NVML */
static int (*n_sets)(void);

static int load_nvml(__attribute__((unused)) void **state)
{
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);

    *(void **)&xid_inject = dlsym(nvml, "hvd_fake_xid");
    *(void **)&nvml_hang = dlsym(nvml, "hvd_fake_nvml_hang");
    *(void **)&n_sets = dlsym(nvml, "hvd_fake_nvml_sets");
    return xid_inject && nvml_hang && n_sets ? 0 : -1;
}

/* Its XIDs are received from now on. */
static struct device *open_with_xids(void)
{
    struct device *g = open_one();

    assert_true(xids_query(g->xids, LONG_NS));
    return g;
}

/* No thread of it takes what is said to the next one. */
static void close_with_xids(struct device *g)
{
    assert_int_equal(gpu_close(g), 0);
    WAIT_UNTIL(n_sets() == 0);
}

/* A device that receives these, and then breaks. */
static void break_after(const int *xids, char *ret, size_t size_bytes)
{
    struct err err = ERR_INIT;
    struct device *g = open_with_xids();

    for (bool is_fatal = false; *xids; xids++) {
        xid_inject(*xids);
        assert_true(xids_query(g->xids, LONG_NS));
        is_fatal |= *xids == 79;
        assert_int_equal(xids_are_fatal(g->xids), is_fatal);
    }
    gpu_broken(g, "NCCL failed");
    assert_int_equal(gpu_check(g, &err), -ECONNABORTED);
    (void)snprintf(ret, size_bytes, "%s", err.text);
    close_with_xids(g);
}

/* NVML then returns an error, and no events any more. */
UNIT_TEST(a_gpu_that_is_lost_has_fallen_off_the_bus)
{
    struct err err = ERR_INIT;
    struct device *g = open_with_xids();

    xid_inject(-1);
    assert_true(xids_query(g->xids, LONG_NS));
    assert_true(xids_are_fatal(g->xids));
    gpu_broken(g, "NCCL failed");
    xid_inject(0);
    assert_int_equal(gpu_check(g, &err), -ECONNABORTED);
    assert_ptr_equal(strstr(err.text, "XID 79 (GPU has fallen off the bus)"), err.text);
    close_with_xids(g);
}

static void do_one_batch(struct device *g)
{
    struct gate gate = {0};
    struct device_event *done = step_push(g, (struct step){.gate = &gate});
    const unsigned n_woken = seen.n_woken;

    gate.is_open = 1;
    WAIT_UNTIL(seen.n_woken > n_woken);
    assert_int_equal(is_done(g, done), 1);
    event_unref(done);
}

/* It hangs till the end, first in the watcher's question, then for a new device. */
UNIT_TEST(a_device_lives_beside_an_nvml_that_hangs)
{
    struct err err = ERR_INIT;
    struct gate gate = {0};
    struct device *g = open_with_xids();

    struct device_event *done = step_push(g, (struct step){.gate = &gate});
    WAIT_UNTIL(nvml_hang(1) == 1);
    const unsigned n_looked = seen.n_looked;
    WAIT_UNTIL(seen.n_looked > n_looked + 1); /* for NCCL's errors */
    gate.is_open = 1;
    WAIT_UNTIL(seen.n_woken > 0); /* by the end of the batch */
    assert_int_equal(is_done(g, done), 1);
    event_unref(done);
    do_one_batch(g);
    assert_int_equal(gpu_close(g), 0);
    g = open_one();
    WAIT_UNTIL(nvml_hang(1) == 2);
    do_one_batch(g);
    gpu_broken(g, "NCCL failed");
    assert_int_equal(gpu_check(g, &err), -ECONNABORTED);
    assert_string_equal(err.text, "NCCL failed");
    assert_int_equal(gpu_close(g), 0);
    WAIT_UNTIL(nvml_hang(0) == 0);
    WAIT_UNTIL(n_sets() == 0); /* both threads have ended what they were in */
}

/* XIDs received before are reported all the same. */
UNIT_TEST(an_xid_is_reported_though_nvml_hangs_now)
{
    struct err err = ERR_INIT;
    struct device *g = open_with_xids();

    xid_inject(31);
    assert_true(xids_query(g->xids, LONG_NS));
    (void)nvml_hang(1);
    gpu_broken(g, "NCCL failed");
    (void)nvml_hang(0);
    assert_int_equal(gpu_check(g, &err), -ECONNABORTED);
    assert_memory_equal(err.text, "XID 31 (", 8);
    close_with_xids(g);
}

UNIT_TEST(each_common_xid_says_where_to_look)
{
    static const struct {
        int xid;
        enum gpu_cause cause; /* for the launcher, which parses the message */
        const char *text, *blamed;
    } table[] = {
        {13, GPU_CAUSE_PROGRAM, "graphics engine exception", "most often the program"},
        {31, GPU_CAUSE_PROGRAM, "GPU memory page fault", "most often the program"},
        {43, GPU_CAUSE_PROGRAM, "GPU stopped processing", "the program"},
        {45, GPU_CAUSE_PROGRAM, "preemptive cleanup", "a consequence"},
        {154, GPU_CAUSE_HARDWARE, "GPU recovery action changed", "a consequence"},
        {48, GPU_CAUSE_HARDWARE, "double bit ECC error", "the GPU"},
        {63, GPU_CAUSE_HARDWARE, "ECC page retirement or row remapping", "the GPU"},
        {64, GPU_CAUSE_HARDWARE, "ECC page retirement or row remapping failed",
         "the GPU"},
        {74, GPU_CAUSE_HARDWARE, "NVLink error", "the link"},
        {79, GPU_CAUSE_HARDWARE, "GPU has fallen off the bus", "the GPU or its slot"},
        {94, GPU_CAUSE_HARDWARE, "contained memory error", "the GPU"},
        {95, GPU_CAUSE_HARDWARE, "uncontained memory error", "the GPU"},
        {119, GPU_CAUSE_HARDWARE, "GSP RPC timeout", "the GPU or its driver"},
    };
    char text[512], begin[256], why[240];
    int32_t rank;

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        break_after((const int[]){table[i].xid, 0}, text, sizeof(text));
        (void)snprintf(begin, sizeof(begin),
                       "XID %d (%s) on GPU 0 (PCI 0000:10:00.0) of rank 2 (host b): %s",
                       table[i].xid, table[i].text, table[i].blamed);
        assert_memory_equal(text, begin, strlen(begin));
        assert_int_equal(gpu_cause_scan(text, why, sizeof(why), &rank), table[i].cause);
        assert_int_equal(rank, 2);
        assert_string_equal(text + strlen(why),
                            "; NCCL failed"); /* it fits, hint and all */
        assert_memory_equal(text, why, strlen(why));
    }
    break_after((const int[]){999, 0}, text, sizeof(text));
    assert_string_equal(
        text, "XID 999 on GPU 0 (PCI 0000:10:00.0) of rank 2 (host b); NCCL failed");
}

UNIT_TEST(the_most_significant_xid_is_reported)
{
    static const struct {
        int reported[4];
        const char *begin;
    } table[] = {
        {{79, 45}, "XID 79 "},  {{31, 43, 45}, "XID 31 "}, {{79, 119, 13}, "XID 79 "},
        {{13, 48}, "XID 48 "},  {{45, 31}, "XID 31 "},     {{48, 154}, "XID 48 "},
        {{48, 999}, "XID 48 "}, {{999, 48}, "XID 48 "},    {{0}, "NCCL failed"}};
    char text[512];

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        break_after(table[i].reported, text, sizeof(text));
        assert_memory_equal(text, table[i].begin, strlen(table[i].begin));
    }
}

/* A kernel on a lost GPU may never return, and CUDA may not report it. */
UNIT_TEST(a_gpu_off_the_bus_ends_the_device_by_itself)
{
    struct err err = ERR_INIT;
    struct gate gate = {0};

    struct device *g = open_with_xids();
    struct device_event *done = step_push(g, (struct step){.gate = &gate});
    xid_inject(31);
    usleep(250000);
    assert_int_equal(gpu_check(g, &err), 0); /* one to be survived */
    xid_inject(79);
    WAIT_UNTIL(gpu_check(g, &err) == -ECONNABORTED);
    assert_memory_equal(err.text, "XID 79 (", 8);
    assert_non_null(strstr(err.text, "; work on the GPU cannot end"));
    gate.is_open = 1;
    event_unref(done);
    close_with_xids(g);
}

UNIT_MAIN(load_nvml, NULL)
