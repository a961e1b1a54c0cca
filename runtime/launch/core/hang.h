/* SPDX-License-Identifier: Apache-2.0 */
/* Why a rank does not take part in a collective, from two samples of /proc and the
 * stacks of the rank. Pure. The agent of each worker finds out about its own ranks
 * (hang_find); the hub, which has rank 0's record of the stall, concludes. */
#ifndef RUNTIME_LAUNCH_CORE_HANG_H
#define RUNTIME_LAUNCH_CORE_HANG_H

#include "runtime/contract/stall_record.h"
#include "runtime/launch/core/stacks.h"
#include "runtime/live/live_report.h"

#define HANG_DUMPS_MAX      3
#define HANG_THREADS_MAX    256
#define HANG_STACKS_MAX     16384 /* with NUL: the stacks of one rank as text */
#define HANG_FINDING_MAX    (HANG_STACKS_MAX + 4096) /* packed */
#define HANG_NOT_IN_SYSCALL (-1) /* it is blocked by a page fault, or by the kernel */
#define HANG_RUNNING        (-2)
#define HANG_UNKNOWN        (-3) /* /proc/PID/syscall cannot be read */

/* One thread at one time, from /proc/PID/task/TID. */
struct hang_thread {
    uint32_t tid;
    char state; /* R S D T t Z X */
    uint64_t cpu_ticks, n_major_faults;
    uint64_t n_sleeps; /* how often it gave up the processor itself */
    int64_t syscall;   /* its number, or HANG_* */
    uint64_t arg[6], sp;
    char wchan[48]; /* kernel function that it waits in; "": unknown */
    char file[128]; /* of a system call whose first argument is a descriptor */
};

struct hang_sample {
    uint64_t at_ns;
    bool is_gone;         /* there is no such process any more */
    uint64_t start_ticks; /* when it began; a pid may be used again */
    uint64_t n_major_faults, swap_kib, cpu_ticks;
    uint32_t tracer_pid;
    uint32_t n_threads, n;                  /* of the process; in v */
    struct hang_thread v[HANG_THREADS_MAX]; /* the main thread first */
};

struct hang_input {
    const struct hang_sample *a, *b; /* about a second apart; before any signal */
    uint32_t ticks_per_s;
    const char *dumps[HANG_DUMPS_MAX]; /* as in stacks.h, in turn; NULL: none */
    const char *why_no_dump;           /* "": there is one */
    const char *gpu;                   /* hang_gpu_put; "": no GPU */
};

/* What a rank does. */
struct hang_finding {
    uint32_t rank, pid;
    enum live_cause cause; /* never LIVE_CAUSE_BRANCH: only the hub knows */
    bool is_in_collective; /* it waits in a function of the runtime */
    char does[512];        /* "its main thread waits for a lock, in ..." */
    char place[256];       /* "step (train.py:42)": of the user's program; or "" */
    char stacks[HANG_STACKS_MAX]; /* stacks_put, and what else is known */
};
/* Sets all but rank and pid. 0, -ENOMEM. */
int hang_find(const struct hang_input *in, struct hang_finding *ret);

void hang_finding_pack(const struct hang_finding *f, struct strbuf *out);
int hang_finding_unpack(const void *p,
                        size_t n,
                        struct hang_finding *ret,
                        struct err *err);

/* The verdict: sets rank, host, cause, text and has_stacks of *ret. r: NULL if rank 0
 * has reported nothing, since it hangs itself. v: findings of any ranks, in any order.
 * host_of: NULL or "" for an unknown host. */
void hang_conclude(const struct stall_record *r,
                   const struct hang_finding *const *v,
                   size_t n,
                   const char *(*host_of)(void *arg, uint32_t rank),
                   void *arg,
                   uint64_t now_wall_us,
                   struct live_stall *ret);

/* "rank 1 (host b, pid 412)". host "", pid 0: unknown. */
void hang_put_rank(uint32_t rank, const char *host, uint32_t pid, struct strbuf *out);

/* "GPU: compute capability 9.0, NCCL 2.27.5, CUDA 12.4, 310 batches"; nothing where the
 * page of the rank has no GPU. sm, nccl, cuda, n_batches: its words DEVICE_*. */
void hang_gpu_put(
    uint64_t sm, uint64_t nccl, uint64_t cuda, uint64_t n_batches, struct strbuf *out);

#endif
