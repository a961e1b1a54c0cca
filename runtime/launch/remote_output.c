/* SPDX-License-Identifier: Apache-2.0 */
/* Credit goes back in steps of a quarter, so that a slow console costs few messages.
 * Called by remote.c, remote_receive.c and elastic_job.c. */
#include "runtime/launch/remote_output.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/wire/bytes.h"

#define SLOW_READER_NS (2 * NS_PER_S) /* after a stop */

int remote_output_open(struct remote_output *o,
                       const struct remote_job *job,
                       uint32_t n,
                       uint32_t n_hosts,
                       struct err *err)
{
    AUTOFREE uint32_t *numbers = mem_calloc(n, sizeof(*numbers));
    o->program = job->program;
    o->n_hosts = n_hosts;
    o->owed_bytes = mem_calloc(o->n_hosts, sizeof(*o->owed_bytes));
    if (!numbers || !o->owed_bytes)
        return err_set(err, -ENOMEM, "out of memory for %u ranks", n);
    for (uint32_t i = 0; i < n; i++)
        numbers[i] = i;
    struct output_config c = {.n = n,
                              .ranks = numbers,
                              .size = n,
                              .out_fd = 1,
                              .err_fd = 2,
                              .with_timestamp = job->with_timestamp,
                              .dir = job->output_dir};
    return output_init(&o->output, &c, err);
}

void remote_output_release(struct remote_output *o)
{
    output_release(&o->output);
    mem_free(o->owed_bytes);
    o->owed_bytes = NULL;
}

int remote_output_take(struct remote_output *o,
                       uint32_t host,
                       const struct remote_host *from,
                       const uint8_t *p,
                       size_t n,
                       struct err *err)
{
    struct errand_output out;
    int rc = errand_output_read(p, n, &out, err);
    if (rc == 0
        && (out.rank < from->first_rank
            || out.rank - from->first_rank >= from->n_ranks))
        rc = err_set(err, -EPROTO, "output of rank %u, which is on another host",
                     out.rank);
    if (rc < 0)
        return rc;
    if (out.n)
        output_feed(&o->output, out.rank, (int)out.stream, out.p, out.n);
    o->owed_bytes[host] += (uint32_t)out.n;
    return 0;
}

void remote_output_end(struct remote_output *o, const struct remote_host *from)
{
    for (uint32_t i = 0; i < from->n_ranks; i++)
        for (int k = 0; k < 2; k++)
            output_feed(&o->output, from->first_rank + i, k, NULL, 0);
}

void remote_output_note(const struct remote_output *o,
                        const char *host,
                        const uint8_t *p,
                        size_t n)
{
    struct bytes_reader b = {.p = p, .left = n};
    AUTOFREE char *text = bytes_text(&b);
    for (char *line = text; line && *line;) {
        char *end = line + strcspn(line, "\n"), *next = *end ? end + 1 : end;
        *end = '\0';
        for (char *q = line; *q; q++)
            if ((unsigned char)*q < ' ' && *q != '\t')
                *q = '?';
        fprintf(stderr, "%s: host %s: %s\n", o->program, host, line);
        line = next;
    }
}

void remote_output_give_credit(struct remote_output *o, struct link_set *links)
{
    if (output_is_full(&o->output))
        return;
    for (uint32_t h = 0; h < o->n_hosts; h++) {
        CLEANUP(strbuf_release) struct strbuf b = {0};
        if (o->owed_bytes[h] < ERRAND_CREDIT_BYTES / 4)
            continue;
        strbuf_init(&b, 16);
        bytes_put_u32(&b, o->owed_bytes[h]);
        o->owed_bytes[h] = 0;
        links_send(links, ERRAND_CREDIT, h, &b);
    }
}

void remote_output_finish(struct remote_output *o,
                          int signal_fd,
                          struct pollfd *fds,
                          bool (*is_stopped)(void *arg),
                          void *arg)
{
    uint64_t slow_ns = UINT64_MAX;

    while (!output_drain(&o->output) && clock_now_ns() < slow_ns) {
        nfds_t n = output_pollfds(&o->output, fds + 1);

        fds[0] = (struct pollfd){.fd = signal_fd, .events = POLLIN};
        if (is_stopped(arg) && slow_ns == UINT64_MAX)
            slow_ns = clock_now_ns() + SLOW_READER_NS;
        (void)poll(fds, n + 1, clock_left_ms(output_due_ns(&o->output, slow_ns)));
    }
    output_report_lost(&o->output);
}
