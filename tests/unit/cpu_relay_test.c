/* SPDX-License-Identifier: Apache-2.0 */
/* A relay between two ranks damages the stream of one data connection at a seeded place:
 * it flips, drops, repeats or inserts bytes. Each rank must then have the right result
 * of every operation, or an error that names its peer.
 *
 * With a checksum no damage may pass. A relay that also corrects the checksum passes it,
 * which shows that the relay works, and never passes a MAC. RELAY_RUNS=10000 for more
 * places, RELAY_SEED for others. */
#include <poll.h>
#include <sys/socket.h>

#include "runtime/backend/cpu/net_block.h"
#include "runtime/base/fd.h"
#include "runtime/wire/bytes.h"
#include "runtime/wire/auth_wire.h"
#include "tests/unit/cpu_world.h"
#include "tests/unit/damage.h"

enum {
    HEADER = BLOCK_HEADER_BYTES,
    HANDSHAKE_OUT = AUTH_HELLO_BYTES + AUTH_PROOF_BYTES,
    HANDSHAKE_IN = AUTH_REPLY_BYTES
};
enum { CHUNK = 16384, FLOATS = 40000, BYTES = 9000, BATCHES = 7 };

enum forge {
    FORGE_NONE,
    FORGE_DATA,   /* changes data of a block and corrects its checksum */
    FORGE_REPLAY, /* an earlier block's data and MAC under the next header */
};

struct tap { /* where the relay acts: connection of rank 1 to rank 0 */
    int listen_fd;
    struct damage d; /* forging: at is the number of the block */
    enum forge forge;
    uint32_t way;          /* 0: what rank 1 sends, 1: what rank 0 sends */
    atomic_ulong *n_bytes; /* [2] that have passed */
    bool is_short;         /* ranks run only what has no padding before it */
};

/* --- the relay --- */

struct way {
    int from, to;
    uint64_t n_seen;
    uint8_t block[HEADER + CHUNK], before[HEADER + CHUNK]; /* forging: its buffer */
    size_t n_block, n_before;
    uint64_t n_blocks;
};

/* Passes p[n] on, which begins at offset w->n_seen of its way. */
static void relay_pass(const struct tap *t, struct way *w, const uint8_t *p, size_t n)
{
    static uint8_t damaged[65536 + DAMAGE_MAX];
    (void)fd_write_full(w->to, damaged, damage_apply(&t->d, w->n_seen, p, n, damaged),
                        UINT64_MAX);
    w->n_seen += n;
}

/* A whole block is in w->block. */
static void relay_forge(const struct tap *t, struct way *w)
{
    uint32_t n = bytes_load_u32(w->block);
    uint8_t *data = w->block + HEADER;
    bool has_crc = bytes_load_u32(w->block + 4) != 0;
    bool is_here = w->n_blocks++ == t->d.at;
    if (is_here && t->forge == FORGE_DATA)
        data[t->d.n % n] ^= t->d.bits;
    if (is_here && t->forge == FORGE_REPLAY && w->n_before == w->n_block)
        memcpy(w->block + 32, w->before + 32, w->n_block - 32);
    memcpy(w->before, w->block, w->n_block);
    w->n_before = w->n_block;
    if (has_crc)
        bytes_store_u32(w->block + 4, crc32c_portable(0, data, n));
    (void)fd_write_full(w->to, w->block, w->n_block, UINT64_MAX);
    w->n_block = 0;
}

static void
relay_pass_blocks(const struct tap *t, struct way *w, const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        w->block[w->n_block++] = p[i];
        if (w->n_block < HEADER)
            continue;
        size_t data = (bytes_load_u32(w->block) + 63u) & ~63u;
        if (data > CHUNK)
            return; /* not a block: the rank must have failed */
        if (w->n_block == HEADER + data)
            relay_forge(t, w);
    }
}

static void relay_run(const struct tap *t, int fd[2])
{
    static struct way ways[2];
    const uint64_t handshake[2] = {HANDSHAKE_OUT, HANDSHAKE_IN};
    uint8_t p[65536];
    ways[0] = (struct way){.from = fd[0], .to = fd[1]};
    ways[1] = (struct way){.from = fd[1], .to = fd[0]};
    for (;;) {
        struct pollfd polls[2] = {{.fd = fd[0], .events = POLLIN},
                                  {.fd = fd[1], .events = POLLIN}};
        if (poll(polls, 2, -1) < 0)
            return;
        for (uint32_t i = 0; i < 2; i++) {
            struct way *w = &ways[i];
            if (polls[i].revents == 0)
                continue;
            ssize_t n = recv(w->from, p, sizeof(p), 0);
            if (n <= 0)
                return; /* exit closes both */
            atomic_fetch_add(&t->n_bytes[i], (unsigned long)n);
            uint64_t head = w->n_seen < handshake[i] ? handshake[i] - w->n_seen : 0;
            head = head < (uint64_t)n ? head : (uint64_t)n;
            if (t->forge == FORGE_NONE) {
                if (i == t->way)
                    relay_pass(t, w, p, (size_t)n);
                else
                    (void)fd_write_full(w->to, p, (size_t)n, UINT64_MAX);
                continue;
            }
            (void)fd_write_full(w->to, p, head, UINT64_MAX);
            w->n_seen += head;
            if (i == t->way)
                relay_pass_blocks(t, w, p + head, (size_t)n - head);
            else
                (void)fd_write_full(w->to, p + head, (size_t)n - head, UINT64_MAX);
        }
    }
}

static void relay_main(struct world_mem *m, const struct world *w)
{
    const struct tap *t = w->arg;
    struct err err = ERR_INIT;
    struct peer real;
    int fd[2] = {-1, -1};
    (void)fd_wait(t->listen_fd, POLLIN, UINT64_MAX);
    fd[0] = accept4(t->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    memcpy(&real, m->blob[0][0], sizeof(real));
    if (fd[0] >= 0
        && tcp_connect(real.addr, real.port, clock_now_ns() + 20 * NS_PER_S, true,
                       &fd[1], &err)
               == 0
        && fd_nonblock(fd[1], false) == 0)
        relay_run(t, fd);
}

/* --- the ranks --- */

#define WRONG(r, ...) ((void)SAY(r, "WRONG: " __VA_ARGS__), -1)

static float value_at(uint32_t rank, uint32_t i)
{
    return (float)((i * 7 + rank * 3) % 1000);
}

static uint8_t byte_at(uint32_t from, uint32_t to, uint32_t i)
{
    return (uint8_t)(i * 5 + from * 11 + to * 13);
}

/* Each of these: 1, 0 with the error in err, or -1: the result is wrong. */

static int run_sum(struct rank *r, uint32_t n, struct err *err)
{
    AUTOFREE float *x = mem_calloc(n, sizeof(*x));
    for (uint32_t i = 0; i < n; i++)
        x[i] = value_at(r->rank, i);
    if (sum_run(r->b, DT_F32, x, n, err) < 0)
        return 0;
    for (uint32_t i = 0; i < n; i++)
        if (x[i] != value_at(0, i) + value_at(1, i))
            return WRONG(r, "sum %u of %u", i, n);
    return 1;
}

static int run_bytes(struct rank *r, enum collective coll, struct err *err)
{
    uint64_t counts[2] = {BYTES, BYTES};
    AUTOFREE uint8_t *in = mem_alloc(2 * BYTES);
    AUTOFREE uint8_t *out = mem_zalloc(2 * BYTES);
    struct batch_item it = {
        .in = in, .out = out, .count = BYTES, .counts = counts, .send_counts = counts};
    struct batch b = {
        .coll = coll, .dtype = DT_U8, .op = OP_SUM, .items = &it, .n_items = 1};
    uint32_t to = coll == COLL_ALLTOALL ? r->rank : 0;
    uint32_t n = coll == COLL_BROADCAST ? 1 : 2;
    for (uint32_t i = 0; i < 2 * BYTES; i++)
        in[i] = byte_at(r->rank, coll == COLL_ALLTOALL ? i / BYTES : 0, i % BYTES);
    if (run_batch(r, &b, err) < 0)
        return 0;
    for (uint32_t i = 0; i < n * BYTES; i++)
        if (out[i] != byte_at(i / BYTES, to, i % BYTES))
            return WRONG(r, "%s, byte %u", collective_name(coll), i);
    return 1;
}

static int run_agreement(struct rank *r, struct err *err)
{
    uint64_t words[3] = {~0ull, 0x00ff00ff00ffull << r->rank, r->rank}, all[3] = {0};
    int rc = r->b->ops->agree_begin(r->b, words, 3, err);
    if (rc == 0)
        rc = agree_until_done(r->b, all, 1000000, r->env.deadline_ns, err);
    if (rc < 0)
        return 0;
    bool is_right = all[0] == ~0ull && all[2] == 0
                    && all[1] == (0x00ff00ff00ffull & 0x00ff00ff00ffull << 1);
    return is_right ? 1 : WRONG(r, "agreement");
}

static int run_number(struct rank *r, uint32_t i, struct err *err)
{
    const struct tap *t = r->arg;
    switch (i) {
    case 0:
        return run_sum(r, 500, err);
    case 1:
        return run_agreement(r, err);
    case 2:
        return t->is_short ? 1 : run_sum(r, FLOATS, err);
    case 3:
        return run_bytes(r, COLL_BROADCAST, err);
    case 4:
        return run_bytes(r, COLL_ALLGATHER, err);
    case 5:
        return run_bytes(r, COLL_ALLTOALL, err);
    default:
        return run_sum(r, 700, err);
    }
}

/* Fails the test if a result is wrong, or an error does not name the peer. */
static int body_operations(struct rank *r)
{
    struct err err = ERR_INIT;
    struct tuning tuning = {.whole_bytes = 4096, .chunk_bytes = 4096};
    char peer[32];
    (void)r->b->ops->tune(r->b, &tuning);
    snprintf(peer, sizeof(peer), "rank %u", 1 - r->rank);
    for (uint32_t i = 0; i < BATCHES; i++) {
        int rc = run_number(r, i, &err);
        if (rc <= 0)
            atomic_fetch_add(&r->m->arrived, 1); /* the other one need not wait */
        if (rc < 0)
            return 2;
        if (rc == 0)
            return strstr(err.text, peer) ? SAY(r, "%s", err.text) - 1
                                          : SAY(r, "NAMELESS: %s", err.text);
    }
    world_meet(r, 2); /* else the first to leave is taken for a lost rank */
    return SAY(r, "done") - 1;
}

struct ends { /* what the ranks said */
    bool is_done, is_wrong, failed;
    char said[2][640];
};

static struct ends relay_world(struct tap *t, enum data_check check)
{
    static atomic_ulong *n_bytes;
    /* Lost bytes are waited for; all other damage is found without waiting. */
    bool is_slow = t->d.kind == DAMAGE_NONE;
    struct world w = {.size = 2,
                      .tcp = true,
                      .body = body_operations,
                      .beside = relay_main,
                      .checks = {check, check},
                      .timeout_s = 60,
                      .connect_ms = is_slow ? 20000 : 1000,
                      .peer_timeout_ms = is_slow ? 20000 : 200,
                      .is_quiet = true,
                      .arg = t};
    struct err err = ERR_INIT;
    struct ends e = {0};
    if (!n_bytes)
        n_bytes =
            mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(n_bytes, MAP_FAILED);
    t->n_bytes = n_bytes;
    atomic_store(&n_bytes[0], 0);
    atomic_store(&n_bytes[1], 0);
    assert_int_equal(tcp_listen("127.0.0.1", 0, &t->listen_fd, &w.via[0], &err), 0);
    e.failed = world_run(&w) != 0;
    fd_close(&t->listen_fd);
    for (int i = 0; i < 2; i++) {
        memcpy(e.said[i], w.said[i], sizeof(e.said[i]));
        e.is_wrong = e.is_wrong || strncmp(w.said[i], "WRONG", 5) == 0;
    }
    e.is_done = strcmp(w.said[0], "done") == 0 && strcmp(w.said[1], "done") == 0;
    return e;
}

/* Ranks that did not connect have failed without a body; their errors must name the
 * peer, too. */
static bool ends_name_peers(const struct ends *e)
{
    for (int i = 0; i < 2; i++)
        if (strcmp(e->said[i], "done") != 0
            && !strstr(e->said[i], i == 0 ? "rank 1" : "rank 0"))
            return false;
    return true;
}

static void fail_ends(const struct tap *t, const struct ends *e, const char *what)
{
    fail_msg(
        "%s: damage %d, way %u, at %llu, %u bytes, bits %02x; rank 0: %s; rank 1: %s",
        what, (int)t->d.kind, t->way, (unsigned long long)t->d.at, t->d.n, t->d.bits,
        e->said[0], e->said[1]);
}

static uint32_t n_runs(void)
{
    return damage_number("RELAY_RUNS", 200 / FEWER);
}

static void damage_at_random(enum data_check check, uint32_t n)
{
    struct seeded r = {damage_number("RELAY_SEED", 1) * 10 + (uint32_t)check};
    struct tap t = {.way = 0};
    struct ends e = relay_world(&t, check);
    uint64_t n_bytes[2] = {atomic_load(&t.n_bytes[0]), atomic_load(&t.n_bytes[1])};
    uint32_t n_damaged = 0;
    if (!e.is_done)
        fail_ends(&t, &e, "without damage");
    for (uint32_t i = 0; i < n; i++) {
        t.way = seeded_below(&r, 2);
        /* every fourth in the handshake and the first blocks */
        t.d = damage_choose(&r, i % 4 == 0 ? 2000 : (uint32_t)n_bytes[t.way]);
        e = relay_world(&t, check);
        if (e.is_wrong)
            fail_ends(&t, &e, "wrong result");
        if (!e.is_done && !ends_name_peers(&e))
            fail_ends(&t, &e, "an error does not name the peer");
        n_damaged += !e.is_done;
    }
    assert_true(n_damaged > n / 2); /* the rest was in padding */
}

UNIT_TEST(random_damage_is_an_error_by_checksum)
{
    damage_at_random(DATA_CRC, n_runs());
}

UNIT_TEST(random_damage_is_an_error_by_mac)
{
    damage_at_random(DATA_MAC, n_runs() / 4);
}

/* Without a check damage of the data itself passes. Nothing else does. */
UNIT_TEST(a_shifted_stream_is_an_error_without_a_check)
{
    struct seeded r = {damage_number("RELAY_SEED", 1)};
    struct tap t = {.way = 0};
    (void)relay_world(&t, DATA_BARE);
    uint64_t n_bytes[2] = {atomic_load(&t.n_bytes[0]), atomic_load(&t.n_bytes[1])};
    for (uint32_t i = 0; i < n_runs() / 8; i++) {
        t.way = seeded_below(&r, 2);
        t.d = (struct damage){.kind =
                                  (enum damage_kind)(DAMAGE_DROP + seeded_below(&r, 3)),
                              /* not in the last block, after which no header follows */
                              .at = seeded_below(&r, (uint32_t)n_bytes[t.way] - 4000),
                              .n = 64,
                              .bits = 7};
        struct ends e = relay_world(&t, DATA_BARE);
        if (e.is_done || (!e.is_wrong && !ends_name_peers(&e)))
            fail_ends(&t, &e, "no error");
    }
}

UNIT_TEST(forged_blocks_pass_a_checksum_but_no_mac)
{
    struct seeded r = {damage_number("RELAY_SEED", 1) * 10};
    uint32_t n_wrong = 0, n = n_runs() / 4;
    for (uint32_t i = 0; i < n; i++) {
        struct tap t = {.is_short = true,
                        .forge = i % 2 == 0 ? FORGE_DATA : FORGE_REPLAY,
                        .way = seeded_below(&r, 2),
                        .d = {.n = seeded_below(&r, 2000),
                              .bits = (uint8_t)(1 + seeded_below(&r, 255))}};
        t.d.at = t.forge == FORGE_DATA ? 0 : 1 + seeded_below(&r, 4);
        struct ends e = relay_world(&t, DATA_CRC);
        n_wrong += e.is_wrong;
        e = relay_world(&t, DATA_MAC);
        if (e.is_wrong || (!e.is_done && !ends_name_peers(&e)))
            fail_ends(&t, &e, "forged");
        if (t.forge == FORGE_DATA && (e.is_done || !strstr(e.said[t.way], "its MAC")))
            fail_ends(&t, &e, "forged data passed");
    }
    assert_true(n_wrong > n / 8); /* so the relay does forge */
}

/* --- the setting --- */

UNIT_TEST(ranks_with_different_settings_fail_at_once)
{
    static const struct {
        enum data_check checks[3];
        const char *says;
    } t[] = {
        {{DATA_MAC, DATA_MAC, DATA_BARE},
         "HVD_DATA_MAC is 1 on rank 0 (host h) and 0 on rank 2 (host h); it must be "
         "equal "
         "on all ranks"},
        {{DATA_BARE, DATA_CRC, DATA_BARE},
         "HVD_DATA_CRC is 0 on rank 0 (host h) and 1 on rank 1 (host h); it must be "
         "equal "
         "on all ranks"},
        {{DATA_CRC, DATA_MAC, DATA_CRC},
         "HVD_DATA_MAC is 0 on rank 0 (host h) and 1 on rank 1 (host h); it must be "
         "equal "
         "on all ranks"},
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct world w = {.size = 3, .connect_fails = 1, .timeout_s = 20};
        memcpy(w.checks, t[i].checks, sizeof(t[i].checks));
        assert_int_equal(world_run(&w), 0);
        for (int r = 0; r < 3; r++)
            assert_string_equal(w.said[r], t[i].says);
    }
}

UNIT_MAIN(NULL, NULL)
