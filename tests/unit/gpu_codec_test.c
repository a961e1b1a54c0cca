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

    run_codings(cases, ARRAY_LEN(cases), 1);
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

/* Of all members so far, in bytes. */
static uint64_t n_sent(uint32_t n_members)
{
    uint64_t sum = 0;

    for (uint32_t r = 0; r < n_members; r++) {
        char *log = nccl_log_of(r), *at = NULL;

        for (char *l = strtok_r(log, "\n", &at); l; l = strtok_r(NULL, "\n", &at)) {
            const char *of = strstr(l, " of ");

            if (of && !strstr(l, "Recv"))
                sum += strtoull(of + 4, NULL, 10) * (strstr(l, " f16,") ? 2 : 1);
        }
        free(log);
    }
    return sum;
}

/* What one batch of a 80 x 80 tensor sends. */
static int sent_check(
    struct coder *c, struct party *p, const char *text, uint64_t want, char *said)
{
    AUTOFREE uint8_t *arena = mem_zalloc(CODED_ROOM);
    struct coded b = one_tensor;
    struct err err = ERR_INIT;
    const uint64_t before = n_sent(c->n);

    meet_all(p, strcmp(text, "fp16") == 0 ? 1 : 2);
    int rc = coded_plan(c, &b, text);
    coded_fill(c, &b, arena);
    rc = rc ? rc : run_gpu(c, &b, arena, arena, &err);
    rc = rc ? rc : are_equal(c, &b, arena, &err); /* all have sent */
    const uint64_t n = n_sent(c->n) - before;
    return rc || n != want
               ? SAYS("rank %u of %u, %s: %llu bytes, not %llu: %s", c->me, c->n, text,
                      (unsigned long long)n, (unsigned long long)want, err.text)
               : 0;
}

static int wire_body(struct coder *c, struct party *p, char *said)
{
    const uint64_t block = 4 + 256, n = p->size;

    /* 25 blocks; shards of the allgather are as long as the longest */
    return sent_check(c, p, "fp16", n * 6400 * 2, said)
           || sent_check(c, p, "int8:block=256",
                         n == 2 ? n * 25 * block : (n - 1) * 25 * block + n * 5 * block,
                         said);
}

UNIT_TEST(as_many_bytes_travel_as_planned)
{
    static const struct coding_case k = {.text = "", .body = wire_body};

    run_coding(&k, (struct gpu_case){.n = 2});
    run_coding(&k, (struct gpu_case){.n = 5});
}

/* --- many on their way --- */

UNIT_TEST(many_on_their_way_keep_the_order_of_what_is_kept)
{
    static const struct coding_case one = {.text = "int8", .body = queue_body},
                                    two = {.text = "int8",
                                           .max_bytes = 30000,
                                           .body = queue_body};

    run_queues(&one, 2);
    run_coding(&two, (struct gpu_case){.n = 2});
    run_coding(&two, (struct gpu_case){.n = 2, .n_streams = 3});
}

/* --- sets that go --- */

static int forget_body(struct coder *c, struct party *p, char *said)
{
    struct err err = ERR_INIT;
    struct coded b = one_tensor;

    row->state_forget_set(c->d, 1); /* there is nothing: fine */
    int rc = coded_plan(c, &b, "int8");
    for (int k = 0; k < 8 && !rc; k++) {
        b.set = k % 2;
        rc = one_batch(c, &b, &err);
        if (k == 4) { /* what set 0 keeps is not touched */
            row->state_forget_set(c->d, 1);
            codec_state_forget_set(c->state, 1);
            if (gcodec_states_bytes(c->d->codecs) != b.plans[0].state_bytes)
                rc = err_set(&err, -EIO, "%llu bytes are kept",
                             (unsigned long long)gcodec_states_bytes(c->d->codecs));
        }
    }
    return rc ? SAYS("rank %u: %s", c->me, err.text) : 0;
}

UNIT_TEST(a_set_that_goes_takes_what_it_kept)
{
    static const struct coding_case k = {.text = "int8", .body = forget_body};

    run_coding(&k, (struct gpu_case){.n = 2});
    run_coding(&k, (struct gpu_case){.n = 3});
}

UNIT_MAIN(NULL, NULL)
