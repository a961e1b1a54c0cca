/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed allreduces of device memory, on the fakes: bits, state between steps,
 * and bytes on the wire. hvdgpu_codec_test checks what is refused. */
#include <math.h>

#include "tests/unit/gpu_codec.h"

UNIT_TEST(int8_has_the_bits_of_the_host_s)
{
    static const struct coding_case cases[] = {
        {.text = "int8", .has_nans = true, .n_rounds = 30},
        {.text = "int8:block=256", .n_rounds = 12},
        {.text = "int8:block=1024,feedback=0", .n_rounds = 8},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        run_coding(&cases[i], (struct gpu_case){.n = 2});
        run_coding(&cases[i], (struct gpu_case){.n = 3});
        run_coding(&cases[i], (struct gpu_case){.n = 5, .is_deterministic = i == 1});
    }
}

UNIT_TEST(halves_are_ordinary_batches_of_half_the_bytes)
{
    static const struct coding_case cases[] = {
        {.text = "fp16", .slack = 0.05, .slack_bf16 = 0.4, .n_rounds = 20},
        {.text = "bf16", .slack = 0.4, .slack_bf16 = 0.4, .n_rounds = 20},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        run_coding(&cases[i], (struct gpu_case){.n = 2});
        run_coding(&cases[i], (struct gpu_case){.n = 3, .is_deterministic = i == 1});
        run_coding(&cases[i], (struct gpu_case){.n = 2, .uses_graphs = true});
    }
}

UNIT_TEST(the_bound_makes_what_was_used_least_give_way)
{
    static const struct coding_case k = {
        .text = "int8", .n_rounds = 50, .is_alone = true, .max_bytes = 60000};

    run_coding(&k, (struct gpu_case){.n = 2});
    run_coding(&k, (struct gpu_case){.n = 3});
}

/* --- on the wire --- */

static atomic_ullong n_sent; /* by all members, in bytes */
static struct nccl_api real;

static int
count_gather(const void *in, void *out, size_t n, int dtype, nccl_comm nc, cu_stream s)
{
    n_sent += n;
    return real.all_gather(in, out, n, dtype, nc, s);
}

static int
count_send(const void *in, size_t n, int dtype, int peer, nccl_comm nc, cu_stream s)
{
    n_sent += n;
    return real.send(in, n, dtype, peer, nc, s);
}

static int count_reduce(
    const void *in, void *out, size_t n, int dtype, int op, nccl_comm nc, cu_stream s)
{
    n_sent += n * (dtype == NCCL_F16 || dtype == NCCL_BF16 ? 2 : 4);
    return real.all_reduce(in, out, n, dtype, op, nc, s);
}

/* What one batch of a 80 x 80 tensor sends. */
static int check_call_counts(struct coder *c,
                             struct party *p,
                             unsigned k,
                             const char *text,
                             uint64_t want,
                             struct err *err)
{
    const size_t bytes = CODED_ROOM;
    AUTOFREE uint8_t *arena = mem_zalloc(bytes);
    struct coded b = one_tensor;

    if (coded_plan(c, &b, text))
        return err_set(err, -EINVAL, "plan");
    coded_fill(c, &b, arena);
    meet_all(p, 2 * k);
    if (c->me == 0)
        n_sent = 0;
    meet_all(p, 2 * k + 1);
    int rc = run_gpu(c, &b, arena, arena, err);
    rc = rc ? rc : are_equal(c, &b, arena, err); /* all have sent */
    return rc || n_sent == want
               ? rc
               : err_set(err, -EIO, "%s: %llu bytes, not %llu", text,
                         (unsigned long long)n_sent, (unsigned long long)want);
}

static int wire_body(struct backend *meeting, uint32_t me, struct party *p, char *said)
{
    const uint64_t block = 4 + 256, n = p->size;
    struct err err = ERR_INIT;
    struct nccl_api counted;
    struct coder c;

    if (coder_open(&c, meeting, me, said))
        return 1;
    if (me == 0)
        real = *c.d->nccl;
    counted = *c.d->nccl;
    counted.all_gather = count_gather;
    counted.send = count_send;
    counted.all_reduce = count_reduce;
    meet_all(p, 1);
    int rc = launcher_drain(&c.d->launcher, clock_now_ns() + 20 * NS_PER_S);
    c.d->nccl = &counted; /* the launcher has nothing to do now */
    rc = rc ? rc : check_call_counts(&c, p, 1, "fp16", n * 6400 * 2, &err);
    if (!rc) /* 25 blocks; shards of the allgather are as long as the longest */
        rc = check_call_counts(
            &c, p, 2, "int8:block=256",
            n == 2 ? n * 25 * block : (n - 1) * 25 * block + n * 5 * block, &err);
    if (rc)
        (void)SAYS("rank %u of %u: %s", me, c.n, err.text);
    return coder_close(&c, rc, said);
}

UNIT_TEST(as_many_bytes_travel_as_planned)
{
    static const struct coding_case k = {.text = ""};

    run_coding(&k, (struct gpu_case){.n = 2, .row_body = wire_body});
    run_coding(&k, (struct gpu_case){.n = 5, .row_body = wire_body});
}

/* --- many on their way --- */

UNIT_TEST(many_on_their_way_keep_the_order_of_what_is_kept)
{
    static const struct coding_case one = {.text = "int8"},
                                    two = {.text = "int8", .max_bytes = 30000};

    run_queues(&one, 2);
    run_coding(&two, (struct gpu_case){.n = 2, .row_body = queue_body});
    run_coding(&two, (struct gpu_case){.n = 2, .n_streams = 3, .row_body = queue_body});
}

/* --- sets that go --- */

static int
forget_body(struct backend *meeting, uint32_t me, struct party *p, char *said)
{
    struct err err = ERR_INIT;
    struct coder c;
    struct coded b = one_tensor;

    (void)p;
    if (coder_open(&c, meeting, me, said))
        return 1;
    row->state_forget_set(c.d, 1); /* there is nothing: fine */
    int rc = coded_plan(&c, &b, "int8");
    for (int k = 0; k < 8 && !rc; k++) {
        b.set = k % 2;
        rc = one_batch(&c, &b, &err);
        if (k == 4) { /* what set 0 keeps is not touched */
            row->state_forget_set(c.d, 1);
            codec_state_forget_set(c.state, 1);
            if (gcodec_states_bytes(c.d->codecs) != b.plans[0].state_bytes)
                rc = err_set(&err, -EIO, "%llu bytes are kept",
                             (unsigned long long)gcodec_states_bytes(c.d->codecs));
        }
    }
    if (rc)
        (void)SAYS("rank %u: %s", me, err.text);
    return coder_close(&c, rc, said);
}

UNIT_TEST(a_set_that_goes_takes_what_it_kept)
{
    static const struct coding_case k = {.text = "int8"};

    run_coding(&k, (struct gpu_case){.n = 2, .row_body = forget_body});
    run_coding(&k, (struct gpu_case){.n = 3, .row_body = forget_body});
}

UNIT_MAIN(NULL, NULL)
