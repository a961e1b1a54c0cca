/* SPDX-License-Identifier: Apache-2.0 */
/* Strangers that attack every listener of this network namespace:
 *
 *     launch-strangers KIND N     until a signal
 *
 * It keeps N connections to each TCP port that listens and to each abstract Unix socket,
 * and renews those that are closed. KIND: silent; drip (a byte now and then); garbage;
 * half (a hello with a wrong token for each role, then silence). When a signal ends it, it
 * prints how many connections it made to how many listeners.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/wire/auth_wire.h"

enum { TARGETS = 64, EACH = 1024, ROLES = 11 };

struct target {
    struct sockaddr_storage to;
    socklen_t len;
    int fd[EACH];
    size_t n_made;
};

static struct target targets[TARGETS];
static size_t n_targets;
static volatile sig_atomic_t has_ended;

static void on_signal(int sig)
{
    (void)sig;
    has_ended = 1;
}

static void target_add(const void *sa, socklen_t len)
{
    struct target *t = &targets[n_targets];

    for (size_t i = 0; i < n_targets; i++)
        if (targets[i].len == len && memcmp(&targets[i].to, sa, len) == 0)
            return;
    if (n_targets == TARGETS)
        return;
    memcpy(&t->to, sa, len);
    t->len = len;
    for (size_t i = 0; i < EACH; i++)
        t->fd[i] = -1;
    n_targets++;
}

/* Lines of /proc/net/tcp: "sl local:PORT remote:PORT STATE"; 0A listens. */
static void find_ports(const char *path)
{
    FILE *f = fopen(path, "r");
    char line[512];
    unsigned port, state;

    while (f && fgets(line, sizeof(line), f)) {
        struct sockaddr_in to = {.sin_family = AF_INET};

        if (sscanf(line, " %*d: %*[0-9A-F]:%x %*[0-9A-F]:%*x %x", &port, &state) != 2
            || state != 0x0a)
            continue;
        to.sin_port = htons((uint16_t)port);
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        target_add(&to, sizeof(to));
    }
    if (f)
        (void)fclose(f);
}

static void find_unix(void)
{
    FILE *f = fopen("/proc/net/unix", "r");
    char line[512];
    const char *at;

    while (f && fgets(line, sizeof(line), f)) {
        struct sockaddr_un to = {.sun_family = AF_UNIX};
        size_t n;

        if (!(at = strchr(line, '@')))
            continue;
        n = strcspn(at + 1, "\n");
        if (n > sizeof(to.sun_path) - 1)
            continue;
        memcpy(to.sun_path + 1, at + 1, n);
        target_add(&to, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n));
    }
    if (f)
        (void)fclose(f);
}

static void stranger_begin(int fd, const char *kind, size_t i)
{
    static const uint8_t nonce[AUTH_NONCE_BYTES] = {7};
    static const struct token token = {{5}};
    const struct auth_id id = {&token, "another job", 0};
    uint8_t bytes[200];
    ssize_t n = 0;

    if (strcmp(kind, "half") == 0) {
        auth_wire_hello(&id, (enum auth_role)(1 + i % ROLES), 1, nonce, bytes);
        n = AUTH_HELLO_BYTES;
    } else if (strcmp(kind, "garbage") == 0) {
        for (size_t k = 0; k < sizeof(bytes); k++)
            bytes[k] = (uint8_t)rand();
        n = sizeof(bytes);
    }
    if (n > 0 && send(fd, bytes, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return; /* the next look renews it */
}

static void target_renew(struct target *t, const char *kind, size_t n)
{
    for (size_t i = 0; i < n && !has_ended; i++) {
        char c;
        ssize_t got = t->fd[i] >= 0 ? recv(t->fd[i], &c, 1, MSG_DONTWAIT) : 0;

        if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) {
            if (strcmp(kind, "drip") == 0 && i % 8 == (size_t)rand() % 8)
                (void)send(t->fd[i], "H", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
            continue;
        }
        if (t->fd[i] >= 0)
            (void)close(t->fd[i]);
        t->fd[i] = socket(t->to.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
        if (t->fd[i] < 0)
            return;
        if (connect(t->fd[i], (struct sockaddr *)&t->to, t->len) < 0
            && errno != EINPROGRESS) {
            (void)close(t->fd[i]); /* it listens no longer, or its backlog is full */
            t->fd[i] = -1;
            return;
        }
        t->n_made++;
        stranger_begin(t->fd[i], kind, i);
    }
}

int main(int argc, char **argv)
{
    struct rlimit r;
    size_t n = argc > 2 ? strtoul(argv[2], NULL, 10) : 0, made = 0;

    if (argc != 3 || n == 0 || n > EACH) {
        (void)fprintf(stderr, "usage: launch-strangers silent|drip|garbage|half N\n");
        return 2;
    }
    (void)signal(SIGTERM, on_signal);
    (void)signal(SIGINT, on_signal);
    if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
        r.rlim_cur = r.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &r); /* as many as it may have */
    }
    while (!has_ended) {
        find_ports("/proc/net/tcp");
        find_ports("/proc/net/tcp6");
        find_unix();
        for (size_t i = 0; i < n_targets; i++)
            target_renew(&targets[i], argv[1], n);
        (void)usleep(10000);
    }
    for (size_t i = 0; i < n_targets; i++)
        made += targets[i].n_made;
    printf("%zu connections to %zu listeners\n", made, n_targets);
    return 0;
}
