/* SPDX-License-Identifier: Apache-2.0 */
/* Wire form: what is written is read back; what is cut or bent is refused, never read
 * beyond. */
#include "runtime/base/mem.h"
#include "runtime/core/message.h"
#include "runtime/core/pair.h"
#include "tests/unit/unit.h"

static struct tensor_request request_sample(void)
{
    struct tensor_request r = {.coll = COLL_BROADCAST,
                               .dtype = DT_BF16,
                               .op = OP_AVERAGE,
                               .root = 70000,
                               .process_set = 3,
                               .prescale = 0.1,
                               .postscale = -2e300,
                               .place = PLACE_CUDA,
                               .region = 255,
                               .ndim = 3,
                               .shape = {5, 0, 1ll << 40}};

    (void)snprintf(r.name, sizeof(r.name), "layer.1/weight");
    return r;
}

static struct tensor_request sample_set(void)
{
    static const uint8_t ranks[] = {0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0, 0};
    struct tensor_request r = {
        .coll = COLL_SET_ADD, .n_set = 3, .set = ranks, .name = "s"};

    return r;
}

static struct tensor_request sample_transfer(void)
{
    struct tensor_request r = {.coll = COLL_SENDRECV,
                               .dtype = DT_I8,
                               .root = 70,
                               .process_set = pair_of(3, 70),
                               .ndim = 1,
                               .shape = {4},
                               .name = "x (70 -> 3)"};

    return r;
}

static void assert_same(const struct tensor_request *a, const struct tensor_request *b)
{
    struct tensor_request x = *a, y = *b;

    assert_int_equal(x.n_set, y.n_set);
    for (uint32_t i = 0; i < x.n_set; i++)
        assert_int_equal(request_set_rank(&x, i), request_set_rank(&y, i));
    x.set = y.set = NULL;
    assert_memory_equal(&x, &y, sizeof(x));
}

UNIT_TEST(what_goes_up_comes_back_equal)
{
    static const uint64_t words[] = {1, 0, 0x8000000000000001ull};
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct up want[] = {
        {.kind = UP_REQUEST, .req = request_sample()},
        {.kind = UP_HITS, .first = 128, .n_words = ARRAY_LEN(words)},
        {.kind = UP_REQUEST, .req = {.coll = COLL_BARRIER, .name = "z"}},
        {.kind = UP_LEAVE, .plan = 7, .n_steps = 12},
        {.kind = UP_REQUEST, .req = sample_set()},
        {.kind = UP_REQUEST, .req = sample_transfer()},
    };
    struct message_reader in;
    struct up got;

    memset(want[0].req.name, 'n', sizeof(want[0].req.name) - 1); /* the longest name */
    strbuf_init(&b, MESSAGE_MAX_BYTES);
    message_begin_up(&b, 1ull << 40);
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        const struct up *w = &want[i];

        if (w->kind == UP_REQUEST)
            message_put_request(&b, &w->req);
        else if (w->kind == UP_HITS)
            message_put_hits(&b, w->first, words, w->n_words);
        else
            message_put_leave(&b, w->plan, w->n_steps);
    }
    assert_int_equal(strbuf_status(&b), 0);
    assert_int_equal(message_open(&in, b.p, b.n, NULL), 0);
    assert_int_equal(in.kind, MESSAGE_UP);
    assert_int_equal(in.n_seen, 1ull << 40);
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        got = (struct up){.kind = UP_REQUEST};
        assert_int_equal(message_next_up(&in, &got, NULL), 1);
        assert_int_equal(got.kind, want[i].kind);
        assert_same(&got.req, &want[i].req);
        assert_true(got.first == want[i].first && got.n_words == want[i].n_words);
        assert_true(got.plan == want[i].plan && got.n_steps == want[i].n_steps);
        for (uint32_t k = 0; k < got.n_words; k++)
            assert_int_equal(up_word(&got, k), words[k]);
    }
    assert_int_equal(message_next_up(&in, &got, NULL), 0);
}

UNIT_TEST(what_comes_down_comes_back_equal)
{
    static const uint64_t rows[] = {1, 0, 77};
    static const uint8_t slots[] = {5, 0, 0, 0, 1, 2, 0, 0};
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct down want[] = {
        {.kind = DOWN_RUN,
         .fuse_next = true,
         .has_req = true,
         .slot = 9,
         .req = request_sample(),
         .n_counts = 3,
         .counts = rows},
        {.kind = DOWN_RUN, .slot = 3},
        {.kind = DOWN_FAIL,
         .has_req = true,
         .slot = SLOT_NONE,
         .req = request_sample(),
         .text = "Mismatched data types"},
        {.kind = DOWN_FREEZE,
         .plan = 4,
         .fusion_bytes = 1ull << 33,
         .n_slots = 2,
         .slots = slots},
        {.kind = DOWN_LEAVE, .plan = 4},
        {.kind = DOWN_PAIR, .pair = pair_of(9, 8)},
        {.kind = DOWN_TUNE,
         .tuning = {1ull << 40, TUNING_GATHER_MAX_NS, 1ull << 33, 7}},
    };
    struct message_reader in;
    struct down got;
    uint64_t counts[3];

    want[0].req.coll = COLL_ALLGATHER;
    strbuf_init(&b, MESSAGE_MAX_BYTES);
    message_begin_down(&b);
    for (size_t i = 0; i < ARRAY_LEN(want); i++)
        message_put_down(&b, &want[i]);
    assert_int_equal(message_open(&in, b.p, b.n, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        const struct down *w = &want[i];

        got = (struct down){.slot = w->slot};
        assert_int_equal(message_next_down(&in, counts, 3, &got, NULL), 1);
        assert_true(got.kind == w->kind && got.fuse_next == w->fuse_next
                    && got.has_req == w->has_req && got.slot == w->slot
                    && got.plan == w->plan && got.pair == w->pair
                    && got.fusion_bytes == w->fusion_bytes && got.n_slots == w->n_slots
                    && got.n_counts == w->n_counts);
        assert_same(&got.req, &w->req);
        assert_string_equal(got.text, w->text);
        assert_memory_equal(&got.tuning, &w->tuning, sizeof(w->tuning));
        if (got.n_counts > 0)
            assert_memory_equal(got.counts, rows, sizeof(rows));
        if (got.n_slots > 0)
            assert_true(down_slot(&got, 0) == 5 && down_slot(&got, 1) == 513);
    }
    assert_int_equal(message_next_down(&in, counts, 3, &got, NULL), 0);
    /* the same for a world of another size is refused: counts would overflow the
     * caller's array */
    assert_int_equal(message_open(&in, b.p, b.n, NULL), 0);
    assert_int_equal(message_next_down(&in, counts, 2, &got, NULL), -EBADMSG);
}

/* Reads all of n bytes in a block of their own, so that ASan sees a read beyond. */
static int read_all(const char *p, size_t n, struct err *err)
{
    AUTOFREE uint8_t *copy = mem_alloc(n > 0 ? n : 1);
    struct message_reader in;
    uint64_t counts[3];
    struct down d;
    struct up u;
    int rc;

    assert_non_null(copy);
    memcpy(copy, p, n);
    rc = message_open(&in, copy, n, err);
    if (rc < 0)
        return rc;
    do {
        rc = in.kind == MESSAGE_UP ? message_next_up(&in, &u, err)
                                   : message_next_down(&in, counts, 3, &d, err);
    } while (rc > 0);
    return rc;
}

/* Every length but those at which an entry ends. */
static void
assert_cuts_refused(const struct strbuf *b, const size_t *ends, size_t n_ends)
{
    for (size_t n = 0, e = 0; n < b->n; n++) {
        struct err err = ERR_INIT;
        bool is_end = e < n_ends && n == ends[e];

        assert_int_equal(read_all(b->p, n, &err), is_end ? 0 : -EBADMSG);
        if (!is_end)
            assert_non_null(strstr(err.text, "control message: bad"));
        e += is_end;
    }
}

UNIT_TEST(every_cut_is_refused)
{
    static const uint8_t slots[8] = {0};
    static const uint64_t word = 1;
    CLEANUP(strbuf_release) struct strbuf up = {0}, down = {0};
    struct tensor_request a = request_sample(), set = sample_set();
    struct down d[5] = {
        {.kind = DOWN_RUN, .has_req = true, .slot = 1},
        {.kind = DOWN_FAIL, .has_req = true, .slot = SLOT_NONE, .text = "why"},
        {.kind = DOWN_FREEZE, .plan = 1, .n_slots = 2, .slots = slots},
        {.kind = DOWN_PAIR, .pair = PAIR_BIT},
        {.kind = DOWN_TUNE, .tuning = {1, 2, 3, 4}}};
    size_t ends[8], n_ends = 0;

    strbuf_init(&up, MESSAGE_MAX_BYTES);
    strbuf_init(&down, MESSAGE_MAX_BYTES);
    message_begin_up(&up, 3);
    ends[n_ends++] = up.n;
    message_put_request(&up, &a);
    ends[n_ends++] = up.n;
    message_put_hits(&up, 0, &word, 1);
    ends[n_ends++] = up.n;
    message_put_request(&up, &set);
    assert_cuts_refused(&up, ends, n_ends);
    message_begin_down(&down);
    n_ends = 0;
    for (size_t i = 0; i < ARRAY_LEN(d); i++) {
        ends[n_ends++] = down.n;
        d[i].req = a;
        message_put_down(&down, &d[i]);
    }
    assert_cuts_refused(&down, ends, n_ends);
}

UNIT_TEST(bent_fields_are_refused)
{
    enum { AT = 12 + 4 }; /* the request behind header and kind */
    static const struct {
        size_t at;
        uint8_t value;
    } bend[] = {
        {12, 9}, /* no such entry */
        {AT, COLL_COUNT},
        {AT + 1, DT_COUNT},
        {AT + 2, OP_COUNT},
        {AT + 3, TENSOR_MAX_DIMS + 1},
        {AT + 4, PLACE_COUNT},
        {AT + 4, PLACE_HOST}, /* in a registered buffer */
        {AT, COLL_REGISTER},  /* likewise */
        {AT + 14, 1},         /* a group size without a group */
        {AT + 18, 1},         /* a process set where none belongs */
        {AT + 22, 1},         /* a group without a size */
        {AT + 53, 0x80},      /* a negative dimension */
        {AT + 61, 0x7f},      /* a product beyond 2^62 */
        {AT + 70, 0},         /* length of the name 0: the name's bytes are no entry */
        {AT + 72, 0},         /* a NUL inside the name */
    };
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct tensor_request a = request_sample();

    a.shape[1] = 3;
    a.shape[2] = 2;
    strbuf_init(&b, MESSAGE_MAX_BYTES);
    message_begin_up(&b, 0);
    message_put_request(&b, &a);
    assert_int_equal(read_all(b.p, b.n, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(bend); i++) {
        char old = b.p[bend[i].at];

        b.p[bend[i].at] = (char)bend[i].value;
        assert_int_equal(read_all(b.p, b.n, NULL), -EBADMSG);
        b.p[bend[i].at] = old;
    }
}

/* Why a rank has no GPU goes with memory of the host, registered buffers are on GPUs. A
 * pair travels in SENDRECV alone, whose root is in it. The ranks of a set ascend; all
 * ranks add it, or its members do. */
UNIT_TEST(requests_whose_fields_contradict_are_refused)
{
    static const uint8_t ascending[] = {1, 0, 0, 0, 2, 0, 0, 0},
                         twice[] = {1, 0, 0, 0, 1, 0, 0, 0};
    static const struct {
        struct tensor_request q;
        int want;
    } rows[] = {
        {{.coll = COLL_ALLREDUCE, .no_gpu = "no driver"}, 0},
        {{.coll = COLL_ALLREDUCE, .place = PLACE_CUDA, .no_gpu = "-"}, -EBADMSG},
        {{.coll = COLL_ALLREDUCE, .place = PLACE_CUDA, .region = 255}, 0},
        {{.coll = COLL_ALLREDUCE, .region = 1}, -EBADMSG},
        {{.coll = COLL_REGISTER, .place = PLACE_CUDA}, 0},
        {{.coll = COLL_REGISTER, .place = PLACE_CUDA, .root = 255}, 0},
        {{.coll = COLL_REGISTER, .place = PLACE_CUDA, .root = 256}, -EBADMSG},
        {{.coll = COLL_REGISTER, .place = PLACE_CUDA, .region = 1}, -EBADMSG},
        {{.coll = COLL_REGISTER}, -EBADMSG},
        {{.coll = COLL_SENDRECV, .process_set = PAIR_BIT}, 0},
        {{.coll = COLL_SENDRECV, .process_set = PAIR_BIT, .root = 1}, 0},
        {{.coll = COLL_SENDRECV, .process_set = PAIR_BIT, .root = 2}, -EBADMSG},
        {{.coll = COLL_SENDRECV}, -EBADMSG},
        {{.coll = COLL_SENDRECV, .process_set = 1}, -EBADMSG},
        {{.coll = COLL_BROADCAST, .process_set = PAIR_BIT}, -EBADMSG},
        {{.coll = COLL_ALLREDUCE, .process_set = PAIR_BIT}, -EBADMSG},
        {{.coll = COLL_SET_ADD, .n_set = 2, .set = twice}, -EBADMSG},
        {{.coll = COLL_SET_ADD, .n_set = 2, .set = ascending, .root = SET_BY_ALL}, 0},
        {{.coll = COLL_SET_ADD, .n_set = 2, .set = ascending, .root = SET_BY_MEMBERS},
         0},
        {{.coll = COLL_SET_ADD, .n_set = 2, .set = ascending, .root = 2}, -EBADMSG},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(strbuf_release) struct strbuf b = {0};
        struct tensor_request q = rows[i].q;
        struct message_reader in;
        struct up got;

        (void)snprintf(q.name, sizeof(q.name), "x");
        strbuf_init(&b, MESSAGE_MAX_BYTES);
        message_begin_up(&b, 0);
        message_put_request(&b, &q);
        assert_int_equal(read_all(b.p, b.n, NULL), rows[i].want);
        if (rows[i].want < 0)
            continue;
        assert_int_equal(message_open(&in, b.p, b.n, NULL), 0);
        assert_int_equal(message_next_up(&in, &got, NULL), 1);
        assert_same(&got.req, &q);
    }
}

UNIT_TEST(another_buffer_is_another_tensor)
{
    struct tensor_request a = request_sample(), b = a;

    assert_true(request_same(&a, &b));
    b.region = 0; /* a bit of the cache would stand for the wrong one */
    assert_false(request_same(&a, &b));
}

UNIT_TEST(answers_out_of_range_are_refused)
{
    static const struct {
        struct down d;
        const char *why; /* NULL: it is read */
    } rows[] = {
        {{.kind = DOWN_PAIR, .pair = PAIR_BIT}, NULL},
        {{.kind = DOWN_PAIR, .pair = 0}, "bad pair"},
        {{.kind = DOWN_PAIR, .pair = 1}, "bad pair"},
        {{.kind = DOWN_TUNE, .tuning.gather_ns = TUNING_GATHER_MAX_NS + 1},
         "bad tuning"},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(strbuf_release) struct strbuf b = {0};
        struct err err = ERR_INIT;

        strbuf_init(&b, MESSAGE_MAX_BYTES);
        message_begin_down(&b);
        message_put_down(&b, &rows[i].d);
        assert_int_equal(read_all(b.p, b.n, &err), rows[i].why ? -EBADMSG : 0);
        assert_true(!rows[i].why || strstr(err.text, rows[i].why));
    }
}

UNIT_TEST(another_version_is_named)
{
    static const uint8_t v9[] = {9, 1, 0, 0}, kind9[] = {MESSAGE_VERSION, 9, 0, 0};
    struct message_reader in;
    struct err err = ERR_INIT;

    assert_int_equal(message_open(&in, v9, sizeof(v9), &err), -EPROTO);
    assert_string_equal(
        err.text, "control message: version 9 of another rank, this library uses 8");
    assert_int_equal(message_open(&in, kind9, sizeof(kind9), &err), -EBADMSG);
}

UNIT_TEST(sizes_are_checked_before_they_are_multiplied)
{
    struct tensor_request r = {
        .dtype = DT_F64, .ndim = 2, .shape = {1ll << 31, 1ll << 31}};
    struct err err = ERR_INIT;
    uint64_t count, bytes;

    assert_int_equal(request_size(&r, &count, &bytes, &err), -EINVAL);
    assert_string_equal(err.text, "shape: more than 2^62 bytes");
    r.shape[0] = -1;
    assert_int_equal(request_size(&r, &count, &bytes, &err), -EINVAL);
    assert_string_equal(err.text, "shape: dimension 0 is -1, must be >= 0");
    r.ndim = 0;
    assert_int_equal(request_size(&r, &count, &bytes, &err), 0);
    assert_int_equal(count, 1);
    assert_int_equal(bytes, 8);
}

UNIT_MAIN(NULL, NULL)
