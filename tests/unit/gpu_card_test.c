/* SPDX-License-Identifier: Apache-2.0 */
/* Cards of the GPU members: their wire form, and the verdict over all of them. */
#include "tests/unit/unit.h"

#include "runtime/backend/nccl/card.h"
#include "runtime/base/mem.h"
#include "tests/unit/seeded.h"
#include "tests/unit/torture.h"

static void random_text(struct seeded *r, char *s, uint32_t size)
{
    uint32_t n = seeded_below(r, size);

    for (uint32_t i = 0; i < n; i++)
        s[i] = (char)(' ' + seeded_below(r, 95));
}

static void random_bytes_of(struct seeded *r, uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)seeded_next(r);
}

static struct gpu_card random_card(struct seeded *r)
{
    struct gpu_card c = {.version = GPU_CARD_VERSION};

    c.nccl = (int32_t)seeded_next(r);
    c.driver = (int32_t)seeded_next(r);
    random_bytes_of(r, c.uuid, sizeof(c.uuid));
    c.host_hash = seeded_next(r);
    c.direct_bytes = seeded_next(r);
    c.uses_graphs = seeded_below(r, 2);
    c.registers = seeded_below(r, 2);
    c.is_deterministic = seeded_below(r, 2);
    c.n_streams = (uint8_t)seeded_next(r);
    c.fusion_bytes = seeded_next(r);
    c.may_share_gpu = seeded_below(r, 2);
    c.has_graphs = seeded_below(r, 2);
    if (seeded_below(r, 2)) {
        random_bytes_of(r, c.parked_id, sizeof(c.parked_id));
        c.parked_size = 1 + seeded_below(r, GPU_CARD_MAX_PARKED);
        c.parked_rank = seeded_below(r, c.parked_size);
    }
    random_text(r, c.gpu, sizeof(c.gpu));
    random_text(r, c.problem, sizeof(c.problem));
    return c;
}

static void assert_same(const struct gpu_card *a, const struct gpu_card *b)
{
    assert_int_equal(a->version, b->version);
    assert_int_equal(a->nccl, b->nccl);
    assert_int_equal(a->driver, b->driver);
    assert_memory_equal(a->uuid, b->uuid, sizeof(a->uuid));
    assert_true(a->host_hash == b->host_hash && a->direct_bytes == b->direct_bytes);
    assert_int_equal(a->uses_graphs, b->uses_graphs);
    assert_int_equal(a->registers, b->registers);
    assert_int_equal(a->is_deterministic, b->is_deterministic);
    assert_int_equal(a->n_streams, b->n_streams);
    assert_true(a->fusion_bytes == b->fusion_bytes);
    assert_int_equal(a->may_share_gpu, b->may_share_gpu);
    assert_int_equal(a->has_graphs, b->has_graphs);
    assert_memory_equal(a->parked_id, b->parked_id, sizeof(a->parked_id));
    assert_int_equal(a->parked_rank, b->parked_rank);
    assert_int_equal(a->parked_size, b->parked_size);
    assert_string_equal(a->gpu, b->gpu);
    assert_string_equal(a->problem, b->problem);
}

UNIT_TEST(a_card_comes_back_as_it_was)
{
    struct seeded r = {9};

    for (int i = 0; i < 2000; i++) {
        uint8_t wire[GPU_CARD_BYTES];
        struct gpu_card c = random_card(&r), d;

        memset(wire, 0xee, sizeof(wire));
        gpu_card_write(&c, wire);
        assert_int_equal(gpu_card_read(wire, &d, NULL), 0);
        assert_same(&c, &d);
    }
}

/* Bytes after the NUL of a text are not sent. */
UNIT_TEST(only_the_text_travels)
{
    struct gpu_card c, d;
    uint8_t wire[GPU_CARD_BYTES];

    memset(&c, 0, sizeof(c));
    c.version = GPU_CARD_VERSION;
    memset(c.problem, 'x', sizeof(c.problem)); /* not even a NUL */
    memcpy(c.gpu, "H100\0secret", 11);
    gpu_card_write(&c, wire);
    assert_int_equal(gpu_card_read(wire, &d, NULL), 0);
    assert_int_equal(strlen(d.problem), sizeof(d.problem) - 1);
    assert_memory_equal(d.gpu, "H100\0\0\0\0\0\0\0", 11);
}

/* Any change of one byte is either refused or is another card: nothing is ignored. */
UNIT_TEST(every_byte_counts)
{
    struct seeded r = {10};
    uint32_t n_refused = 0;

    for (int round = 0; round < 20; round++) {
        uint8_t wire[GPU_CARD_BYTES], again[GPU_CARD_BYTES];
        struct gpu_card c = random_card(&r), d;

        gpu_card_write(&c, wire);
        for (size_t i = 4; i < GPU_CARD_BYTES; i++) {
            struct err e = ERR_INIT;
            uint8_t was = wire[i];

            wire[i] = (uint8_t)(was + 1 + seeded_below(&r, 255));
            int rc = gpu_card_read(wire, &d, &e);
            if (rc == 0) {
                gpu_card_write(&d, again);
                assert_memory_equal(wire, again, sizeof(wire));
            } else {
                assert_int_equal(rc, -EPROTO);
                assert_int_not_equal(e.text[0], '\0');
                n_refused++;
            }
            wire[i] = was;
        }
    }
    assert_true(n_refused > 20 * 133); /* the zeros behind, at least */
}

UNIT_TEST(another_version_is_a_number)
{
    uint8_t wire[GPU_CARD_BYTES];
    struct gpu_card d;

    memset(wire, 0xff, sizeof(wire));
    memcpy(wire, "\x01\0\0\0", 4);
    assert_int_equal(gpu_card_read(wire, &d, NULL), 0);
    assert_int_equal(d.version, 1);
    assert_int_equal(d.host_hash, 0);
}

/* --- the verdict --- */

enum { N = 4 };
static const uint32_t ranks[N] = {0, 1, 2, 5};
static const char *const hosts[N] = {"a", "a", "b", "b"};

struct members {
    struct gpu_card v[N];
};

static struct members good_members(void)
{
    struct members m;

    memset(&m, 0, sizeof(m));
    for (uint32_t i = 0; i < N; i++) {
        struct gpu_card *c = &m.v[i];

        c->version = GPU_CARD_VERSION;
        c->nccl = 22809;
        c->driver = 13000;
        c->uuid[0] = (uint8_t)(0xa0 + i);
        c->host_hash = i / 2 + 1;
        c->direct_bytes = 1000 + i;
        c->n_streams = (uint8_t)(9 - i);
        c->fusion_bytes = i == 2 ? 77 : 1u << 20;
        c->has_graphs = true;
        c->is_deterministic = i == 0;
        c->uses_graphs = i != 0;
    }
    return m;
}

static void assert_judged(const struct members *m, int code, const char *text)
{
    struct comm_terms t = {0};
    struct err e = ERR_INIT;

    assert_int_equal(gpu_cards_judge(m->v, ranks, hosts, N, &t, &e), code);
    assert_string_equal(e.text, text);
    assert_null(t.excluded);
}

UNIT_TEST(terms_are_member_0s_and_what_all_have)
{
    struct members m = good_members();
    struct comm_terms t;

    assert_int_equal(gpu_cards_judge(m.v, ranks, hosts, N, &t, NULL), 0);
    assert_int_equal(t.how, COMM_FRESH);
    assert_int_equal(t.direct_bytes, 1000);
    assert_int_equal(t.n_streams, 6);
    assert_int_equal(t.fusion_bytes, 77);
    assert_int_equal(t.fusion_member, 2);
    assert_true(t.is_deterministic);
    assert_false(t.uses_graphs);
    assert_false(t.registers);
    assert_null(t.excluded);

    m.v[0].registers = true;
    m.v[0].n_streams = 0; /* unset: one */
    assert_int_equal(gpu_cards_judge(m.v, ranks, hosts, 1, &t, NULL), 0);
    assert_true(t.registers);
    assert_int_equal(t.n_streams, 1);
}

/* Captured or not is the same on all members. */
UNIT_TEST(graphs_need_every_driver)
{
    struct members m = good_members();
    struct comm_terms t;

    m.v[0].uses_graphs = true;
    assert_int_equal(gpu_cards_judge(m.v, ranks, hosts, N, &t, NULL), 0);
    assert_true(t.uses_graphs);
    for (uint32_t i = 0; i < N; i++) {
        m.v[i].has_graphs = false;
        assert_int_equal(gpu_cards_judge(m.v, ranks, hosts, N, &t, NULL), 0);
        assert_false(t.uses_graphs);
        m.v[i].has_graphs = true;
    }
}

UNIT_TEST(the_first_error_that_applies_is_reported)
{
    struct members m = good_members();

    memcpy(m.v[2].uuid, m.v[3].uuid, sizeof(m.v[2].uuid));
    assert_judged(
        &m, -EBUSY,
        "ranks 2 and 5 use the same GPU GPU-a3000000-0000-0000-0000-000000000000 "
        "(host b); each rank needs its own (hvd.local_rank() is the usual choice)");
    (void)snprintf(m.v[2].gpu, sizeof(m.v[2].gpu), "NVIDIA A100-SXM4-40GB MIG 1g.5gb");
    assert_judged(
        &m, -EBUSY,
        "ranks 2 and 5 use the same GPU GPU-a3000000-0000-0000-0000-000000000000 "
        "(host b); of MIG instances a process sees the first of its "
        "CUDA_VISIBLE_DEVICES only: give each rank a list of one");
    m.v[2].nccl = 22105;
    assert_judged(
        &m, -ENOTSUP,
        "rank 0 (host a) has NCCL 2.28.9 and rank 2 (host b) 2.21.5; all need the "
        "same: install one, or name one by HVD_NCCL_LIB");
    (void)snprintf(m.v[3].problem, sizeof(m.v[3].problem), "no NVIDIA driver here");
    assert_judged(&m, -ENODEV,
                  "rank 5 (host b) cannot move tensors on GPUs: no NVIDIA driver here");
    (void)snprintf(m.v[1].problem, sizeof(m.v[1].problem), "p");
    assert_judged(&m, -ENODEV, "rank 1 (host a) cannot move tensors on GPUs: p");
    m.v[1].version = 1;
    assert_judged(
        &m, -EPROTO,
        "ranks 0 and 1 have cards of version 4 and 1: all need the same version of "
        "Ringmaster");
    for (uint32_t i = 0; i < N; i++)
        m.v[i].version = 5;
    assert_judged(&m, -EPROTO, "cards of version 5, not 4");
}

UNIT_TEST(one_gpu_for_two_is_sometimes_fine)
{
    struct members m = good_members();
    struct comm_terms t;

    /* another host (NCCL_HOSTID) may have a GPU of that number */
    memcpy(m.v[1].uuid, m.v[2].uuid, sizeof(m.v[1].uuid));
    assert_int_equal(gpu_cards_judge(m.v, ranks, hosts, N, &t, NULL), 0);
    /* instances of one GPU have uuids of their own */
    m.v[0].uuid[15] = 1;
    memcpy(m.v[1].uuid, m.v[0].uuid, sizeof(m.v[1].uuid));
    m.v[1].uuid[15] = 2;
    assert_int_equal(gpu_cards_judge(m.v, ranks, hosts, N, &t, NULL), 0);
    /* unknown is not equal */
    memset(m.v[0].uuid, 0, sizeof(m.v[0].uuid));
    memset(m.v[1].uuid, 0, sizeof(m.v[1].uuid));
    assert_int_equal(gpu_cards_judge(m.v, ranks, hosts, N, &t, NULL), 0);
    /* by consent of all */
    memcpy(m.v[2].uuid, m.v[3].uuid, sizeof(m.v[2].uuid));
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(gpu_cards_judge(m.v, ranks, hosts, N, &t, NULL), -EBUSY);
        m.v[i].may_share_gpu = true;
    }
    assert_int_equal(gpu_cards_judge(m.v, ranks, hosts, N, &t, NULL), 0);
}

/* --- shrink --- */

static struct members surviving_members(void)
{
    static const uint32_t was[N] = {1, 2, 4, 6};
    struct members m = good_members();

    for (uint32_t i = 0; i < N; i++) {
        memset(m.v[i].parked_id, 7, sizeof(m.v[i].parked_id));
        m.v[i].parked_rank = was[i];
        m.v[i].parked_size = 7;
    }
    return m;
}

static int judge_survivors(void *arg)
{
    const struct members *m = arg;
    struct comm_terms t = {0};
    int rc = gpu_cards_judge(m->v, ranks, hosts, N, &t, NULL);

    comm_terms_release(&t);
    comm_terms_release(&t);
    return rc;
}

static enum comm_how judged_how(const struct members *m)
{
    struct comm_terms t;

    assert_int_equal(gpu_cards_judge(m->v, ranks, hosts, N, &t, NULL), 0);
    enum comm_how ret = t.how;
    assert_int_equal(t.n_excluded > 0, ret == COMM_SHRINK);
    comm_terms_release(&t);
    return ret;
}

UNIT_TEST(survivors_shrink_what_they_kept)
{
    static const uint32_t missing[] = {0, 3, 5};
    struct members m = surviving_members();
    struct comm_terms t;

    assert_int_equal(gpu_cards_judge(m.v, ranks, hosts, N, &t, NULL), 0);
    assert_int_equal(t.how, COMM_SHRINK);
    assert_int_equal(t.n_excluded, 3);
    assert_memory_equal(t.excluded, missing, sizeof(missing));
    comm_terms_release(&t);
    torture(judge_survivors, &m);
    comm_terms_release(NULL);
}

UNIT_TEST(anything_else_is_fresh)
{
    struct members m = surviving_members();

    assert_int_equal(judged_how(&m), COMM_SHRINK);
    m.v[2].parked_rank = 2; /* two say the same */
    assert_int_equal(judged_how(&m), COMM_FRESH);
    m.v[2].parked_rank = 1; /* another order */
    assert_int_equal(judged_how(&m), COMM_FRESH);
    m = surviving_members();
    m.v[3].parked_id[0] = 8; /* another one */
    assert_int_equal(judged_how(&m), COMM_FRESH);
    m = surviving_members();
    m.v[3].parked_size = 8;
    assert_int_equal(judged_how(&m), COMM_FRESH);
    m = surviving_members();
    m.v[0].parked_size = 0; /* a newcomer */
    assert_int_equal(judged_how(&m), COMM_FRESH);
    m = surviving_members();
    m.v[3].parked_size = m.v[3].parked_rank = 0;
    assert_int_equal(judged_how(&m), COMM_FRESH);
    m = surviving_members();
    for (uint32_t i = 0; i < N; i++) { /* no member is missing */
        m.v[i].parked_rank = i;
        m.v[i].parked_size = N;
    }
    assert_int_equal(judged_how(&m), COMM_FRESH);
    m = surviving_members();
    for (uint32_t i = 0; i < N; i++)
        m.v[i].nccl = NCCL_PARKS - 1;
    assert_int_equal(judged_how(&m), COMM_FRESH);
}

UNIT_MAIN(NULL, NULL)
