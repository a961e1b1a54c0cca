/* SPDX-License-Identifier: Apache-2.0 */
/* The one table of the variables of the launch contract. Rendering, parsing, removal of
 * inherited ones, the README and its test are generated from it.
 *
 *   X(name, writer, meaning)
 *
 * Writers: "every" launcher of ours (agent, horovodrun, Slurm plugin); "opt": every
 * launcher, where it has a value; "operator": into a worker pod's container, for its
 * agent. */
#ifndef RUNTIME_CONTRACT_ENV_TABLE_H
#define RUNTIME_CONTRACT_ENV_TABLE_H

/* clang-format off */

/* What contract_parse reads. */
#define CONTRACT_ENV(X)                                                                       \
    X(HOROVOD_RANK,         "every", "rank of this process, 0 to HOROVOD_SIZE - 1")           \
    X(HOROVOD_SIZE,         "every", "number of ranks")                                       \
    X(HOROVOD_LOCAL_RANK,   "every", "rank among the processes of this host")                 \
    X(HOROVOD_LOCAL_SIZE,   "every", "number of ranks on this host")                          \
    X(HOROVOD_CROSS_RANK,   "every", "rank of this host among those with this local rank")    \
    X(HOROVOD_CROSS_SIZE,   "every", "number of hosts with this local rank")                  \
    X(HOROVOD_HOSTNAME,     "every", "name of this host in the host list")                    \
    X(HVD_HOST_INDEX,       "every", "position of this host in the host list, from 0")        \
    X(HVD_JOB_ID,           "every", "name of the job; part of every handshake")              \
    X(HVD_GENERATION,       "every", "generation of the world; another one is refused")       \
    X(HVD_RENDEZVOUS_ADDR,  "every", "address of the rendezvous; absent for a single rank")   \
    X(HVD_RENDEZVOUS_PORT,  "every", "its TCP port")                                          \
    X(HVD_RENDEZVOUS_RANK0, "opt",   "1: rank 0 itself serves the rendezvous there")          \
    X(HVD_TOKEN_FILE,       "opt",   "file with the job token, mode 0600")                    \
    X(HVD_TOKEN_FD,         "opt",   "inherited descriptor with the job token, read once")    \
    X(HVD_HOSTFILE,         "opt",   "readable hostfile of the whole job")                    \
    X(HVD_ELASTIC,          "opt",   "elastic job: socket by which the place comes; others are provisional")

/* Written if an interface was passed to the launcher. Otherwise the user's own values
 * are kept, so these are never removed. HOROVOD_GLOO_IFACE is read back. */
#define CONTRACT_ENV_KNOBS(X)                                                                 \
    X(HOROVOD_GLOO_IFACE,      "opt", "network interface, where the job names one")           \
    X(NCCL_SOCKET_IFNAME,      "opt", "the same for NCCL")                                    \
    X(GLOO_SOCKET_IFNAME,      "opt", "the same for torch's Gloo")                            \
    X(HOROVOD_ELASTIC,         "opt", "1 in an elastic job")

/* Also written, for other libraries. Of these only MASTER_ADDR and MASTER_PORT are
 * read. */
#define CONTRACT_ENV_OTHERS(X)                                                                \
    X(MASTER_ADDR,             "opt", "torch.distributed: host of rank 0")                    \
    X(MASTER_PORT,             "opt", "torch.distributed: a free port there")                 \
    X(RANK,                    "opt", "torch.distributed: as HOROVOD_RANK")                   \
    X(WORLD_SIZE,              "opt", "torch.distributed: as HOROVOD_SIZE")                   \
    X(LOCAL_RANK,              "opt", "torch.distributed: as HOROVOD_LOCAL_RANK")             \
    X(LOCAL_WORLD_SIZE,        "opt", "torch.distributed: as HOROVOD_LOCAL_SIZE")             \
    X(GROUP_RANK,              "opt", "torch.distributed: as HVD_HOST_INDEX")                 \
    X(ROLE_RANK,               "opt", "torch.distributed: as HOROVOD_RANK")                   \
    X(ROLE_WORLD_SIZE,         "opt", "torch.distributed: as HOROVOD_SIZE")                   \
    X(JAX_COORDINATOR_ADDRESS, "opt", "jax.distributed: MASTER_ADDR:MASTER_PORT")             \
    X(JAX_NUM_PROCESSES,       "opt", "jax.distributed: as HOROVOD_SIZE")                     \
    X(JAX_PROCESS_ID,          "opt", "jax.distributed: as HOROVOD_RANK")

/* What agent_env_parse reads. HVD_JOB_ID, HVD_GENERATION and HVD_TOKEN_FILE are in the
 * first table too: the agent passes them on. */
#define AGENT_ENV(X)                                                                          \
    X(HVD_JOB_ID,           "operator", "namespace/name/uid of the job")                      \
    X(HVD_GENERATION,       "operator", "generation of the world (0)")                        \
    X(HVD_WORKER_INDEX,     "operator", "index of this worker, 0 to HVD_NUM_WORKERS - 1")     \
    X(HVD_NUM_WORKERS,      "operator", "number of workers")                                  \
    X(HVD_SLOTS_PER_WORKER, "operator", "ranks that each worker starts (1)")                  \
    X(HVD_NP,               "operator", "ranks of the job, where fewer than there are slots") \
    X(HVD_CHECKIN_ADDR,     "operator", "where worker 0's agent is found")                    \
    X(HVD_CHECKIN_PORT,     "operator", "its TCP port (7171)")                                \
    X(HVD_TOKEN_FILE,       "operator", "file with the job token (/etc/ringmaster/token)")    \
    X(HVD_START_TIMEOUT,    "operator", "seconds to wait for all workers (600)")              \
    X(HVD_DIR,              "operator", "where the runtime is installed (/opt/ringmaster)")   \
    X(HVD_TERMINATION_LOG,  "operator", "file for the failure line and last output")          \
    X(HVD_WORLD_FILE,       "operator", "file with generation and number of workers, which may change")

/* Outer launchers' sets: removed from what a launcher of ours starts. A star at the
 * end: prefix. Of Slurm's, only variables of a task or step are removed; those of the
 * job (SLURM_JOB_ID ...) are kept. */
#define FOREIGN_ENV(X)                                                                        \
    X("TORCHELASTIC_*") X("GROUP_WORLD_SIZE") X("ROLE_NAME")                                  \
    X("OMPI_COMM_WORLD_*") X("OMPI_MCA_ess") X("OMPI_MCA_ess_*") X("OMPI_MCA_pmix")           \
    X("OMPI_MCA_pmix_*") X("OMPI_MCA_orte_*") X("OMPI_UNIVERSE_SIZE") X("OMPI_COMMAND")       \
    X("OMPI_NUM_APP_CTX") X("OMPI_APP_CTX_*") X("OMPI_FIRST_RANKS") X("OMPI_FILE_LOCATION")   \
    X("PMIX_*") X("PRTE_*") X("PMI_*") X("HYDRA_*") X("HYDI_*") X("MPI_LOCALRANKID")                      \
    X("MPI_LOCALNRANKS") X("MV2_COMM_WORLD_*") X("JSM_NAMESPACE_*")                           \
    X("SLURM_PROCID") X("SLURM_LOCALID") X("SLURM_NODEID") X("SLURM_GTIDS")                   \
    X("SLURM_TASK_PID") X("SLURM_STEP_*") X("SLURM_STEPID") X("SLURM_NTASKS") X("SLURM_NPROCS") \
    X("SLURM_TASKS_PER_NODE") X("SLURM_LAUNCH_NODE_IPADDR") X("SLURM_SRUN_COMM_*")            \
    X("TF_CONFIG") X("HOROVOD_GLOO_RENDEZVOUS_*") X("HOROVOD_CONTROLLER")                     \
    X("HOROVOD_CPU_OPERATIONS") X("HOROVOD_ELASTIC") X("HVD_ELASTIC")

/* clang-format on */
#endif
