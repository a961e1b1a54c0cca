/* SPDX-License-Identifier: Apache-2.0 */
/* A HorovodJob as a batch script of Slurm. Pure. */
#ifndef SPANK_PLUGIN_SUBMIT_CORE_SUBMIT_H
#define SPANK_PLUGIN_SUBMIT_CORE_SUBMIT_H

#include "operator/core/hvd/hvd_job.h"

/* What the functions below share. Each problem is a line "PATH: text": the job cannot be
 * submitted. Each note is such a line: the field has no counterpart, or another meaning. */
struct submit {
    struct build *b;
    const struct node *object; /* the job, as it was read */
    const struct hvd_job *job; /* the same, decoded; it has no problems */
    bool uses_container;       /* run the image, by the Slurm plugin pyxis */
    struct strbuf *script, *notes, *problems;
    /* set by submit_write */
    const struct node *pod;       /* spec of Worker's pod */
    const struct node *container; /* its first container */
    struct submit_var *var;       /* the last of the variables */
};

/* Writes the whole script. It is of use only if there are no problems and b->status and
 * the status of the buffers are 0. */
void submit_write(struct submit *s);

/* --- parts of it ------------------------------------------------------------------- */

#define SUBMIT_POD   "spec.replicaSpecs.Worker.template.spec"
#define SUBMIT_FIRST SUBMIT_POD ".containers[0]"

/* Appends a word for the shell, quoted if need be. In texts of submit_expand the values of
 * variables that only the shell knows are put in place. */
void submit_put_word(struct strbuf *out, const char *text);
/* False, with a problem, if a word of a script cannot have this text. */
bool submit_check_word(struct submit *s, const char *path, const char *text);

struct submit_var { /* a variable of the container */
    const char *name, *value;
    bool is_outside; /* the environment of sbatch must have it */
    struct submit_var *before;
};
/* Reads env and the settings of spec.horovod. */
void submit_read_env(struct submit *s);
const struct submit_var *submit_find_var(const struct submit *s, const char *name);
/* Replaces $(NAME) as Kubernetes does; $$ is $. NULL: out of memory. */
const char *submit_expand(struct submit *s, const char *text);

/* The resources that one worker requests, 0: none. */
struct submit_size {
    uint32_t nodes, tasks_per_node;
    uint64_t cpus_per_task, memory_mib, gpus;
};
void submit_read_size(struct submit *s, struct submit_size *ret);

/* Notes volumes without counterpart. Appends pyxis' list of mounts to ret. */
void submit_read_mounts(struct submit *s, struct strbuf *ret);

/* False: no failure leads to a restart. */
bool submit_has_restarts(const struct submit *s);
/* Appends the end of the script: runs the command, and again if the job says so. */
void submit_put_restarts(struct submit *s);

/* Notes every other field that has no counterpart. */
void submit_note_rest(struct submit *s);

#endif
