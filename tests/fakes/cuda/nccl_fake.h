/* SPDX-License-Identifier: Apache-2.0 */
/* A libnccl.so.2 that runs on the CPU, for tests: members are threads or processes of
 * one machine, a kernel is an entry of a stream of the fake driver. It behaves as the
 * version in HVD_FAKE_NCCL (22705), and ends the test with a message where real NCCL
 * would hang, or where its guide forbids a call.
 *
 *   nccl.c        the symbols: life of communicators
 *   nccl_call.c   the symbols: collectives, groups, registration
 *   nccl_comm.c   which calls are allowed when; helpers that finish operations
 *   nccl_job.c    operations in progress, and the thread that started them
 *   nccl_overlap.c  the memory of the calls of a group
 *   nccl_run.c    a kernel: compares signatures, moves, reduces
 *   nccl_net.c    a socket between each two members
 *   nccl_fault.c  versions, delays, faults
 *
 * Faults are those of the fake driver (fake_cuda.h); R is a rank of the communicator,
 * N counts its kernels from 0:
 *   init_hang=R  init_error=R:CODE  async_error=R:CODE@N  nccl_hang=R@N (a kernel)
 *   init_refused=R:CODE (at once, without a communicator: CUDA cannot be used)
 *   peer_death=error (else survivors hang, as over NVLink)
 *   register_error=R:CODE
 *   destroy_slow=R:MS  destroy_error=R:CODE  abort_slow=R:MS
 *   finalize_hang=R (stays in progress)  finalize_slow=R:MS (in any case)
 *   enqueue_hang=R@N: the call itself does not return, or stays in progress
 * Sabotage, with which tests of real NCCL must fail:
 *   nccl_forgets_error=1: the error of a call does not stay
 * HVD_FAKE_NCCL_DELAY_US: how long operations stay in progress. HVD_FAKE_HANG_S (60):
 * a kernel that waits longer for others ends the test. */
#ifndef TESTS_FAKES_CUDA_NCCL_FAKE_H
#define TESTS_FAKES_CUDA_NCCL_FAKE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/backend/nccl/nccl_dl.h"
#include "tests/fakes/cuda/lock.h"

#define FAKE_EXPORT                             __attribute__((visibility("default")))
#define FAKE_MAX_MEMBERS                        64
#define FAKE_NAME_BYTES                         96

#define NCCL_DECLARE(name, symbol, least, args) FAKE_EXPORT int symbol args;
#define NCCL_DECLARE_TEXT(name, symbol, least, args)                                   \
    FAKE_EXPORT const char *symbol args;
NCCL_SYMBOLS(NCCL_DECLARE)
NCCL_TEXTS(NCCL_DECLARE_TEXT)

/* Tests look these up by dlsym. What was called on this process's communicators so far, one line a kernel in the
 * order of launches: "rank/n coll count dtype op root". For tests that calls are equal
 * on all members. The caller frees. */
FAKE_EXPORT char *fake_nccl_log(int rank);

/* How they began, one line each in order: "init R/N", "split COLOR of R/N" (and
 * ", alone" where it shares nothing), "shrink R/N to N". The caller frees. */
FAKE_EXPORT char *fake_nccl_begun(void);

/* --- inside --- */

enum fake_coll {
    FAKE_ALL_REDUCE = 1,
    FAKE_REDUCE,
    FAKE_BROADCAST,
    FAKE_ALL_GATHER,
    FAKE_REDUCE_SCATTER,
    FAKE_SEND,
    FAKE_RECV,
    FAKE_SPLIT
};

struct fake_sign { /* what both ends of a pair must agree on */
    uint32_t coll, dtype, op, root, is_captured, is_registered;
    uint64_t count;
};

struct fake_op {
    struct fake_sign sign;
    const void *in;
    void *out;
    int peer; /* of FAKE_SEND, FAKE_RECV */
};

struct fake_region {
    const char *p; /* NULL: free */
    size_t bytes;
};

struct fake_thread {          /* Never freed. */
    struct fake_thread *next; /* of all there ever were */
    atomic_bool is_gone;
};

struct fake_family { /* what a split shares: the abort flag. Never freed. */
    atomic_bool is_aborted;
    struct fake_family *next;
};

struct nccl_comm_s {
    struct nccl_comm_s *next; /* of all there ever were: handles are not used again */
    struct fake_family *family;
    struct nccl_comm_s *parent; /* while it is being born: its abort ends that */
    char name[FAKE_NAME_BYTES];
    int rank, n;
    int pid;                  /* a forked child may not use it */
    bool is_blocking, shares; /* its splits share with it */
    cu_ctx ctx;
    int fds[FAKE_MAX_MEMBERS]; /* to each member, -1: own */
    atomic_bool is_stopped;    /* revoked: kernels leave */
    pthread_mutex_t lock;      /* all below */
    pthread_cond_t changed;
    int async; /* result so far: NCCL_IN_PROGRESS while a helper works */
    bool is_used, is_revoked, is_finalized, is_dead;
    int n_inside; /* calls */
    pthread_t inside;
    pthread_t helper;
    bool has_helper;
    struct fake_thread *job; /* whose group in progress is still to be taken up */
    uint64_t n_launched, n_begun, n_ended; /* kernels */
    int n_running;
    uint32_t n_children;
    struct fake_region regions[64];
};

struct fake_kernel {
    struct nccl_comm_s *c;
    struct fake_kernel *next; /* of those that a graph holds */
    uint64_t number;          /* of c's, in order of launches */
    bool is_captured;
    cu_stream s;
    size_t n;
    struct fake_op ops[];
};

/* Prints the message and ends the process by abort(). */
_Noreturn void fake_die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* nccl_fault.c */
int fake_version(void);
uint64_t fake_delay_us(void);
uint64_t fake_hang_s(void);
/* The CODE of "name=R:CODE@N" for this rank (R) and kernel (N), 1 without a code; 0: no
 * such fault. */
int fake_fault(const char *name, int rank, uint64_t number);
bool fake_fault_is(const char *word);
struct fake_driver {
    int (*launch)(cu_stream s, int (*fn)(void *arg), const void *arg, size_t bytes);
    bool (*is_capturing)(cu_stream s);
    bool (*fault)(const char *key, char ret[64]);
    void (*need_device)(const char *who, const void *p, size_t n);
    int (*ctx_get)(cu_ctx *ret);
    int (*ctx_push)(cu_ctx c);
    int (*ctx_pop)(cu_ctx *ret);
    int (*mem_alloc)(cu_ptr *ret, size_t bytes);
    int (*mem_free)(cu_ptr p);
};
const struct fake_driver *fake_driver(void);
void *fake_zalloc(size_t bytes); /* never NULL */
void fake_set_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
uint64_t fake_now_us(void);

/* nccl_comm.c */
struct nccl_comm_s *
fake_comm_new(const char *name, int rank, int n, struct fake_family *family);
struct fake_family *fake_family_new(void);
enum fake_rule { FAKE_ANY = 1, FAKE_WHILE_BUSY = 2, FAKE_WHEN_REVOKED = 4 };
/* Checks that `call` may be made now; to be followed by fake_leave. */
void fake_enter(struct nccl_comm_s *c, const char *call, int least, unsigned rules);
void fake_leave(struct nccl_comm_s *c);
/* The error that c has, or NCCL_OK (before 2.14 always): every call that requires a
 * ready communicator returns it, as ncclCommEnsureReady does. */
int fake_ready(struct nccl_comm_s *c);
/* The result of a call on c, which is returned. As ncclCommSetAsyncError: an error
 * stays where c does not block; only an abort ends that. */
int fake_keep_error(struct nccl_comm_s *c, int rc);
bool fake_is_stopped(struct nccl_comm_s *c); /* aborted or revoked */
/* Carries work out: at once where c blocks (its result), else on a helper behind the
 * delay (NCCL_IN_PROGRESS). work may be called without c's lock only. */
int fake_do(struct nccl_comm_s *c, int (*work)(void *arg), void *arg, bool is_at_once);
void fake_join(struct nccl_comm_s *c); /* its helper */
/* Sleeps in pieces; false: stopped before the end. */
bool fake_sleep_us(struct nccl_comm_s *c, uint64_t us);
void fake_hang(struct nccl_comm_s *c); /* until it is stopped */
void fake_end(struct nccl_comm_s *c);  /* no more kernels: closes, is dead */

/* nccl_job.c: as NCCL keeps what a non-blocking communicator has in progress
 * (NCCL_JOB_LINKED and below in nccl_dl.h). */
void fake_job_begin(struct nccl_comm_s *c); /* by this thread */
/* `call` requires a ready communicator, and starts an operation on this thread. */
void fake_job_check(struct nccl_comm_s *c, const char *call);
void fake_job_asked(struct nccl_comm_s *c); /* ncclCommGetAsyncError; with c's lock */
void fake_job_abort(struct nccl_comm_s *c);
void fake_job_revoke(struct nccl_comm_s *c);
int fake_job_group_start(void);
void fake_job_destroy_failed(void);

/* nccl_net.c */
struct fake_xfer {
    int peer;
    bool is_send;
    const struct fake_sign *expect; /* of what is received here; NULL: data */
    void *p;
    size_t n, at;
};
/* A socket to each member, once all have come. NCCL_OK, or NCCL_INTERNAL: stopped. */
int fake_net_join(struct nccl_comm_s *c);
/* All of them, those of one peer and direction in order. NCCL_OK, NCCL_INTERNAL:
 * stopped, NCCL_REMOTE: a peer is gone. */
int fake_net_run(struct nccl_comm_s *c, struct fake_xfer *v, size_t n);
void fake_net_close(struct nccl_comm_s *c);

/* nccl_overlap.c */
/* How much of its input and output this member reads and writes. */
void fake_op_bytes(const struct nccl_comm_s *c,
                   const struct fake_op *op,
                   size_t *ret_in,
                   size_t *ret_out);
/* Ends the test if one of the kernel's calls writes what another one uses. */
void fake_check_overlap(const struct fake_kernel *k);

/* nccl_run.c */
int fake_run(void *arg); /* a pointer to a kernel: on its stream */
void fake_sign_text(const struct fake_sign *s, char *ret, size_t bytes);
size_t fake_dtype_bytes(uint32_t dtype); /* 0: none */

#endif
