/* SPDX-License-Identifier: Apache-2.0 */
/* A line between two network namespaces with a rate and a delay, for machines whose
 * kernel has no netem:
 *
 *     bench_path NETNS_A NETNS_B MBIT_PER_S DELAY_US      prints "ready"
 *
 * Each namespace gets the device "path0" (TUN, IP packets). A packet of one
 * device is forwarded to the other after its transmission time (bytes / rate, separate per
 * direction) plus DELAY_US. A queue holds QUEUE_BYTES; a packet that finds it full is
 * dropped, as in a switch. Large packets (MTU 64000) keep the load of this process small;
 * at 10 Gbit/s it still needs most of one processor. Exits on SIGTERM. Needs root. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS = 512, PACKET_MAX = 65536, QUEUE_BYTES = 4 << 20, BURST = 64 };

struct packet {
    uint64_t due_ns;
    uint32_t n;
    uint8_t bytes[PACKET_MAX];
};
struct way { /* one direction */
    int in, out;
    double ns_per_byte;
    uint64_t delay_ns, free_at_ns; /* when the line has sent what it has */
    struct packet *ring;           /* [SLOTS] */
    uint64_t head, tail, n_bytes;
    uint64_t n_dropped;
};

static uint64_t now_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void path_fail(const char *what)
{
    fprintf(stderr, "bench_path: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* A device in the namespace; this process stays where it was afterwards. */
static int open_tun(const char *netns)
{
    struct ifreq req = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    char path[256];
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), there, fd;

    (void)snprintf(path, sizeof(path), "/run/netns/%s", netns);
    there = open(path, O_RDONLY | O_CLOEXEC);
    if (home < 0 || there < 0 || setns(there, CLONE_NEWNET) < 0)
        path_fail(path);
    fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    memcpy(req.ifr_name, "path0", 6);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &req) < 0)
        path_fail("/dev/net/tun");
    if (setns(home, CLONE_NEWNET) < 0)
        path_fail("back home");
    (void)close(home);
    (void)close(there);
    return fd;
}

/* What the device gives, onto the line. */
static int way_read(struct way *w)
{
    int n_taken = 0;

    while (n_taken < BURST && w->tail - w->head < SLOTS) {
        struct packet *p = &w->ring[w->tail % SLOTS];
        ssize_t n = read(w->in, p->bytes, sizeof(p->bytes));
        uint64_t now;

        if (n <= 0)
            break;
        n_taken++;
        if (w->n_bytes + (uint64_t)n > QUEUE_BYTES) {
            w->n_dropped++;
            continue;
        }
        now = now_ns();
        if (w->free_at_ns < now)
            w->free_at_ns = now;
        w->free_at_ns += (uint64_t)((double)n * w->ns_per_byte);
        p->n = (uint32_t)n;
        p->due_ns = w->free_at_ns + w->delay_ns;
        w->n_bytes += (uint64_t)n;
        w->tail++;
    }
    return n_taken;
}

/* What is due, off the line. The date of the next one. */
static uint64_t way_forward(struct way *w)
{
    while (w->head < w->tail) {
        struct packet *p = &w->ring[w->head % SLOTS];

        if (p->due_ns > now_ns())
            return p->due_ns;
        (void)!write(w->out, p->bytes, p->n); /* TCP sends again what is lost */
        w->n_bytes -= p->n;
        w->head++;
    }
    return UINT64_MAX;
}

static void wait_for(struct way *w, uint64_t until_ns)
{
    struct pollfd p[2];
    uint64_t now = now_ns();
    struct timespec ts = {.tv_sec = 1};

    for (int i = 0; i < 2; i++)
        p[i] = (struct pollfd){.fd = w[i].in,
                               .events = w[i].tail - w[i].head < SLOTS ? POLLIN : 0};
    if (until_ns <= now)
        ts = (struct timespec){0};
    else if (until_ns - now < 1000000000u)
        ts = (struct timespec){.tv_nsec = (long)(until_ns - now)};
    (void)ppoll(p, 2, &ts, NULL);
}

int main(int argc, char **argv)
{
    struct way w[2] = {{0}};
    int fd[2];

    if (argc != 5 || strtod(argv[3], NULL) <= 0) {
        fprintf(stderr, "usage: %s NETNS_A NETNS_B MBIT_PER_S DELAY_US\n", argv[0]);
        return 2;
    }
    for (int i = 0; i < 2; i++)
        fd[i] = open_tun(argv[1 + i]);
    for (int i = 0; i < 2; i++) {
        w[i] = (struct way){.in = fd[i],
                            .out = fd[1 - i],
                            .ns_per_byte = 8e3 / strtod(argv[3], NULL),
                            .delay_ns = (uint64_t)(strtod(argv[4], NULL) * 1e3),
                            .ring = calloc(SLOTS, sizeof(struct packet))};
        if (!w[i].ring)
            path_fail("queue");
    }
    (void)prctl(PR_SET_TIMERSLACK, 1ul);
    (void)prctl(PR_SET_PDEATHSIG, 15);
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        int n = way_read(&w[0]) + way_read(&w[1]);
        uint64_t a = way_forward(&w[0]), b = way_forward(&w[1]);

        if (n == 0)
            wait_for(w, a < b ? a : b);
    }
}
