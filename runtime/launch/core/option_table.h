/* SPDX-License-Identifier: Apache-2.0 */
/* The options of horovodrun and perseusrun. Parser, help, shell completion, keys of the
 * config file and variables of the ranks are generated from this table; tests check the
 * man page and the knobs (runtime/core/knob_table.h) against it.
 *
 *   X(id, name, alias, off, off_alias, value, kind, min, max, var, key, needs, group, help)
 *
 * off         the opposite option; kind SWITCH only
 * value       name of the value in the help; the allowed words for CHOICE
 * var         variable of the ranks; "!X": X is true if the option is off
 * key         key in the config file
 * needs       the option without which this one has no effect, or COUNT
 *
 * Spellings, groups and order are Horovod's; PLACEMENT and REPORT are our own. */
#ifndef RUNTIME_LAUNCH_CORE_OPTION_TABLE_H
#define RUNTIME_LAUNCH_CORE_OPTION_TABLE_H

/* clang-format off */

#define OPTION_MAX_NP 1048576
#define OPTION_DAY    86400
#define OPTION_WEEK   604800

#define OPTIONS(X)                                                                             \
    X(HELP, "-h", "--help", "", "", "", FLAG, 0, 0, "", "", COUNT, MAIN,                       \
      "print this help and exit")                                                              \
    X(VERSION, "-v", "--version", "", "", "", FLAG, 0, 0, "", "", COUNT, MAIN,                 \
      "print the version and exit")                                                            \
    X(NP, "-np", "--num-proc", "", "", "N", NUMBER, 1, OPTION_MAX_NP, "", "", COUNT, MAIN,     \
      "number of processes to start (default: all slots of the hosts)")                        \
    X(CHECK_BUILD, "-cb", "--check-build", "", "", "", FLAG, 0, 0, "", "", COUNT, MAIN,        \
      "show which frameworks and operations are available, and exit")                          \
    X(STATUS, "--status", "", "", "", "", FLAG, 0, 0, "", "", COUNT, MAIN,                     \
      "show what the running jobs of this user on this host do, and exit")                     \
    X(JSON, "--json", "", "", "", "", FLAG, 0, 0, "", "", STATUS, MAIN,                        \
      "show it as JSON, an object for each job")                                               \
    X(DISABLE_CACHE, "--disable-cache", "", "", "", "", FLAG, 0, 0, "", "", COUNT, MAIN,       \
      "accepted without effect: no checks of earlier starts are cached")                       \
    X(START_TIMEOUT, "--start-timeout", "", "", "", "SECONDS", SECONDS, 0.001, OPTION_DAY,     \
      "HOROVOD_START_TIMEOUT", "", COUNT, MAIN,                                                \
      "how long ranks wait for each other at start (default: HOROVOD_START_TIMEOUT or 600)")   \
    X(NETWORK_INTERFACES, "--network-interfaces", "--network-interface", "", "", "NAME,...",   \
      LIST, 0, 0, "NCCL_SOCKET_IFNAME", "", COUNT, MAIN,                                       \
      "interfaces that the ranks use, may be repeated (default: the route to the peer)")       \
    X(OUTPUT_FILENAME, "--output-filename", "", "", "", "DIR", TEXT, 0, 0, "", "", COUNT,      \
      MAIN, "also write each rank's output to DIR/rank.N/stdout and stderr")                   \
    X(VERBOSE, "--verbose", "", "", "", "", FLAG, 0, 0, "", "", COUNT, MAIN,                   \
      "print where ranks are started (host, cores, GPU, NIC) and how they exited")             \
    X(CONFIG_FILE, "--config-file", "", "", "", "FILE", FILE, 0, 0, "", "", COUNT, MAIN,       \
      "YAML file with options; overrides those before it, is overridden by those after it")    \
    X(SSH_PORT, "-p", "--ssh-port", "", "", "PORT", NUMBER, 1, 65535, "", "", COUNT, SSH,      \
      "ssh port on all hosts")                                                                 \
    X(SSH_IDENTITY_FILE, "-i", "--ssh-identity-file", "", "", "FILE", FILE, 0, 0, "", "",      \
      COUNT, SSH, "private key for ssh")                                                       \
    X(TOKEN_FILE, "--token-file", "", "", "", "FILE", FILE, 0, 0, "", "", COUNT, SERVE,        \
      "use hvd-agent serve with the same token on other hosts, instead of ssh")                \
    X(AGENT_PORT, "--agent-port", "", "", "", "PORT", NUMBER, 1, 65535, "", "", TOKEN_FILE,    \
      SERVE, "port of hvd-agent serve on all hosts (default: 7172)")                           \
    X(FUSION_THRESHOLD, "--fusion-threshold-mb", "", "", "", "MIB", MIB, 0, 1048576,           \
      "HOROVOD_FUSION_THRESHOLD", "params.fusion_threshold_mb", COUNT, TUNE,                   \
      "size of one fused batch in MiB; 0: no fusion (default: 128)")                           \
    X(CYCLE_TIME, "--cycle-time-ms", "", "", "", "MS", DECIMAL, 0, 10000,                      \
      "HOROVOD_CYCLE_TIME", "params.cycle_time_ms", COUNT, TUNE,                               \
      "milliseconds to wait for more tensors to fuse (default: 0)")                            \
    X(CACHE_CAPACITY, "--cache-capacity", "", "", "", "N", NUMBER, 0, 65536,                   \
      "HOROVOD_CACHE_CAPACITY", "params.cache_capacity", COUNT, TUNE,                          \
      "number of tensors that are cached between steps (default: 1024)")                       \
    X(HIERARCHICAL_ALLREDUCE, "--hierarchical-allreduce", "", "--no-hierarchical-allreduce",   \
      "", "", SWITCH, 0, 0, "HOROVOD_HIERARCHICAL_ALLREDUCE",                                  \
      "params.hierarchical_allreduce", COUNT, TUNE,                                            \
      "without effect: allreduce always reduces within hosts first")                           \
    X(HIERARCHICAL_ALLGATHER, "--hierarchical-allgather", "", "--no-hierarchical-allgather",   \
      "", "", SWITCH, 0, 0, "HOROVOD_HIERARCHICAL_ALLGATHER",                                  \
      "params.hierarchical_allgather", COUNT, TUNE,                                            \
      "without effect: allgather always gathers within hosts first")                           \
    X(TORUS_ALLREDUCE, "--torus-allreduce", "", "--no-torus-allreduce", "", "", SWITCH, 0, 0,  \
      "HOROVOD_TORUS_ALLREDUCE", "params.torus_allreduce", COUNT, TUNE,                        \
      "without effect: NCCL's two-dimensional allreduce is not available")                     \
    X(AUTOTUNE, "--autotune", "", "--no-autotune", "", "", SWITCH, 0, 0, "HOROVOD_AUTOTUNE",   \
      "autotune.enabled", COUNT, AUTOTUNE,                                                     \
      "search the best values of the parameters that no option sets")                          \
    X(AUTOTUNE_LOG, "--autotune-log-file", "", "", "", "FILE", FILE, 0, 0,                     \
      "HOROVOD_AUTOTUNE_LOG", "autotune.log_file", AUTOTUNE, AUTOTUNE,                         \
      "file for samples and scores, comma-separated")                                          \
    X(AUTOTUNE_WARMUP, "--autotune-warmup-samples", "", "", "", "N", NUMBER, 0, 1000000,       \
      "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "autotune.warmup_samples", AUTOTUNE, AUTOTUNE,        \
      "number of first samples that are dropped (default: 3)")                                 \
    X(AUTOTUNE_STEPS, "--autotune-steps-per-sample", "", "", "", "N", NUMBER, 1, 1024,         \
      "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "autotune.steps_per_sample", AUTOTUNE, AUTOTUNE,    \
      "steps per sample (default: 10)")                                                        \
    X(AUTOTUNE_SAMPLES, "--autotune-bayes-opt-max-samples", "", "", "", "N", NUMBER, 1,        \
      1000000, "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "autotune.bayes_opt_max_samples",     \
      AUTOTUNE, AUTOTUNE, "maximum number of samples (default: 20)")                           \
    X(AUTOTUNE_NOISE, "--autotune-gaussian-process-noise", "", "", "", "NOISE", DECIMAL, 0, 1, \
      "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "autotune.gaussian_process_noise", AUTOTUNE,  \
      AUTOTUNE, "without effect: the search uses medians (Horovod's default: 0.8)")            \
    X(MIN_NP, "--min-np", "--min-num-proc", "", "", "N", NUMBER, 1, OPTION_MAX_NP, "", "",     \
      COUNT, ELASTIC, "continue with this number of processes if others fail (default: -np)")  \
    X(MAX_NP, "--max-np", "--max-num-proc", "", "", "N", NUMBER, 1, OPTION_MAX_NP, "", "",     \
      COUNT, ELASTIC, "grow up to this number of processes (default: all slots of the hosts)") \
    X(SLOTS_PER_HOST, "--slots-per-host", "", "", "", "N", NUMBER, 1, 65536, "", "",           \
      HOST_DISCOVERY_SCRIPT, ELASTIC,                                                          \
      "slots of a host for which the discovery script prints none (default: 1)")               \
    X(ELASTIC_TIMEOUT, "--elastic-timeout", "", "", "", "SECONDS", SECONDS, 0, OPTION_WEEK,    \
      "", "", COUNT, ELASTIC,                                                                  \
      "how long an elastic job waits for --min-np processes (default: 600)")                   \
    X(RESET_LIMIT, "--reset-limit", "", "", "", "N", NUMBER, 0, 1000000, "", "", COUNT,        \
      ELASTIC, "how often the processes may form a new world (default: no limit)")             \
    X(SPARES, "--spares", "", "", "", "N", NUMBER, 0, OPTION_MAX_NP, "", "", COUNT, ELASTIC,   \
      "keep this number of further processes ready to replace lost ones (default: 0)")         \
    X(BLACKLIST_COOLDOWN, "--blacklist-cooldown-range", "", "", "", "MIN MAX", RANGE, 0,       \
      OPTION_WEEK, "", "", COUNT, ELASTIC,                                                     \
      "seconds without the slot of a process that fails again (default: 30 600)")              \
    X(TIMELINE, "--timeline-filename", "", "", "", "FILE", FILE, 0, 0, "HOROVOD_TIMELINE",     \
      "timeline.filename", COUNT, TIMELINE,                                                    \
      "record what happens to each tensor, for chrome://tracing")                              \
    X(TIMELINE_MARK, "--timeline-mark-cycles", "", "--no-timeline-mark-cycles", "", "",        \
      SWITCH, 0, 0, "HOROVOD_TIMELINE_MARK_CYCLES", "timeline.mark_cycles", TIMELINE,          \
      TIMELINE, "mark the start of each cycle in the timeline")                                \
    X(STALL_CHECK, "--stall-check", "", "--no-stall-check", "", "", SWITCH, 0, 0,              \
      "!HOROVOD_STALL_CHECK_DISABLE", "stall_check.enabled", COUNT, STALL,                     \
      "report tensors that some ranks do not submit (default: on)")                            \
    X(STALL_WARNING, "--stall-check-warning-time-seconds", "", "", "", "SECONDS", SECONDS, 0,  \
      OPTION_DAY, "HOROVOD_STALL_CHECK_TIME_SECONDS", "stall_check.warning_time_seconds",      \
      COUNT, STALL, "age at which a tensor is reported (default: 60)")                         \
    X(STALL_SHUTDOWN, "--stall-check-shutdown-time-seconds", "", "", "", "SECONDS", SECONDS,   \
      0, OPTION_DAY, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",                                    \
      "stall_check.shutdown_time_seconds", COUNT, STALL,                                       \
      "age at which a tensor ends the job; 0: never (default: only a deadlock does)")          \
    X(MPI_THREADS_DISABLE, "--mpi-threads-disable", "", "--no-mpi-threads-disable", "", "",    \
      SWITCH, 0, 0, "HOROVOD_MPI_THREADS_DISABLE", "library_options.mpi_threads_disable",      \
      COUNT, LIBRARY, "accepted without effect: MPI is not used")                              \
    X(MPI_ARGS, "--mpi-args", "", "", "", "\"ARGS\"", TEXT, 0, 0, "", "", COUNT, LIBRARY,      \
      "mpirun's arguments; only \"-x NAME=VALUE\" has an effect")                              \
    X(TCP, "--tcp", "", "", "", "", FLAG, 0, 0, "NCCL_IB_DISABLE", "", COUNT, LIBRARY,         \
      "TCP only, no InfiniBand")                                                               \
    X(BINDING_ARGS, "--binding-args", "", "", "", "\"ARGS\"", TEXT, 0, 0, "", "", COUNT,       \
      LIBRARY, "mpirun's binding arguments; \"-bind-to X\" is read as --binding")              \
    X(NUM_NCCL_STREAMS, "--num-nccl-streams", "", "", "", "N", NUMBER, 1, 1024,                \
      "HOROVOD_NUM_NCCL_STREAMS", "library_options.num_nccl_streams", COUNT, LIBRARY,          \
      "number of CUDA streams for batches of GPU tensors")                                     \
    X(THREAD_AFFINITY, "--thread-affinity", "", "", "", "CPU,...", CPUS, 0, 65535,             \
      "HOROVOD_THREAD_AFFINITY", "library_options.thread_affinity", COUNT, LIBRARY,            \
      "CPU of the runtime's thread for each local rank")                                       \
    X(GLOO_TIMEOUT, "--gloo-timeout-seconds", "", "", "", "SECONDS", SECONDS, 0.5,             \
      OPTION_DAY, "HOROVOD_GLOO_TIMEOUT_SECONDS", "library_options.gloo_timeout_seconds",      \
      COUNT, LIBRARY, "silence after which a rank counts as lost (default: 30)")               \
    X(LOG_LEVEL, "--log-level", "", "", "", "TRACE|DEBUG|INFO|WARNING|ERROR|FATAL", CHOICE,    \
      0, 0, "HOROVOD_LOG_LEVEL", "logging.level", COUNT, LOG,                                  \
      "log level of the runtime and of this program (default: WARNING)")                       \
    X(LOG_TIMESTAMP, "--log-with-timestamp", "--no-log-hide-timestamp",                        \
      "--log-without-timestamp", "--log-hide-timestamp", "", SWITCH, 0, 0,                     \
      "!HOROVOD_LOG_HIDE_TIME", "logging.with_timestamp", COUNT, LOG,                          \
      "start log lines of the runtime with the time (default: on)")                            \
    X(PREFIX_TIMESTAMP, "-prefix-timestamp", "--prefix-output-with-timestamp", "", "", "",     \
      FLAG, 0, 0, "", "", COUNT, LOG, "print the time before the rank prefix of each line")    \
    X(HOSTS, "-H", "--hosts", "", "", "HOST:SLOTS,...", TEXT, 0, 0, "", "", COUNT, HOSTS,      \
      "hosts and their slots, [ADDRESS]:SLOTS for IPv6 (default: localhost:N)")                \
    X(HOSTFILE, "-hostfile", "--hostfile", "", "", "FILE", FILE, 0, 0, "", "", COUNT, HOSTS,   \
      "the same from a file, lines \"HOST slots=N\"")                                          \
    X(HOST_DISCOVERY_SCRIPT, "--host-discovery-script", "", "", "", "COMMAND", FILE, 0, 0, "", \
      "", COUNT, HOSTS, "the same from a command's output, lines \"HOST:SLOTS\" or \"HOST\"")  \
    X(SLURM, "--slurm", "", "", "", "", FLAG, 0, 0, "", "", COUNT, HOSTS,                      \
      "the nodes of this Slurm job, with its tasks per node; agents are started by srun")      \
    X(GLOO, "--gloo", "", "", "", "", FLAG, 0, 0, "", "", COUNT, CONTROLLER,                   \
      "accepted without effect: there is one engine")                                          \
    X(MPI, "--mpi", "", "", "", "", FLAG, 0, 0, "", "", COUNT, CONTROLLER,                     \
      "accepted without effect: there is one engine")                                          \
    X(JSRUN, "--jsrun", "", "", "", "", FLAG, 0, 0, "", "", COUNT, CONTROLLER,                 \
      "refused: LSF's jsrun is not supported")                                                 \
    X(FRAMEWORK, "--framework", "", "", "", "horovod|tf-multiworker|tf-ps", CHOICE, 0, 0, "",  \
      "", COUNT, STRATEGY, "whose processes these are; tf-*: TF_CONFIG is set (default: horovod)") \
    X(TF_PS, "--tf-ps", "", "", "", "N", NUMBER, 1, 65536, "", "", COUNT, STRATEGY,            \
      "tf-ps: number of processes that are parameter servers (default: 1)")                    \
    X(TF_EVALUATOR, "--tf-evaluator", "", "", "", "", FLAG, 0, 0, "", "", COUNT, STRATEGY,     \
      "the last process is TensorFlow's evaluator")                                            \
    X(BINDING, "--binding", "", "", "", "none|cores|numa", CHOICE, 0, 0, "", "", COUNT,        \
      PLACEMENT, "bind each rank to its own cores or to a NUMA node (default: none)")          \
    X(REPORT, "--report", "", "", "", "", FLAG, 0, 0, "HVD_REPORT", "", COUNT, REPORT,         \
      "print at the end how long a step waited for communication, and what to do")

#define OPTION_GROUPS(X)                                                                       \
    X(MAIN, "arguments")                                                                       \
    X(SSH, "SSH arguments")                                                                    \
    X(SERVE, "arguments for hosts without SSH")                                                \
    X(TUNE, "tuneable parameter arguments")                                                    \
    X(AUTOTUNE, "autotune arguments")                                                          \
    X(ELASTIC, "elastic arguments")                                                            \
    X(TIMELINE, "timeline arguments")                                                          \
    X(STALL, "stall check arguments")                                                          \
    X(LIBRARY, "library arguments")                                                            \
    X(LOG, "logging arguments")                                                                \
    X(HOSTS, "host arguments")                                                                 \
    X(CONTROLLER, "controller arguments")                                                      \
    X(STRATEGY, "arguments for TensorFlow's strategies")                                       \
    X(PLACEMENT, "placement arguments")                                                        \
    X(REPORT, "report arguments")

/* clang-format on */

#endif
