/* SPDX-License-Identifier: Apache-2.0 */
/* Forwards the output of ranks line by line, as horovodrun does: "[1]<stdout>:text". On
 * other hosts than horovodrun's it is forwarded unchanged instead. One thread. */
#ifndef RUNTIME_LAUNCH_OUTPUT_H
#define RUNTIME_LAUNCH_OUTPUT_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"
#include "runtime/launch/core/lines.h"
#include "runtime/launch/output_files.h"

struct sink { /* our own stdout or stderr */
    int fd;
    bool is_pipe, is_broken;
    struct strbuf queue;
    size_t n_sent; /* bytes of the queue that are written */
};

struct rank_stream {
    int fd; /* our end of the rank's pipe; -1: closed */
    struct lines lines;
    size_t n_left; /* while draining: bytes that may still be read */
    size_t n_lost; /* bytes that were dropped */
    struct rank_output *rank;
};
struct rank_output {
    uint32_t rank;
    struct rank_stream stream[2]; /* 0 stdout, 1 stderr */
    struct tail tail;
    struct output *output;
};
/* Receives the bytes instead of files and our own output. */
struct output_forward {
    void (*put)(void *arg, uint32_t rank, int which, const char *p, size_t n);
    bool (*is_full)(const void *arg); /* while true, ranks are not read */
    void *arg;
};

struct output {
    struct output_forward forward; /* put NULL: none */
    struct sink sink[2];
    struct output_files *files; /* --output-filename; NULL: none */
    struct rank_output *ranks;
    uint32_t n;
    bool with_timestamp, is_draining;
};

struct output_config {
    uint32_t n; /* number of ranks */
    const uint32_t *ranks;
    uint32_t size; /* of the world: sets the width of rank numbers in file names */
    int out_fd, err_fd;
    bool with_timestamp;
    const char *dir; /* --output-filename; NULL: none */
    struct output_forward forward;
};
int output_init(struct output *o, const struct output_config *c, struct err *err);
void output_release(struct output *o); /* accepts a zeroed struct */
/* Takes ownership of both descriptors, which become non-blocking. */
void output_attach(struct output *o, uint32_t i, int stdout_fd, int stderr_fd);
/* The i-th process has ended, and another one follows. Closes both descriptors. */
void output_detach(struct output *o, uint32_t i);
/* The number that the lines of the i-th process begin with. */
void output_set_rank(struct output *o, uint32_t i, uint32_t rank);
/* Adds output of the i-th rank that was not read from a pipe. n 0: the output has
 * ended. */
void output_feed(struct output *o, uint32_t i, int which, const void *p, size_t n);
/* True while our reader or the disk is slow. */
bool output_is_full(const struct output *o);
/* Fills p, which has room for 2n + OUTPUT_FDS entries, for poll. Rank pipes are left
 * out while our reader or the disk is slow, so that ranks wait and memory is bounded. */
#define OUTPUT_FDS 3
nfds_t output_pollfds(const struct output *o, struct pollfd *p);
/* When poll must end for the output's sake, or deadline_ns if that is earlier. */
uint64_t output_due_ns(const struct output *o, uint64_t deadline_ns);
/* Handles the results of poll. */
void output_serve(struct output *o, const struct pollfd *p, nfds_t n);
/* A rank has exited: reads what its pipes hold now and ends a line without newline. */
void output_rank_ended(struct output *o, uint32_t i);
/* All ranks have exited: reads and writes without blocking. True if nothing is left;
 * otherwise call again after poll. */
bool output_drain(struct output *o);
/* At the end: logs one warning for each stream with dropped bytes, and what is missing
 * in the files. */
void output_report_lost(struct output *o);

#endif
