/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/elastic_leader.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"

int leader_open(struct leader *l, const char *token_file, struct err *err)
{
    int rc;

    memset(l, 0, sizeof(*l));
    l->listen_fd = -1;
    for (int i = 0; i < LEADER_MAX; i++)
        l->v[i].fd = -1;
    rc = token_random(&l->token, err);
    rc = rc < 0 ? rc : token_write_file(token_file, &l->token, err);
    return rc < 0 ? rc : unix_listen_packets(&l->listen_fd, l->name, err);
}

static void leader_accept(struct leader *l)
{
    int fd = accept4(l->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    for (int i = 0; i < LEADER_MAX && fd >= 0; i++)
        if (l->v[i].fd < 0) {
            l->v[i] = (struct leader_member){.fd = fd};
            return;
        }
    fd_close(&fd);
}

static struct leader_event leader_drop(struct leader_member *m)
{
    fd_close(&m->fd);
    return (struct leader_event){.type = m->is_known ? LEADER_GONE : LEADER_NOTHING,
                                 .slot = m->slot};
}

static struct leader_event leader_receive(struct leader_member *m)
{
    struct leader_event e = {.type = LEADER_MESSAGE};
    uint8_t buf[MEMBER_MESSAGE_MAX_BYTES];
    ssize_t n = recv(m->fd, buf, sizeof(buf), 0);

    if (n < 0 && errno == EAGAIN)
        return (struct leader_event){.type = LEADER_NOTHING};
    if (n <= 0 || member_message_read(buf, (size_t)n, &e.message, NULL) < 0)
        return leader_drop(m);
    if (e.message.type == MEMBER_READY) {
        m->is_known = true;
        m->slot = e.message.slot;
    }
    if (!m->is_known)
        return leader_drop(m);
    e.slot = m->slot;
    return e;
}

struct leader_event leader_next(struct leader *l, int also_fd, uint64_t deadline_ns)
{
    struct pollfd p[LEADER_MAX + 2];
    struct leader_event e = {.type = LEADER_NOTHING};

    while (e.type == LEADER_NOTHING && clock_left_ms(deadline_ns) != 0) {
        for (int i = 0; i < LEADER_MAX; i++)
            p[i] = (struct pollfd){.fd = l->v[i].fd, .events = POLLIN};
        p[LEADER_MAX] = (struct pollfd){.fd = l->listen_fd, .events = POLLIN};
        p[LEADER_MAX + 1] = (struct pollfd){.fd = also_fd, .events = POLLIN};
        (void)poll(p, ARRAY_LEN(p), clock_left_ms(deadline_ns));
        for (int i = 0; i < LEADER_MAX && e.type == LEADER_NOTHING; i++)
            if (p[i].fd >= 0 && p[i].revents)
                e = leader_receive(&l->v[i]);
        if (p[LEADER_MAX].revents)
            leader_accept(l);
        if (also_fd >= 0 && p[LEADER_MAX + 1].revents)
            break;
    }
    return e;
}

void leader_send(struct leader *l, uint32_t slot, const struct member_message *m)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};

    strbuf_init(&b, MEMBER_MESSAGE_MAX_BYTES);
    member_message_write(m, &b);
    for (int i = 0; i < LEADER_MAX; i++)
        if (l->v[i].fd >= 0 && l->v[i].is_known && l->v[i].slot == slot)
            (void)send(l->v[i].fd, b.p, b.n,
                       MSG_NOSIGNAL); /* its end comes as an event */
}

static void leader_send_all(struct leader *l, const struct member_message *m)
{
    for (int i = 0; i < LEADER_MAX; i++)
        if (l->v[i].fd >= 0 && l->v[i].is_known)
            leader_send(l, l->v[i].slot, m);
}

int leader_serve(struct leader *l,
                 uint32_t generation,
                 uint32_t size,
                 uint16_t *ret_port)
{
    struct auth_id id = {&l->token, LEADER_JOB, generation};
    int fd, rc = l->n_servers < LEADER_WORLDS ? 0 : -E2BIG;

    rc = rc < 0 ? rc : tcp_listen("127.0.0.1", 0, &fd, ret_port, NULL);
    rc = rc < 0
             ? rc
             : rdv_server_start(fd, &id, size, NULL, &l->servers[l->n_servers], NULL);
    if (rc == 0)
        l->n_servers++;
    return rc;
}

int leader_form(struct leader *l,
                uint32_t generation,
                const uint32_t *slots,
                uint32_t n)
{
    struct member_message m = {.type = MEMBER_FORM, .generation = generation};
    int rc = leader_serve(l, generation, n, &m.rdv_port);

    (void)snprintf(m.rdv_host, sizeof(m.rdv_host), "127.0.0.1");
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        m.place = (struct place){i, n, i, n, 0, 1, 0};
        leader_send(l, slots[i], &m);
    }
    return rc;
}

void leader_break(struct leader *l, uint32_t generation, const char *why)
{
    struct member_message m = {.type = MEMBER_BREAK, .generation = generation};

    (void)snprintf(m.why, sizeof(m.why), "%s", why);
    if (l->n_servers > 0)
        rdv_server_fail(l->servers[l->n_servers - 1], why);
    leader_send_all(l, &m);
}

void leader_notify(struct leader *l, uint32_t generation, uint32_t change)
{
    leader_send_all(l, &(struct member_message){.type = MEMBER_NOTIFY,
                                                .generation = generation,
                                                .change = change});
}

void leader_close(struct leader *l)
{
    for (uint32_t i = 0; i < l->n_servers; i++)
        rdv_server_stop(l->servers[i]);
    for (int i = 0; i < LEADER_MAX; i++)
        fd_close(&l->v[i].fd);
    fd_close(&l->listen_fd);
}
