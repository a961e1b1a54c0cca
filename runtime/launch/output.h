/* SPDX-License-Identifier: Apache-2.0 */
/* Forwards what ranks write, line by line, as horovodrun does: "[1]<stdout>:text", or,
 * on another host than horovodrun's, as it is to whoever does. One thread. */
#ifndef RUNTIME_LAUNCH_OUTPUT_H
#define RUNTIME_LAUNCH_OUTPUT_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"
#include "runtime/launch/core/lines.h"

struct sink { /* our own stdout or stderr; never blocks the loop */
    int fd;
    bool is_pipe, is_broken;
    struct strbuf queue; /* whole lines, each with its prefix */
    size_t n_sent;       /* of the queue's first bytes */
};

struct rank_stream {
    int fd;      /* our end of the rank's pipe, -1 when closed */
    int file_fd; /* --output-filename, -1: none */
    struct lines lines;
    size_t n_left; /* while draining: what may still be read */
    size_t n_lost; /* bytes that nobody will see */
    struct rank_output *rank;
};
struct rank_output {
    uint32_t rank;
    struct rank_stream stream[2]; /* 0 stdout, 1 stderr */
    struct tail tail;
    struct output *output;
};
/* Where bytes go instead of files and our own output. */
struct output_forward {
    void (*put)(void *arg, uint32_t rank, int which, const char *p, size_t n);
    bool (*is_full)(const void *arg); /* ranks are not read meanwhile */
    void *arg;
};

struct output {
    struct output_forward forward; /* put NULL: none */
    struct sink sink[2];
    struct rank_output *ranks;
    uint32_t n;
    bool with_timestamp, is_draining;
};

struct output_config {
    uint32_t n;            /* ranks of this launcher */
    const uint32_t *ranks; /* their numbers */
    uint32_t size;         /* of the world: how wide rank numbers are in file names */
    int out_fd, err_fd;
    bool with_timestamp;
    const char *dir; /* --output-filename; NULL: none */
    struct output_forward forward;
};
int output_init(struct output *o, const struct output_config *c, struct err *err);
void output_release(struct output *o); /* accepts a zeroed struct */
/* Takes over both descriptors (our ends, made non-blocking here). */
void output_attach(struct output *o, uint32_t i, int stdout_fd, int stderr_fd);
/* What came from the i-th rank by another way than a pipe; n 0: no more will come. */
void output_feed(struct output *o, uint32_t i, int which, const void *p, size_t n);
/* True while our reader is slow. */
bool output_is_full(const struct output *o);
/* Adds what is to be polled; p has room for 2n + 2 entries. Pipes are left out while
 * our own reader is slow, so that the ranks wait and memory stays bounded. */
nfds_t output_pollfds(const struct output *o, struct pollfd *p);
/* Serves what poll reported. */
void output_serve(struct output *o, const struct pollfd *p, nfds_t n);
/* A rank has ended: reads what its pipes hold now and ends a line without newline. */
void output_rank_ended(struct output *o, uint32_t i);
/* All ranks have ended: reads and writes what can be now. True when nothing is left;
 * else call again when output_pollfds says so. */
bool output_drain(struct output *o);
/* The end: one warning for each stream whose bytes were not all written. */
void output_report_lost(struct output *o);

#endif
