/* SPDX-License-Identifier: Apache-2.0 */
/* What hvd-slurm-check knows of a node, as text, and its judgement. Pure. */
#ifndef RUNTIME_LAUNCH_CORE_NODE_FACTS_H
#define RUNTIME_LAUNCH_CORE_NODE_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"

#define FACT_MAX           128
#define FACTS_OK           "ok"
/* Stands in spank_hvd.so: "<mark>VERSION 0xSLURM" (SLURM_VERSION_NUMBER). */
#define SPANK_VERSION_MARK "@(#)spank_hvd "

/* Texts are "" where something is absent. The names are those of the line. */
#define NODE_FACT_TEXTS(X)                                                             \
    X(node)         /* its name in Slurm */                                            \
    X(agent)        /* version of hvd-agent */                                         \
    X(plugstack)    /* "ok", or why the plugin is not loaded */                        \
    X(plugin)       /* version of spank_hvd.so */                                      \
    X(plugin_slurm) /* the Slurm that it is compiled for: "22.05" */                   \
    X(slurm)        /* of the node: "22.05.8" */                                       \
    X(package)      /* version of the Python package */                                \
    X(python)       /* the Python that finds it, or would have to */                   \
    X(munge)        /* "ok", or what unmunge says about the login host's credential */ \
    X(iface)        /* the interface on the route to srun */                           \
    X(ifaces)       /* all, by commas */                                               \
    X(run)          /* "ok", or why the step's directory cannot be made */

struct node_facts {
#define FACT_MEMBER(name) char name[FACT_MAX];
    NODE_FACT_TEXTS(FACT_MEMBER)
#undef FACT_MEMBER
    uint64_t memlock_bytes; /* UINT64_MAX: no limit */
    uint64_t shm_bytes;     /* size of /dev/shm; 0: there is none */
    uint64_t gpus, rdma;    /* devices */
    const char *state;      /* of a node that is not asked; NULL: it has answered */
};

/* Appends "name=value" for each, separated by tabs. */
void node_facts_put(const struct node_facts *f, struct strbuf *out);
/* -EPROTO: not such a text. Unknown names are ignored. */
int node_facts_parse(const char *text, struct node_facts *ret, struct err *err);
/* Appends one sentence with line feed for each problem. login: the same of the host that
 * asks. The number of problems. */
unsigned node_facts_judge(const struct node_facts *f,
                          const struct node_facts *login,
                          struct strbuf *out);
/* Appends a line of the table; NULL: its head. */
void node_facts_row(const struct node_facts *f, struct strbuf *out);

/* The version and the Slurm release in a file that contains spank_hvd.so. False: it does
 * not contain the mark. */
bool spank_version_find(const void *p, size_t n, char *ret_version, char *ret_slurm);

/* A line of plugstack.conf. */
struct plugstack_line {
    char path[256];              /* of the plugin, or of what is included */
    char dir[256], run_dir[256]; /* its arguments, "": none */
    bool is_include, is_ours;    /* neither: another plugin, or nothing */
};
void plugstack_line_parse(const char *line, struct plugstack_line *ret);

#endif
