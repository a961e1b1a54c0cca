/* SPDX-License-Identifier: Apache-2.0 */
/* A CUDA driver that runs on the CPU: libcuda.so.1 for tests. Device memory is memory
 * with guard pages, a stream is a queue and a thread, a kernel is its C form. A test
 * that violates CUDA's rules (a freed event, a copy out of a block, a call in a forked
 * child) ends the process with a message.
 *
 * Environment:
 *   HVD_FAKE_CUDA=12040   version; symbols that came later still exist, as in a wrapper
 *   HVD_FAKE_GPUS=1       devices, before CUDA_VISIBLE_DEVICES (a list of numbers)
 *   HVD_FAKE_HOST=text    part of the GPUs' uuid
 *   HVD_FAKE_MIG=1        the devices are MIG instances
 *   HVD_FAKE_SM=90        compute capability
 *   HVD_FAKE_OLD=1        that of the second visible GPU is 6.1
 *   HVD_FAKE_DELAY_US=n   before each entry of a stream
 *   HVD_FAKE_JITTER_US=n  up to n more before an entry, the same for each n
 *   HVD_FAKE_FAULTS=a=b,c=d   and the file HVD_FAKE_FILE, read again at each query
 * Faults: init=803, deinit=1, oom=N (the N-th allocation from now),
 * kernel_error=700@N, kernel_hang=N (the N-th kernel from now spins until the fault is
 * removed).
 * Sabotage, with which tests must fail: spin_ends_early=1 (hvd_spin does not spin). */
#ifndef TESTS_FAKES_CUDA_FAKE_CUDA_H
#define TESTS_FAKES_CUDA_FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/backend/nccl/cuda_dl.h"
#include "tests/fakes/cuda/lock.h"

#define EXPORT                                  __attribute__((visibility("default")))

/* A symbol that the backend looks up, with the type that it calls it by. */
#define CUDA_DECLARE(name, symbol, least, args) EXPORT int symbol args;
CUDA_SYMBOLS(CUDA_DECLARE)

/* --- for tests and the other fakes --- */
/* Work of a library on a stream: fn gets a copy of arg[bytes] on the stream's thread.
 * Its result, if not 0, is sticky, as a kernel's. In a capture it becomes a node, and
 * fn is called at each launch. A CUDA result. */
EXPORT int
hvd_fake_enqueue(cu_stream s, int (*fn)(void *arg), const void *arg, size_t bytes);
EXPORT bool hvd_fake_is_capturing(cu_stream s);
/* The value of a fault, copied; false: it is not set. */
EXPORT bool hvd_fake_fault(const char *key, char ret[64]);
/* Replaces all faults of the environment ("": none); counts restart. */
EXPORT void hvd_fake_set_faults(const char *text);
/* Is it time? Of a fault "N" or "code@N", at the N-th question since it was set (0, 1:
 * the first); the code, or 1; else 0. */
EXPORT int hvd_fake_strikes(const char *key);
/* Ends the process unless [p, p + n) lies in one living block of device memory. */
EXPORT void hvd_fake_need_device(const char *who, const void *p, size_t n);
/* As if these were set in the environment, until the next reset; NULL: as they are. */
EXPORT void hvd_fake_setup(const char *cuda, const char *gpus, const char *nopool);
EXPORT unsigned long hvd_fake_calls(void);   /* into the driver, by this process */
EXPORT unsigned hvd_fake_n_blocks(void);     /* of device memory that live */
EXPORT unsigned hvd_fake_n_events(void);     /* that live */
EXPORT unsigned hvd_fake_n_streams(void);    /* that live, but the legacy ones */
EXPORT unsigned long hvd_fake_n_syncs(void); /* cuCtxSynchronize */
EXPORT unsigned long hvd_fake_n_waits(cu_stream s); /* cuStreamWaitEvent */
EXPORT __attribute__((noreturn)) void hvd_fake_die(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));

/* --- inside libcuda.so.1 --- */
struct cu_ctx_s {
    int device, n_retained;
    cu_stream legacy;
    struct cu_stream_s *streams;
};
struct entry {
    struct entry *next;
    int (*fn)(void *arg);  /* NULL: none */
    cu_stream wait_stream; /* NULL: none; until it has done `number` entries */
    uint64_t number;
    size_t bytes;
    _Alignas(16) uint8_t arg[];
};
struct cu_graph_s {
    struct entry *head, **tail;
};
struct cu_graph_exec_s {
    struct cu_graph_s graph;
};
struct cu_stream_s {
    struct cu_stream_s *next; /* of the context */
    cu_ctx ctx;
    bool is_blocking, is_ending, is_legacy, is_busy;
    struct entry *head, **tail;
    uint64_t n_queued, n_done;
    unsigned long n_waits; /* for events */
    uint64_t legacy_seen;  /* entries of the legacy stream that were waited for */
    cu_graph capture;
    int capture_mode, capture_status;
    pthread_cond_t moved; /* zero; it has work, or ends */
};
struct cu_event_s {
    uint32_t magic; /* EVENT_LIVES, EVENT_FREED */
    cu_ctx ctx;
    bool is_captured;
    cu_stream of; /* that it was recorded on; NULL: never. Streams are never freed. */
    uint64_t number; /* entries of it that are to be done */
};
#define EVENT_LIVES 0x45564e54u
#define EVENT_FREED 0x46524545u

struct fake {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    struct cu_ctx_s ctx[16];
    int n_gpus, version;
    _Atomic int sticky, pid;
    _Atomic bool is_init;
    int visible[16];
    bool is_mig, has_pools;
    int sm, old; /* compute capability; the device of 6.1, -1: none */
    unsigned delay_us, jitter_us;
    _Atomic unsigned n_events, n_streams;
    _Atomic unsigned long n_syncs;
    int n_global_captures;
};
extern struct fake fake;
extern _Atomic unsigned long fake_n_calls;

/* Every entry of the driver begins with it: 0, or the result to give back. */
int fake_call(bool needs_ctx);
/* An unsafe call while a thread captures in global mode, from a thread not relaxed. */
int fake_unsafe(void);
#define FAKE_ENTER(needs_ctx)                                                          \
    do {                                                                               \
        int enter_ = fake_call(needs_ctx);                                             \
        if (enter_)                                                                    \
            return enter_;                                                             \
    } while (0)
/* Of a call that is unsafe, with a context. */
#define FAKE_ENTER_SAFE()                                                              \
    do {                                                                               \
        FAKE_ENTER(true);                                                              \
        int unsafe_ = fake_unsafe();                                                   \
        if (unsafe_)                                                                   \
            return unsafe_;                                                            \
    } while (0)
/* Zeros; never NULL. */
void *fake_zalloc(size_t bytes);
cu_ctx fake_current(void);
/* CU_INVALID_VALUE where s is being captured, which is broken then; else 0. */
int fake_break_capture(cu_stream s);
/* The stream meant by s; NULL: no such stream, which is a death. With fake.lock. */
cu_stream fake_stream(cu_stream s);
/* Is a blocking stream being captured, so that the legacy one may not be used? With
 * fake.lock. */
bool fake_captures_blocking(cu_ctx c);
/* Takes e over. With fake.lock held. */
int fake_push(cu_stream s, struct entry *e);
struct entry *fake_entry(int (*fn)(void *), const void *arg, size_t bytes);
cu_stream fake_stream_make(cu_ctx c, bool is_blocking, bool is_legacy);
void fake_wait_idle(cu_ctx c); /* with fake.lock; all streams of the context */
void fake_wait_stream(cu_stream s);
void fake_graph_clear(cu_graph g);

struct cpu_kernel;
/* A kernel that only the tests have (spin.c); NULL: none of that name. */
const struct cpu_kernel *fake_test_kernel(const char *symbol);

bool fake_is_device(const void *p, size_t n, int *ret_ordinal);
bool fake_is_pinned(const void *p, size_t n);

#endif
