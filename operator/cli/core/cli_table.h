/* SPDX-License-Identifier: Apache-2.0 */
/* The commands and options of kubectl-hvd. Parser, help, man page and completion are
 * generated from these tables.
 *
 *   CLI_COMMANDS  X(id, name, words, min, max, options, help)
 *                 words    what follows the name, for the help
 *                 min,max  number of words
 *   CLI_OPTIONS   X(id, spelling, letter, value, kind, commands, help)
 *                 letter   short form, or 0
 *                 value    name of the value, or "" if it takes none
 *                 kind     OWN: kubectl-hvd acts on it; KUBECTL: passed on to kubectl
 *                 commands those that accept it: CMD(LIST) | ...
 *
 * A spelling can occur twice if no command accepts both (-f). */
#ifndef OPERATOR_CLI_CORE_CLI_TABLE_H
#define OPERATOR_CLI_CORE_CLI_TABLE_H

/* clang-format off */

#define CLI_COMMANDS(X)                                                                  \
    X(LIST, "list", "[JOB...]", 0, 1000,                                                 \
      "show the jobs of both kinds")                                                     \
    X(STATUS, "status", "JOB", 1, 1,                                                     \
      "show one job on one screen: state, reason, workers, progress, events")            \
    X(EXPLAIN, "explain", "JOB", 1, 1,                                                   \
      "say why a job does not run, with the facts behind it in causal order")            \
    X(HOSTS, "hosts", "JOB", 1, 1,                                                       \
      "show which ranks are in which pod, on which node")                                \
    X(TOP, "top", "JOB", 1, 1,                                                           \
      "show processor time, memory and steps of each rank")                              \
    X(STACKS, "stacks", "JOB", 1, 1,                                                     \
      "print what each rank does: its Python and native stacks, equal ones grouped")     \
    X(LOGS, "logs", "JOB", 1, 1,                                                         \
      "print the output of a job, or of one of its ranks")                               \
    X(EVENTS, "events", "JOB", 1, 1,                                                     \
      "show the events of a job and of its pods")                                        \
    X(TIMELINE, "timeline", "JOB", 1, 1,                                                 \
      "copy the timeline that the job records (HOROVOD_TIMELINE)")                       \
    X(PAGE, "page", "[JOB]", 0, 1,                                                       \
      "forward the operator's status page to this host and print its URL")               \
    X(SCALE, "scale", "JOB N", 2, 2,                                                     \
      "change the number of workers")                                                    \
    X(SUSPEND, "suspend", "JOB", 1, 1,                                                   \
      "delete the pods of a job until it is resumed")                                    \
    X(RESUME, "resume", "JOB", 1, 1,                                                     \
      "start a suspended job")                                                           \
    X(RESTART, "restart", "JOB", 1, 1,                                                   \
      "suspend a job and resume it, so that all its pods are new")                       \
    X(VALIDATE, "validate", "[FILE...]", 0, 1000,                                        \
      "check jobs in files as the operator does, without a cluster")                     \
    X(RENDER, "render", "[FILE...]", 0, 1000,                                            \
      "print the objects that the operator creates for the jobs in files")               \
    X(CONVERT, "convert", "[FILE...]", 0, 1000,                                          \
      "convert jobs of other operators to HorovodJobs")                                  \
    X(COMPLETE, "__complete", "[WORD...]", 0, 1000, "")                                  \
    X(MAN, "__man", "", 0, 0, "")

#define CMD(c) (1u << CLI_##c)
#define ON_FILES    (CMD(VALIDATE) | CMD(RENDER) | CMD(CONVERT))
#define ON_CHANGES  (CMD(SCALE) | CMD(SUSPEND) | CMD(RESUME) | CMD(RESTART))
#define ON_SHOWS    (CMD(LIST) | CMD(STATUS) | CMD(EXPLAIN) | CMD(HOSTS) | CMD(TOP) | CMD(EVENTS))
#define ON_CLUSTER  (ON_SHOWS | ON_CHANGES | CMD(STACKS) | CMD(LOGS) | CMD(TIMELINE) | CMD(PAGE))

#define CLI_OPTIONS(X)                                                                   \
    X(FILE, "--filename", 'f', "FILE", OWN, ON_FILES,                                    \
      "a file with jobs in YAML or JSON, - for standard input; may be repeated")         \
    X(OUTPUT, "--output", 'o', "FORMAT", OWN, ON_SHOWS | ON_FILES | CMD(TIMELINE),       \
      "table, wide, json, yaml or jsonpath=TEMPLATE; list and status: any format of "    \
      "kubectl get, such as name; render and convert: yaml or json; timeline: the file to write, - for standard output")        \
    X(WATCH, "--watch", 'w', "", OWN, CMD(LIST) | CMD(STATUS) | CMD(TOP) | CMD(EVENTS),  \
      "show changes until interrupted: a terminal is redrawn by status and top, else "   \
      "lines are appended")                                                              \
    X(NO_HEADERS, "--no-headers", 0, "", OWN,                                            \
      CMD(LIST) | CMD(HOSTS) | CMD(TOP) | CMD(EVENTS), "print a table without its first line") \
    X(ALL, "--all-namespaces", 'A', "", KUBECTL, CMD(LIST), "jobs of all namespaces")    \
    X(SELECTOR, "--selector", 'l', "SELECTOR", KUBECTL, CMD(LIST), "jobs with these labels") \
    X(RANK, "--rank", 'r', "N", OWN, CMD(LOGS), "only lines of this rank, without prefix") \
    X(FOLLOW, "--follow", 'f', "", OWN, CMD(LOGS), "print new lines until the pod ends") \
    X(TAIL, "--tail", 0, "N", OWN, CMD(LOGS), "only the last lines of the pod")          \
    X(SINCE, "--since", 0, "TIME", OWN, CMD(LOGS), "only lines that are younger, such as 10m") \
    X(PREVIOUS, "--previous", 'p', "", OWN, CMD(LOGS), "of the container's previous start") \
    X(EXAMINE, "--examine", 0, "", OWN, CMD(STACKS),                                     \
      "examine all ranks now, which takes seconds, instead of printing the last examination") \
    X(TIMEOUT, "--timeout", 0, "TIME", OWN, CMD(RESTART),                                \
      "how long to wait until the old pods are gone (default: 5m)")                      \
    X(PORT, "--port", 0, "N", OWN, CMD(PAGE), "port of this host (default: a free one)") \
    X(OPERATOR_NAMESPACE, "--operator-namespace", 0, "NAME", OWN, CMD(PAGE),             \
      "where the operator runs (default: ringmaster)")                                   \
    X(SERVICE_ACCOUNT, "--service-account", 0, "NAME", OWN, CMD(PAGE),                   \
      "its account with whose rights the page is shown (default: hvd-page)")             \
    X(TOKEN_FILE, "--token-file", 0, "FILE", OWN, CMD(PAGE),                             \
      "a file with your own token: the page is shown with your rights instead")          \
    X(DURATION, "--duration", 0, "TIME", OWN, CMD(PAGE),                                 \
      "how long the token of the service account is valid (default: 8h)")                \
    X(RUNTIME_IMAGE, "--runtime-image", 0, "IMAGE", OWN, CMD(RENDER),                    \
      "as the operator's option of this name")                                           \
    X(CLUSTER_DOMAIN, "--cluster-domain", 0, "DOMAIN", OWN, CMD(RENDER),                 \
      "as the operator's option of this name")                                           \
    X(GANG, "--gang-scheduling", 0, "NAME", OWN, CMD(RENDER),                            \
      "as the operator's option of this name")                                           \
    X(NAMESPACE, "--namespace", 'n', "NAME", KUBECTL, ON_CLUSTER | ON_FILES,             \
      "namespace of the job (default: that of kubectl's context)")                       \
    X(CONTEXT, "--context", 0, "NAME", KUBECTL, ON_CLUSTER, "")                          \
    X(KUBECONFIG, "--kubeconfig", 0, "FILE", KUBECTL, ON_CLUSTER, "")                    \
    X(CLUSTER, "--cluster", 0, "NAME", KUBECTL, ON_CLUSTER, "")                          \
    X(USER, "--user", 0, "NAME", KUBECTL, ON_CLUSTER, "")                                \
    X(SERVER, "--server", 's', "URL", KUBECTL, ON_CLUSTER, "")                           \
    X(TOKEN, "--token", 0, "TOKEN", KUBECTL, ON_CLUSTER, "")                             \
    X(AS, "--as", 0, "USER", KUBECTL, ON_CLUSTER, "")                                    \
    X(AS_GROUP, "--as-group", 0, "GROUP", KUBECTL, ON_CLUSTER, "")                       \
    X(AS_UID, "--as-uid", 0, "UID", KUBECTL, ON_CLUSTER, "")                             \
    X(REQUEST_TIMEOUT, "--request-timeout", 0, "TIME", KUBECTL, ON_CLUSTER, "")          \
    X(CA, "--certificate-authority", 0, "FILE", KUBECTL, ON_CLUSTER, "")                 \
    X(CLIENT_CERT, "--client-certificate", 0, "FILE", KUBECTL, ON_CLUSTER, "")           \
    X(CLIENT_KEY, "--client-key", 0, "FILE", KUBECTL, ON_CLUSTER, "")                    \
    X(TLS_NAME, "--tls-server-name", 0, "NAME", KUBECTL, ON_CLUSTER, "")                 \
    X(INSECURE, "--insecure-skip-tls-verify", 0, "", KUBECTL, ON_CLUSTER, "")            \
    X(CACHE_DIR, "--cache-dir", 0, "FOLDER", KUBECTL, ON_CLUSTER, "")                    \
    X(HELP, "--help", 'h', "", OWN, ~0u, "print the help and exit")                      \
    X(VERSION, "--version", 0, "", OWN, ~0u, "print the version and exit")

/* clang-format on */

#endif
