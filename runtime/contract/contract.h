/* SPDX-License-Identifier: Apache-2.0 */
/* The launch contract: what a launcher passes to one training process. Writers:
 * operator and agent, Slurm plugin, horovodrun. Reader: hvd_init. README.md in this
 * folder is the specification; env_table.h is the table of names. Pure. */
#ifndef RUNTIME_CONTRACT_CONTRACT_H
#define RUNTIME_CONTRACT_CONTRACT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/contract/places.h"

enum launcher { /* how the place was found; "nearest wins" is the order of discover.h */
                LAUNCHER_NONE,       /* single process */
                LAUNCHER_RINGMASTER, /* HOROVOD_*: our operator, plugin, horovodrun (or
                                        real horovodrun) */
                LAUNCHER_TORCHRUN,
                LAUNCHER_OPENMPI,
                LAUNCHER_SLURM,   /* bare srun, inside a real step */
                LAUNCHER_MPIEXEC, /* of MPICH and Intel MPI, and others with PMI-1 */
};
/* "horovod", "torchrun", "openmpi", "slurm", "mpiexec", "none" */
const char *launcher_name(enum launcher l);

/* The channel by which a foreign launcher transports a few bytes between ranks:
 * ../bootstrap. Rank 0 publishes the rendezvous address and a random token there. */
enum launcher_channel { CHANNEL_NONE, CHANNEL_PMI, CHANNEL_PMIX };
const char *launcher_channel_name(enum launcher_channel c); /* "none", "PMI", "PMIx" */

/* The part of its place that a rank reads from its environment. The channel provides
 * the rest. */
enum place_known { KNOWN_ALL, KNOWN_LOCAL, KNOWN_RANK, KNOWN_NOTHING };

enum token_source {
    TOKEN_NONE,
    TOKEN_FILE,
    TOKEN_FD,
    TOKEN_WEAK,   /* derived, no secret */
    TOKEN_CHANNEL /* created by rank 0, received by the launcher's channel */
};

#define CONTRACT_PATH_MAX 1024
#define JOB_ID_MAX        192

struct contract {
    enum launcher launcher;
    /* Ranks meet by the channel where there is one and it can be used; otherwise at
     * rdv_host, if it is set. */
    enum launcher_channel channel;
    enum place_known known;             /* of place; a size of 0 is unknown */
    int pmi_fd;                         /* PMI_FD, or -1: */
    char pmi_port[HOST_NAME_MAX_BYTES]; /* PMI_PORT, host:port, and PMI_ID */
    uint32_t pmi_id;
    struct place place;
    char hostname[HOST_NAME_MAX_BYTES]; /* HOROVOD_HOSTNAME */
    /* Where ranks meet: a name or address, or several of rank 0's separated by commas.
     * rdv_host "": size 1, nothing to meet. When rank0_serves, this process' rank 0
     * must itself serve the rendezvous at that port (foreign launchers); otherwise the
     * launcher, agent or srun serves it. */
    char rdv_host[HOST_NAME_MAX_BYTES];
    uint16_t rdv_port;
    bool rank0_serves;
    char job_id[JOB_ID_MAX]; /* HVD_JOB_ID: no control characters */
    uint32_t generation;     /* HVD_GENERATION */
    enum token_source token_source;
    char token_file[CONTRACT_PATH_MAX]; /* HVD_TOKEN_FILE */
    int token_fd;                       /* HVD_TOKEN_FD, -1 if none */
    char weak_seed[256];                /* TOKEN_WEAK: what the token is derived from */
    char hostfile[CONTRACT_PATH_MAX];   /* HVD_HOSTFILE, "" if none */
    /* HVD_ELASTIC, "" if none: the process asks its launcher for its place, and for the
     * next one when its world has ended (wire/member_message.h). place and rdv_host are
     * provisional. */
    char elastic[64];
    char iface[64]; /* HOROVOD_GLOO_IFACE / NCCL_SOCKET_IFNAME, "" if none */
    char master_addr[HOST_NAME_MAX_BYTES]; /* torchrun's MASTER_ADDR for c10d users */
    uint16_t master_port;
};

void contract_init(struct contract *c); /* single process, fds -1 */
/* Slurm has started this process as a task of a step: by srun --hvd, or bare srun. */
bool contract_is_task(const struct contract *c);

struct env_pair {
    char name[48];
    char value[CONTRACT_PATH_MAX];
};
#define CONTRACT_MAX_ENV 48

/* All variables of a training process as name/value pairs: HOROVOD_*, HVD_*, torchrun's
 * and JAX's sets, NCCL's interface. ret has room for CONTRACT_MAX_ENV; *ret_n is set.
 * Never OMPI_*, PMI_*, SLURM_*, TF_CONFIG, never the token. -EINVAL with an error
 * message when c contradicts itself. */
int contract_render(const struct contract *c,
                    struct env_pair *ret,
                    size_t *ret_n,
                    struct err *err);

/* Environment as a function, so that tests need no environ: value or NULL. */
typedef const char *(*getenv_fn)(void *arg, const char *name);

/* Reads the HOROVOD_* and HVD_* set back: parse(render(c)) == c. -ENOENT when
 * HOROVOD_RANK and HOROVOD_SIZE are both absent; -EINVAL with names and values when one
 * set contradicts itself. */
int contract_parse(getenv_fn get, void *arg, struct contract *ret, struct err *err);

/* Names of all variables that a launcher of ours removes from the environment of its
 * processes before it adds its own: every set of an outer launcher. NULL-terminated;
 * "X_*" means prefix. */
extern const char *const contract_inherited[];
bool contract_is_inherited(const char *name);

#endif
