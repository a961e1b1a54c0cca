/* SPDX-License-Identifier: Apache-2.0 */
/* Why a rank hangs: a row is two samples of its threads, its stacks, and the cause. A
 * thread is "STATE SYSCALL ARG0 ARG1 ARG3 CPU_TICKS_IN_BETWEEN SP WCHAN FILE SLEEPS"; the
 * main thread comes first, threads are separated by ';'. */
#include "runtime/launch/core/hang.h"

#include <sys/syscall.h>

#include "runtime/base/mem.h"
#include "tests/unit/unit.h"

static struct hang_sample samples[2];
static struct hang_finding found, more;

/* --- samples --- */

static const struct {
    const char *name;
    int64_t number;
} calls[] = {
    {"futex", SYS_futex},
    {"read", SYS_read},
    {"flock", SYS_flock},
    {"fcntl", SYS_fcntl},
    {"openat", SYS_openat},
    {"write", SYS_write},
    {"wait4", SYS_wait4},
    {"recv", SYS_recvfrom},
    {"nanosleep", SYS_clock_nanosleep},
    {"poll", SYS_ppoll},
    {"fault", HANG_NOT_IN_SYSCALL},
    {"run", HANG_RUNNING},
    {"?", HANG_UNKNOWN},
    {"ioctl", SYS_ioctl},
};

static int64_t call_number(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        if (strcmp(calls[i].name, name) == 0)
            return calls[i].number;
    fail_msg("unknown call %s", name);
    return 0;
}

static void thread_read(const char *text, struct hang_thread *a, struct hang_thread *b)
{
    char state, call[16], wchan[48] = "-", file[128] = "-";
    unsigned long arg0, arg1, arg3, ticks, sp, sleeps = 0;
    int n = sscanf(text, " %c %15s %lu %lu %lu %lu %lx %47s %127s %lu", &state, call,
                   &arg0, &arg1, &arg3, &ticks, &sp, wchan, file, &sleeps);

    if (n < 7)
        fail_msg("%s: %d fields", text, n);
    *b = (struct hang_thread){.state = state,
                              .syscall = call_number(call),
                              .arg = {arg0, arg1, 0, arg3},
                              .sp = sp,
                              .cpu_ticks = 1000 + ticks};
    if (wchan[0] != '-')
        (void)snprintf(b->wchan, sizeof(b->wchan), "%s", wchan);
    if (file[0] != '-')
        (void)snprintf(b->file, sizeof(b->file), "%s", file);
    *a = *b;
    a->cpu_ticks = 1000;
    b->n_sleeps = sleeps;
}

static void samples_read(const char *threads, uint64_t n_faults)
{
    memset(samples, 0, sizeof(samples));
    for (uint32_t i = 0; *threads; i++) {
        size_t n = strcspn(threads, ";");
        char text[256];

        (void)snprintf(text, sizeof(text), "%.*s", (int)n, threads);
        thread_read(text, &samples[0].v[i], &samples[1].v[i]);
        samples[0].v[i].tid = samples[1].v[i].tid = 400 + i;
        samples[0].n = samples[1].n = samples[1].n_threads = i + 1;
        threads += n + (threads[n] == ';');
    }
    samples[0].start_ticks = samples[1].start_ticks = 77;
    samples[0].at_ns = 1;
    samples[1].at_ns = 1000000001;
    samples[0].n_major_faults = 5;
    samples[1].n_major_faults = 5 + n_faults;
    samples[1].swap_kib = n_faults * 1024;
}

static void find(const char *first, const char *last)
{
    const struct hang_input in = {.a = &samples[0],
                                  .b = &samples[1],
                                  .ticks_per_s = 100,
                                  .dumps = {first, last},
                                  .why_no_dump = first ? "" : "it does not answer",
                                  .gpu = ""};

    memset(&found, 0xff, sizeof(found));
    assert_int_equal(hang_find(&in, &found), 0);
}

/* --- stacks --- */

#define CURRENT             "Current thread 0x0000000000009000 (most recent call first):\n"
#define OTHER               "Thread 0x0000000000005000 (most recent call first):\n"
#define F(file, line, name) "  File \"" file "\", line " #line " in " name "\n"
#define MAIN                F("/srv/train.py", 60, "<module>")
#define END                 "native\n    x (libc.so.6)\nend\n"
#define STEP                CURRENT F("/srv/train.py", 42, "step") MAIN END
#define STEP_43             CURRENT F("/srv/train.py", 43, "step") MAIN END
#define LOAD                CURRENT F("/srv/train.py", 50, "load") MAIN END
#define DEEPER                                                                         \
    CURRENT F("/srv/train.py", 50, "load") F("/srv/train.py", 42, "step") MAIN END
#define ACQUIRE                                                                        \
    F("/usr/lib/python3.11/threading.py", 1133, "acquire")                             \
    F("/srv/train.py", 42, "step")
#define JOIN                                                                           \
    CURRENT F("/usr/lib/python3.11/threading.py", 1132, "_wait_for_tstate_lock")       \
        F("/usr/lib/python3.11/threading.py", 1112, "join") MAIN END
#define HOROVOD                                                                        \
    CURRENT F("/x/_hvd/handles.py", 150, "wait_for") F("/srv/train.py", 42, "step")    \
        MAIN END
#define WORKER OTHER F("/srv/train.py", 20, "worker")
#define IDLE                                                                           \
    OTHER F("/usr/lib/python3.11/threading.py", 324, "wait")                           \
        F("/usr/lib/python3.11/queue.py", 171, "get")
#define C_LOOP   "native\n    spin (prog)\n    main (prog)\n    start (libc.so.6)\nend\n"
#define C_LOOP2  "native\n    f (prog)\n    spin (prog)\n    main (prog)\nend\n"

#define LOCKED   "S futex 1 0 0 0 8f00 futex_wait_queue;"
#define LOCKED_5 "S futex 1 0 0 0 4f00 futex_wait_queue;"
#define POOL     "S futex 1 0 0 0 3000 futex_wait_queue;"
#define RUNS     "R run 0 0 0 100 0;"

static const struct {
    const char *threads;
    uint64_t n_faults;
    const char *first, *last;
    enum live_cause cause;
    const char *does; /* its beginning */
} causes[] = {
    {"T futex 0 0 0 0 8f00 do_signal_stop", 0, NULL, NULL, LIVE_CAUSE_STOPPED,
     "its process is stopped by a signal"},
    {"t futex 0 0 0 0 8f00 ptrace_stop", 0, NULL, NULL, LIVE_CAUSE_STOPPED,
     "its process is stopped by a debugger (process 9)"},
    {"D futex 0 0 0 0 8f00 __refrigerator", 0, NULL, NULL, LIVE_CAUSE_STOPPED,
     "its process is frozen"},
    {"Z run 0 0 0 0 0", 0, NULL, NULL, LIVE_CAUSE_ABSENT, "its process has ended"},
    /* locks */
    {LOCKED, 0, STEP, STEP, LIVE_CAUSE_LOCK,
     "its main thread waits for a lock held elsewhere, in step (train.py:42)"},
    {LOCKED, 0, CURRENT ACQUIRE MAIN END, CURRENT ACQUIRE MAIN END, LIVE_CAUSE_LOCK,
     "its main thread waits for a lock held elsewhere, in acquire "
     "(threading.py:1133) called by step (train.py:42)"},
    {"S ? 0 0 0 0 0 futex_wait_queue", 0, NULL, NULL, LIVE_CAUSE_LOCK,
     "its main thread waits for a lock held elsewhere; its stacks are unknown: it "
     "does not answer"},
    {"S flock 7 0 0 0 8f00 locks_lock_inode_wait /srv/lock", 0, STEP, STEP,
     LIVE_CAUSE_LOCK,
     "its main thread waits for the lock of a file, /srv/lock "
     "(locks_lock_inode_wait in the kernel), in step"},
    {"S fcntl 7 7 0 0 8f00 fcntl_setlk /srv/lock", 0, STEP, STEP, LIVE_CAUSE_LOCK,
     "its main thread waits for the lock of a file"},
    /* a pool of native threads, and a thread that waits for work, hold no lock */
    {LOCKED POOL, 0, STEP, STEP, LIVE_CAUSE_LOCK, ""},
    {LOCKED LOCKED_5, 0, IDLE STEP, IDLE STEP, LIVE_CAUSE_LOCK, ""},
    /* the other thread waits for a connection, and may release the lock */
    {LOCKED "S recv 3 0 0 0 4f00 wait_woken", 0, WORKER STEP, WORKER STEP,
     LIVE_CAUSE_LOCK, ""},
    {LOCKED LOCKED_5, 0, WORKER STEP, WORKER STEP, LIVE_CAUSE_DEADLOCK,
     "its Python threads wait for locks of each other: the main thread, in step "
     "(train.py:42); another in worker (train.py:20)"},
    /* with a time limit it is no deadlock */
    {LOCKED "S futex 1 0 9 0 4f00 x", 0, WORKER STEP, WORKER STEP, LIVE_CAUSE_LOCK, ""},
    /* another place in the second dump: it moves */
    {LOCKED LOCKED_5, 0, WORKER LOAD, WORKER STEP, LIVE_CAUSE_LOCK, ""},
    /* the main thread waits for a worker that waits for a lock */
    {LOCKED LOCKED_5, 0, WORKER JOIN, WORKER JOIN, LIVE_CAUSE_LOCK,
     "a thread waits for a lock held elsewhere, in worker (train.py:20)"},
    /* loops */
    {RUNS, 0, STEP, STEP, LIVE_CAUSE_LOOP,
     "its main thread computes, always at the same place, in step (train.py:42)"},
    {RUNS, 0, STEP, STEP_43, LIVE_CAUSE_LOOP, ""},
    {RUNS, 0, STEP, LOAD, LIVE_CAUSE_BUSY,
     "its main thread computes, at changing places, in load (train.py:50)"},
    {RUNS, 0, STEP, DEEPER, LIVE_CAUSE_BUSY, ""},
    /* processors are short: it gets little time, but does not sleep */
    {"R run 0 0 0 2 0", 0, STEP, STEP, LIVE_CAUSE_LOOP, ""},
    {"R run 0 0 0 2 0 - - 40", 0, STEP, STEP, LIVE_CAUSE_BUSY,
     "its main thread runs now and then"},
    {RUNS, 0, C_LOOP, C_LOOP, LIVE_CAUSE_LOOP,
     "its main thread computes, always at the same place, in spin (prog)"},
    {RUNS, 0, STEP, NULL, LIVE_CAUSE_BUSY, ""},
    {RUNS, 0, NULL, NULL, LIVE_CAUSE_BUSY,
     "its main thread computes, at changing places; its stacks are unknown"},
    {LOCKED RUNS, 0, JOIN, JOIN, LIVE_CAUSE_LOOP, ""},
    /* the holder of Python's lock computes */
    {"S futex 1 0 9 0 8f00 x;" RUNS, 0, WORKER STEP, WORKER STEP, LIVE_CAUSE_LOOP,
     "its main thread waits for another one, which computes, always at the same "
     "place, in worker (train.py:20)"},
    {"S futex 1 0 9 0 8f00 x;" RUNS, 0, STEP, STEP, LIVE_CAUSE_LOOP,
     "its main thread waits for another one, which computes, always at the same "
     "place (thread 401), in step (train.py:42)"},
    /* it is seen while it looks for the lock */
    {"R run 0 0 0 2 0 - - 40;" RUNS, 0, WORKER STEP, WORKER STEP, LIVE_CAUSE_LOOP,
     "its main thread waits for another one, which computes"},
    {"S futex 1 0 9 0 8f00 x;" RUNS, 0, STEP, LOAD, LIVE_CAUSE_BUSY, ""},
    /* a thread that computes does not explain a wait for a file */
    {"S read 3 0 0 0 8f00 request_wait_answer /mnt/x;" RUNS, 0, STEP, STEP,
     LIVE_CAUSE_STORAGE,
     "its main thread waits for a file system or a block device, /mnt/x "
     "(request_wait_answer in the kernel), in step (train.py:42)"},
    /* storage */
    {"D openat 0 0 0 0 8f00 fuse_get_req", 0, STEP, STEP, LIVE_CAUSE_STORAGE, ""},
    {"D write 3 0 0 0 8f00 percpu_rwsem_wait /mnt/x", 0, STEP, STEP, LIVE_CAUSE_STORAGE,
     ""},
    {"D ? 0 0 0 0 0", 0, NULL, NULL, LIVE_CAUSE_STORAGE, ""},
    {"S read 3 0 0 0 8f00 - /mnt/x", 0, STEP, STEP, LIVE_CAUSE_STORAGE, ""},
    {"D ioctl 3 0 0 0 8f00 os_acquire /dev/nvidia0", 0, STEP, STEP, LIVE_CAUSE_SLEEPING,
     ""},
    /* swapping comes before storage and loops */
    {"D fault 0 0 0 0 8f00 folio_wait_bit_common", 20, STEP, STEP, LIVE_CAUSE_SWAPPING,
     "its process waits for memory that is read from disk, 20 times a second "
     "(major "
     "page faults; 20 MiB of its memory are swapped out), in step (train.py:42)"},
    {"D fault 0 0 0 0 8f00 folio_wait_bit_common", 5, STEP, STEP, LIVE_CAUSE_STORAGE,
     ""},
    {RUNS, 300, STEP, STEP, LIVE_CAUSE_SWAPPING, ""},
    {RUNS, 50, STEP, STEP, LIVE_CAUSE_LOOP, ""},
    /* other waits */
    {"S read 3 0 0 0 8f00 pipe_read /tmp/fifo", 0, STEP, STEP, LIVE_CAUSE_SLEEPING,
     "its main thread waits for the other end of a pipe, /tmp/fifo"},
    {"S recv 3 0 0 0 8f00 wait_woken socket:[5]", 0, STEP, STEP, LIVE_CAUSE_SLEEPING,
     "its main thread waits for data from a connection, socket:[5], in step"},
    {"S nanosleep 0 0 0 0 8f00 hrtimer_nanosleep", 0, STEP, STEP, LIVE_CAUSE_SLEEPING,
     "its main thread waits for a timer, in step"},
    {"S wait4 0 0 0 0 8f00 do_wait", 0, STEP, STEP, LIVE_CAUSE_SLEEPING,
     "its main thread waits for a child process"},
    {"S poll 0 0 0 0 8f00 poll_schedule_timeout", 0, STEP, STEP, LIVE_CAUSE_SLEEPING,
     "its main thread waits for a descriptor (poll)"},
    {"S ? 0 0 0 0 0", 0, NULL, NULL, LIVE_CAUSE_UNKNOWN, ""},
    /* in the runtime: the hub knows more */
    {LOCKED, 0, HOROVOD, HOROVOD, LIVE_CAUSE_SLEEPING,
     "its main thread waits in a collective, in wait_for (handles.py:150) called "
     "by "
     "step (train.py:42)"},
    {RUNS, 500, HOROVOD, HOROVOD, LIVE_CAUSE_SLEEPING, ""},
};

UNIT_TEST(each_cause_is_recognised)
{
    for (size_t i = 0; i < ARRAY_LEN(causes); i++) {
        samples_read(causes[i].threads, causes[i].n_faults);
        samples[1].tracer_pid = 9;
        find(causes[i].first, causes[i].last);
        if (found.cause != causes[i].cause
            || strncmp(found.does, causes[i].does, strlen(causes[i].does)) != 0)
            fail_msg("row %zu, %s: %s: %s", i, causes[i].threads,
                     live_cause_name(found.cause), found.does);
        assert_int_equal(found.is_in_collective,
                         causes[i].first && strstr(causes[i].first, "_hvd"));
    }
}

UNIT_TEST(a_sleep_in_turns_is_a_sleep)
{
    samples_read("S nanosleep 0 0 0 1 8f00 hrtimer_nanosleep", 0);
    samples[1].v[0].state = 'R';
    samples[1].v[0].syscall = HANG_RUNNING;
    find(STEP, STEP);
    assert_int_equal(found.cause, LIVE_CAUSE_SLEEPING);
}

UNIT_TEST(all_dumps_count)
{
    struct hang_input in = {.a = &samples[0],
                            .b = &samples[1],
                            .ticks_per_s = 100,
                            .dumps = {STEP, STEP, STEP},
                            .why_no_dump = "",
                            .gpu = ""};

    samples_read(RUNS, 0);
    assert_int_equal(hang_find(&in, &found), 0);
    assert_int_equal(found.cause, LIVE_CAUSE_LOOP);
    in.dumps[1] = LOAD;
    assert_int_equal(hang_find(&in, &found), 0);
    assert_int_equal(found.cause, LIVE_CAUSE_BUSY);
}

UNIT_TEST(the_caller_of_a_loop_in_c_does_not_change)
{
    samples_read(RUNS, 0);
    find(C_LOOP, C_LOOP);
    assert_int_equal(found.cause, LIVE_CAUSE_LOOP);
    find(C_LOOP, C_LOOP2);
    assert_int_equal(found.cause, LIVE_CAUSE_BUSY);
}

UNIT_TEST(a_process_that_is_gone_or_another_one_is_absent)
{
    samples_read(LOCKED, 0);
    samples[1].is_gone = true;
    find(NULL, NULL);
    assert_int_equal(found.cause, LIVE_CAUSE_ABSENT);
    samples_read(LOCKED, 0);
    samples[1].start_ticks++;
    find(NULL, NULL);
    assert_int_equal(found.cause, LIVE_CAUSE_ABSENT);
    samples_read("", 0);
    find(NULL, NULL);
    assert_int_equal(found.cause, LIVE_CAUSE_UNKNOWN);
}

UNIT_TEST(the_finding_has_place_and_stacks)
{
    samples_read(LOCKED, 0);
    find(HOROVOD, NULL);
    assert_string_equal(found.place,
                        "step (train.py:42) called by <module> (train.py:60)");
    assert_string_equal(found.stacks, "  main thread\n    wait_for (handles.py:150)\n"
                                      "    step (train.py:42)\n"
                                      "    <module> (train.py:60)\n");
    find(STEP, NULL);
    assert_string_equal(found.stacks, "  main thread\n    step (train.py:42)\n"
                                      "    <module> (train.py:60)\n"
                                      "  main thread, native code\n"
                                      "    x (libc.so.6)\n");
    find(NULL, NULL);
    assert_string_equal(found.stacks, "  no stacks: it does not answer\n");
}

UNIT_TEST(a_finding_is_read_as_it_was_written)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};

    samples_read(LOCKED, 0);
    find(HOROVOD, NULL);
    found.rank = 3;
    found.pid = 99;
    strbuf_init(&b, HANG_FINDING_MAX);
    hang_finding_pack(&found, &b);
    assert_int_equal(strbuf_status(&b), 0);
    assert_int_equal(hang_finding_unpack(b.p, b.n, &more, NULL), 0);
    assert_int_equal(more.rank, 3);
    assert_int_equal(more.pid, 99);
    assert_int_equal(more.cause, LIVE_CAUSE_SLEEPING);
    assert_true(more.is_in_collective);
    assert_string_equal(more.does, found.does);
    assert_string_equal(more.place, found.place);
    assert_string_equal(more.stacks, found.stacks);
    for (size_t n = 0; n < b.n; n++)
        assert_int_equal(hang_finding_unpack(b.p, n, &more, NULL), -EPROTO);
}

/* --- verdicts --- */

static const char *host_of(void *arg, uint32_t rank)
{
    (void)arg;
    return rank == 1 ? "b" : "a";
}

/* Findings of the ranks 0, 1, 2: S: in a collective, L: lock, T: stopped, R: loop,
 * -: none. */
static void conclude(const struct stall_record *r, const char *ranks, const char *want)
{
    static struct hang_finding v[3];
    const struct hang_finding *list[3];
    struct live_stall got;
    size_t n = 0;

    for (uint32_t rank = 0; rank < 3; rank++) {
        char c = ranks[rank];

        if (c == '-')
            continue;
        v[rank] = (struct hang_finding){.rank = rank,
                                        .pid = 400 + rank,
                                        .is_in_collective = c == 'S',
                                        .cause = c == 'S'   ? LIVE_CAUSE_SLEEPING
                                                 : c == 'L' ? LIVE_CAUSE_LOCK
                                                 : c == 'T' ? LIVE_CAUSE_STOPPED
                                                            : LIVE_CAUSE_LOOP};
        (void)snprintf(v[rank].does, sizeof(v[rank].does), "it does %c", c);
        (void)snprintf(v[rank].place, sizeof(v[rank].place), "step (t.py:%u)", rank);
        list[n++] = &v[rank];
    }
    hang_conclude(r, list, n, host_of, NULL, 70000000, &got);
    if (strcmp(got.text, want) != 0)
        fail_msg("%s: %s", ranks, got.text);
    assert_int_equal(got.rank, *want ? strtol(want + 5, NULL, 10) : -1);
    if (got.rank >= 0)
        assert_string_equal(got.host, host_of(NULL, (uint32_t)got.rank));
}

UNIT_TEST(the_verdict_names_the_rank_that_is_the_cause)
{
    struct stall_record r = {.since_wall_us = 7000000,
                             .tensor = "grad/0",
                             .op = "ALLREDUCE",
                             .size = 3,
                             .n_missing = 1,
                             .n_listed = 1,
                             .missing = {{.rank = 1}}};

    conclude(&r, "SLS",
             "rank 1 (host b, pid 401) has not submitted tensor \"grad/0\" (ALLREDUCE) "
             "for 63 s: it does L");
    conclude(
        &r, "S-S",
        "rank 1 (host b) has not submitted tensor \"grad/0\" (ALLREDUCE) for 63 s: "
        "it could not be examined");
    r.missing[0] = (struct stall_missing){1, "BARRIER", "epoch"};
    conclude(&r, "SSS",
             "rank 1 (host b, pid 401) has not submitted tensor \"grad/0\" (ALLREDUCE) "
             "for 63 s: it waits in another collective, tensor \"epoch\" (BARRIER), at "
             "step (t.py:1); rank 0 is at step (t.py:0); the ranks are out of step");
    /* TensorFlow's main thread waits for a lock */
    conclude(&r, "SLS",
             "rank 1 (host b, pid 401) has not submitted tensor \"grad/0\" (ALLREDUCE) "
             "for 63 s: it waits in another collective, tensor \"epoch\" (BARRIER), at "
             "step (t.py:1); rank 0 is at step (t.py:0); the ranks are out of step");
    /* it had submitted another tensor, and then it stopped */
    conclude(&r, "STS",
             "rank 1 (host b, pid 401) has not submitted tensor \"grad/0\" (ALLREDUCE) "
             "for 63 s: it does T");
    /* rank 2 loops, rank 1 waits for it */
    r.n_missing = r.n_listed = 2;
    r.missing[1] = (struct stall_missing){.rank = 2};
    conclude(&r, "SSR",
             "rank 2 (host a, pid 402) and 1 more rank have not submitted tensor "
             "\"grad/0\" (ALLREDUCE) for 63 s: the former: it does R");
    r.n_listed = 0;
    conclude(&r, "SSR", "");
}

UNIT_TEST(without_a_record_a_stopped_rank_is_named)
{
    conclude(NULL, "TSS", "rank 0 (host a, pid 400): it does T");
    conclude(NULL, "SLR", "");
    conclude(NULL, "---", "");
}

UNIT_TEST(the_line_of_a_gpu_has_its_versions)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};

    strbuf_init(&out, 256);
    hang_gpu_put(0, 22705, 12040, 7, &out);
    assert_string_equal(strbuf_str(&out), "");
    hang_gpu_put(90, 22705, 12040, 7, &out);
    assert_string_equal(
        strbuf_str(&out),
        "GPU: compute capability 9.0, NCCL 2.27.5, CUDA 12.4, 7 batches");
}

UNIT_MAIN(NULL, NULL)
