/* SPDX-License-Identifier: Apache-2.0 */
/* The webhook's queue, its texts, and what an administrator may write for it. */
#include "tests/unit/unit.h"

#include "operator/core/webhook_plan.h"
#include "operator/doc/json.h"
#include "runtime/base/mem.h"
#include "tests/unit/torture.h"

#define S 1000000000ull

/* --- the queue -------------------------------------------------------------------- */

static struct webhook_message *
message_make(const char *uid, const char *id, enum job_state to)
{
    struct webhook_message *m = mem_zalloc(sizeof(*m));

    assert_non_null(m);
    (void)snprintf(m->uid, sizeof(m->uid), "%s", uid);
    (void)snprintf(m->id, sizeof(m->id), "%s", id);
    m->to = to;
    return m;
}

static void message_hold(struct webhook_queue *q,
                         const char *uid,
                         const char *id,
                         enum job_state to,
                         uint64_t now_ns)
{
    assert_false(webhook_queue_hold(q, message_make(uid, id, to), now_ns));
}

static void
message_add(struct webhook_queue *q, const char *uid, const char *id, uint64_t now_ns)
{
    message_hold(q, uid, id, STATE_RUNNING, now_ns);
    webhook_queue_confirm(q, uid, STATE_RUNNING, now_ns);
}

/* The id of what is taken; "" if nothing is. */
static const char *message_take(struct webhook_queue *q, uint64_t now_ns)
{
    const struct webhook_message *m = webhook_queue_take(q, now_ns);

    return m ? m->id : "";
}

static struct webhook_message *message_find(const struct webhook_queue *q,
                                            const char *id)
{
    struct webhook_message *m = q->first;

    while (m && strcmp(m->id, id) != 0)
        m = m->next;
    assert_non_null(m);
    return m;
}

static enum webhook_end
message_answer(struct webhook_queue *q, const char *id, int status, uint64_t now_ns)
{
    uint64_t delay_ns;

    return webhook_queue_answer(q, message_find(q, id), status, 0, now_ns, &delay_ns);
}

UNIT_TEST(a_message_is_sent_once_its_write_is_confirmed)
{
    struct webhook_queue q = {0};

    message_hold(&q, "u", "a", STATE_RUNNING, 1);
    assert_string_equal(message_take(&q, 2), "");
    webhook_queue_confirm(&q, "other", STATE_RUNNING, 3);
    webhook_queue_confirm(&q, "u", STATE_FAILED, 3);
    assert_string_equal(message_take(&q, 3), "");
    webhook_queue_confirm(&q, "u", STATE_RUNNING, 4);
    assert_int_equal(webhook_queue_next_ns(&q), 4);
    assert_string_equal(message_take(&q, 4), "a");
    assert_string_equal(message_take(&q, 5), "");
    webhook_queue_confirm(&q, "u", STATE_RUNNING, 5); /* it is not sent again */
    assert_int_equal(message_answer(&q, "a", 204, 6), WEBHOOK_DELIVERED);
    assert_int_equal(q.n + q.n_held + q.n_sending, 0);
    assert_int_equal(webhook_queue_next_ns(&q), UINT64_MAX);
}

UNIT_TEST(of_held_messages_the_state_of_the_job_decides)
{
    struct webhook_queue q = {0};

    message_hold(&q, "u", "a", STATE_RUNNING, 1); /* its answer was lost */
    message_hold(&q, "u", "b", STATE_FAILED,
                 2); /* from an old copy of the job: refused */
    message_hold(&q, "v", "c", STATE_FAILED, 2);
    webhook_queue_confirm(&q, "u", STATE_RUNNING, 3);
    assert_int_equal(q.n, 2); /* b is forgotten */
    assert_string_equal(message_take(&q, 3), "a");
    message_hold(&q, "v", "d", STATE_FAILED, 4); /* the same, tried once more */
    assert_int_equal(q.n, 2);
    webhook_queue_confirm(&q, "v", STATE_FAILED, 5);
    assert_string_equal(message_take(&q, 5), "d");
    webhook_queue_release(&q);
    assert_int_equal(q.n, 0);
}

UNIT_TEST(a_held_message_is_forgotten_after_an_hour)
{
    struct webhook_queue q = {0};

    message_hold(&q, "u", "a", STATE_RUNNING, 1);
    assert_int_equal(webhook_queue_next_ns(&q), 1 + WEBHOOK_LIFE_NS);
    assert_string_equal(message_take(&q, WEBHOOK_LIFE_NS), "");
    assert_int_equal(q.n, 1);
    assert_string_equal(message_take(&q, WEBHOOK_LIFE_NS + 1), "");
    assert_int_equal(q.n, 0);
}

UNIT_TEST(messages_of_a_job_are_sent_one_after_the_other)
{
    struct webhook_queue q = {0};

    message_add(&q, "u", "a", 1);
    message_add(&q, "u", "b", 2);
    message_add(&q, "v", "c", 3);
    assert_string_equal(message_take(&q, 10), "a");
    assert_string_equal(message_take(&q, 10), "c");
    assert_string_equal(message_take(&q, 10), "");
    assert_int_equal(webhook_queue_next_ns(&q), UINT64_MAX);
    assert_int_equal(message_answer(&q, "a", 500, 10), WEBHOOK_RETRIED);
    assert_string_equal(message_take(&q, 10), ""); /* b does not overtake */
    assert_string_equal(message_take(&q, 11 * S), "a");
    assert_int_equal(message_answer(&q, "a", 404, 11 * S), WEBHOOK_REFUSED);
    assert_string_equal(message_take(&q, 11 * S), "b");
    assert_int_equal(message_answer(&q, "b", 200, 12 * S), WEBHOOK_DELIVERED);
    assert_int_equal(message_answer(&q, "c", 200, 12 * S), WEBHOOK_DELIVERED);
    assert_int_equal(q.n, 0);
    assert_null(q.last);
}

UNIT_TEST(only_some_are_sent_at_once)
{
    struct webhook_queue q = {0};
    char name[16];

    for (unsigned i = 0; i <= WEBHOOK_AT_ONCE; i++) {
        (void)snprintf(name, sizeof(name), "m%u", i);
        message_add(&q, name, name, 1 + i);
    }
    for (unsigned i = 0; i < WEBHOOK_AT_ONCE; i++)
        assert_int_equal(message_take(&q, 100)[1],
                         '0' + i); /* those due longest first */
    assert_string_equal(message_take(&q, 100), "");
    assert_int_equal(webhook_queue_next_ns(&q), UINT64_MAX);
    (void)message_answer(&q, "m1", 200, 100);
    assert_string_equal(message_take(&q, 100), "m4");
    webhook_queue_release(&q);
}

UNIT_TEST(a_full_queue_drops_the_oldest_that_is_not_being_sent)
{
    struct webhook_queue q = {0};
    char name[16];

    for (unsigned i = 0; i < WEBHOOK_MAX_QUEUE; i++) {
        (void)snprintf(name, sizeof(name), "m%u", i);
        message_add(&q, i < 3 ? "u" : name, name, 1 + i);
    }
    assert_string_equal(message_take(&q, 1), "m0");
    assert_true(webhook_queue_hold(&q, message_make("new", "n", STATE_FAILED), 5));
    assert_int_equal(q.n, WEBHOOK_MAX_QUEUE);
    assert_string_equal(q.first->id, "m0");
    assert_string_equal(q.first->next->id, "m2");
    (void)message_answer(&q, "m0", 200, 6);
    assert_string_equal(message_take(&q, 6), "m2"); /* the next of its job */
    webhook_queue_release(&q);
}

UNIT_TEST(what_the_receiver_answers_decides)
{
    static const struct {
        int status;
        enum webhook_end end;
    } rows[] = {
        {200, WEBHOOK_DELIVERED}, {202, WEBHOOK_DELIVERED}, {299, WEBHOOK_DELIVERED},
        {0, WEBHOOK_RETRIED},     {408, WEBHOOK_RETRIED},   {425, WEBHOOK_RETRIED},
        {429, WEBHOOK_RETRIED},   {500, WEBHOOK_RETRIED},   {503, WEBHOOK_RETRIED},
        {302, WEBHOOK_REFUSED},   {400, WEBHOOK_REFUSED},   {401, WEBHOOK_REFUSED},
        {404, WEBHOOK_REFUSED},   {410, WEBHOOK_REFUSED},   {422, WEBHOOK_REFUSED},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct webhook_queue q = {0};

        message_add(&q, "u", "a", 1);
        (void)webhook_queue_take(&q, 1);
        assert_int_equal(message_answer(&q, "a", rows[i].status, 2), rows[i].end);
        assert_int_equal(q.n, rows[i].end == WEBHOOK_RETRIED);
        assert_int_equal(q.n_sending, 0);
        webhook_queue_release(&q);
    }
}

UNIT_TEST(delays_double_up_to_five_minutes_and_end_after_an_hour)
{
    struct webhook_queue q = {0};
    uint64_t now_ns = 1, delay_ns, longest_ns = WEBHOOK_FIRST_NS;
    enum webhook_end end;

    message_add(&q, "u", "a", now_ns);
    for (unsigned n = 0;; n++) {
        struct webhook_message *m = webhook_queue_take(&q, now_ns);

        assert_true(m && n < 100);
        end = webhook_queue_answer(&q, m, 500, 0, now_ns, &delay_ns);
        if (end != WEBHOOK_RETRIED)
            break;
        assert_true(delay_ns >= longest_ns / 2 && delay_ns <= longest_ns);
        assert_int_equal(webhook_queue_next_ns(&q), now_ns + delay_ns);
        assert_null(webhook_queue_take(&q, now_ns + delay_ns - 1));
        now_ns += delay_ns;
        longest_ns *= 2;
        if (longest_ns > WEBHOOK_LONGEST_NS)
            longest_ns = WEBHOOK_LONGEST_NS;
    }
    assert_int_equal(end, WEBHOOK_EXPIRED);
    assert_true(now_ns <= 1 + WEBHOOK_LIFE_NS);
    assert_true(now_ns + WEBHOOK_LONGEST_NS > WEBHOOK_LIFE_NS);
    assert_int_equal(q.n, 0);
}

UNIT_TEST(delays_of_messages_differ)
{
    struct webhook_queue q = {0};
    uint64_t a_ns, b_ns;

    message_add(&q, "u", "msg_a", 1);
    message_add(&q, "v", "msg_b", 1);
    (void)webhook_queue_take(&q, 1);
    (void)webhook_queue_take(&q, 1);
    (void)webhook_queue_answer(&q, message_find(&q, "msg_a"), 500, 0, 1, &a_ns);
    (void)webhook_queue_answer(&q, message_find(&q, "msg_b"), 500, 0, 1, &b_ns);
    assert_true(a_ns != b_ns);
    webhook_queue_release(&q);
}

UNIT_TEST(retry_after_is_kept_within_bounds)
{
    static const struct {
        uint32_t after_s;
        uint64_t min_ns, max_ns;
    } rows[] = {
        {0, 0, S},
        {20, 20 * S, 20 * S},
        {7200, WEBHOOK_LONGEST_NS, WEBHOOK_LONGEST_NS},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct webhook_queue q = {0};
        uint64_t delay_ns;

        message_add(&q, "u", "a", 1);
        (void)webhook_queue_take(&q, 1);
        assert_int_equal(webhook_queue_answer(&q, message_find(&q, "a"), 503,
                                              rows[i].after_s, 1, &delay_ns),
                         WEBHOOK_RETRIED);
        assert_true(delay_ns >= rows[i].min_ns && delay_ns <= rows[i].max_ns);
        webhook_queue_release(&q);
    }
}

/* --- what an administrator writes ------------------------------------------------- */

UNIT_TEST(a_url_is_split_into_what_may_be_logged_and_the_rest)
{
    static const struct {
        const char *text, *server, *path; /* server NULL: refused */
    } rows[] = {
        {"https://h.example", "https://h.example", "/"},
        {"https://h.example/\n", "https://h.example", "/"},
        {"http://10.0.0.1:8080/a/b?token=x\r\n", "http://10.0.0.1:8080",
         "/a/b?token=x"},
        {"https://[::1]:9/x", "https://[::1]:9", "/x"},
        {"https://h?key=1", "https://h", "?key=1"},
        {"", NULL, NULL},
        {"h.example/x", NULL, NULL},
        {"ftp://h/x", NULL, NULL},
        {"file:///etc/passwd", NULL, NULL},
        {"https://", NULL, NULL},
        {"https:///x", NULL, NULL},
        {"https://me:secret@h/x", NULL, NULL},
        {"https://h/a b", NULL, NULL},
        {"https://h/a\nhttps://i/b", NULL, NULL},
        {"https://h/a#b", NULL, NULL},
        {"https://h/\xc3\xa9", NULL, NULL},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTOFREE char *server = NULL;
        AUTOFREE char *path = NULL;
        struct err err = ERR_INIT;
        int rc = webhook_read_url(rows[i].text, &server, &path, &err);

        assert_int_equal(rc, rows[i].server ? 0 : -EINVAL);
        assert_null(strstr(err.text, "secret"));
        if (rows[i].server) {
            assert_string_equal(server, rows[i].server);
            assert_string_equal(path, rows[i].path);
        }
    }
}

#define K24 "0123456789abcdefghijklmn"
#define K64 K24 K24 "0123456789abcdef"

UNIT_TEST(a_key_is_base64_or_bytes)
{
    static const struct {
        const char *text;
        size_t n; /* of the key; 0: refused */
        const char *key;
    } rows[] = {
        {K24, 24, K24},
        {K24 "\n", 24, K24},
        {K24 "\r\n", 24, K24},
        {K24 "\r", 25, K24 "\r"},
        {K64, 64, K64},
        {"whsec_MDEyMzQ1Njc4OWFiY2RlZmdoaWprbG1u\n", 24, K24},
        {"", 0, NULL},
        {"short\n", 0, NULL},
        {"0123456789abcdefghijklm\n", 0, NULL},
        {K64 "x", 0, NULL},
        {"whsec_MDEyMzQ1\n", 0, NULL},
        {"whsec_MDEyMzQ1Njc4OWFiY2RlZmdoaWpr!G1u\n", 0, NULL},
        {K64 K64 K64 K64 K64, 0, NULL},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct webhook_key key = {.n = 99};
        struct err err = ERR_INIT;
        int rc = webhook_read_key(rows[i].text, strlen(rows[i].text), &key, &err);

        assert_int_equal(rc, rows[i].n ? 0 : -EINVAL);
        assert_int_equal(key.n, rows[i].n ? rows[i].n : 99);
        if (rows[i].n)
            assert_memory_equal(key.p, rows[i].key, key.n);
        else
            assert_true(*err.text && !strstr(err.text, "0123"));
    }
}

/* --- messages --------------------------------------------------------------------- */

/* The example of the specification's own libraries. */
UNIT_TEST(a_signature_is_that_of_standard_webhooks)
{
    static const char secret[] = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    static const char body[] = "{\"test\": 2432232314}";
    struct webhook_key key;
    struct strbuf out;

    assert_int_equal(webhook_read_key(secret, strlen(secret), &key, NULL), 0);
    strbuf_init(&out, 1024);
    webhook_make_headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body, strlen(body),
                         &key, &out);
    assert_string_equal(
        strbuf_str(&out),
        "webhook-id: msg_p5jXN8AQM9LWM0D4loKWxJek\n"
        "webhook-timestamp: 1614265330\n"
        "webhook-signature: v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=\n");
    strbuf_release(&out);
}

#define IS(type)           "{\"type\":\"" type "\",\"status\":\"True\"}"
#define STATUS(type, more) "{\"conditions\":[" IS("Created") "," IS(type) "]" more "}"

static struct node *read_text(struct arena *a, const char *text)
{
    struct node *n;

    assert_int_equal(json_read(a, text, strlen(text), &n, NULL), 0);
    return n;
}

static struct job_meta a_job(void)
{
    return (struct job_meta){.kind = KUBE_JOB,
                             .ns = "team",
                             .name = "bert",
                             .uid = "0f-1",
                             .resource_version = "41"};
}

static void expect_body(const struct webhook_change *c, const char *expected)
{
    CLEANUP(arena_release) struct arena a;
    CLEANUP(strbuf_release) struct strbuf out;

    arena_init(&a, 1u << 20);
    strbuf_init(&out, WEBHOOK_MAX_BODY);
    assert_int_equal(webhook_make_body(c, &a, &out), 0);
    assert_string_equal(strbuf_str(&out), expected);
}

UNIT_TEST(a_message_says_what_has_changed)
{
    CLEANUP(arena_release) struct arena a;
    struct job_meta job = a_job();
    struct webhook_change c = {.job = &job, .wall_s = 1795996800};

    arena_init(&a, 1u << 20);
    c.status = read_text(&a, STATUS("Suspended", ""));
    assert_true(webhook_is_change(&c));
    expect_body(&c,
                "{\"type\":\"job.suspended\",\"timestamp\":\"2026-11-30T00:00:00Z\","
                "\"data\":{\"kind\":\"HorovodJob\",\"namespace\":\"team\","
                "\"name\":\"bert\",\"uid\":\"0f-1\",\"to\":\"Suspended\","
                "\"reason\":\"\",\"message\":\"\",\"restarts\":0}}");
    job.kind = KUBE_MPIJOB;
    job.status = read_text(&a, STATUS("Running", ""));
    c.status = read_text(&a, STATUS("Failed", ",\"workers\":\"2/3\",\"restarts\":4,"
                                              "\"progress\":{\"step\":7}"));
    c.reason = "WorkerFailed";
    c.message = "he said \"x\",\n\"to\":\"Succeeded\"";
    assert_true(webhook_is_change(&c));
    expect_body(&c, "{\"type\":\"job.failed\",\"timestamp\":\"2026-11-30T00:00:00Z\","
                    "\"data\":{\"kind\":\"MPIJob\",\"namespace\":\"team\","
                    "\"name\":\"bert\",\"uid\":\"0f-1\",\"from\":\"Running\","
                    "\"to\":\"Failed\",\"reason\":\"WorkerFailed\","
                    "\"message\":\"he said \\\"x\\\",\\n\\\"to\\\":\\\"Succeeded\\\"\","
                    "\"workers\":\"2/3\",\"restarts\":4,\"progress\":{\"step\":7}}}");
    c.status = read_text(&a, STATUS("Running", ",\"workers\":\"1/3\""));
    assert_false(webhook_is_change(&c));
}

UNIT_TEST(a_long_message_is_cut_between_characters)
{
    CLEANUP(arena_release) struct arena a;
    CLEANUP(strbuf_release) struct strbuf out;
    struct job_meta job = a_job();
    struct webhook_change c = {.job = &job};
    char text[2 * WEBHOOK_MAX_MESSAGE + 1];
    const char *got;

    arena_init(&a, 1u << 20);
    text[0] = 'x'; /* so that the bound is within a character of two bytes */
    for (size_t i = 1; i + 1 < sizeof(text); i += 2)
        memcpy(text + i, "\xc3\xa9", 2);
    text[sizeof(text) - 2] = text[sizeof(text) - 1] = '\0';
    c.message = text;
    c.status = read_text(&a, STATUS("Failed", ""));
    strbuf_init(&out, WEBHOOK_MAX_BODY);
    assert_int_equal(webhook_make_body(&c, &a, &out), 0);
    got = node_str(read_text(&a, strbuf_str(&out)), "data.message");
    assert_int_equal(strlen(got), WEBHOOK_MAX_MESSAGE - 1);
    assert_memory_equal(got, text, WEBHOOK_MAX_MESSAGE - 1);
    memset(text, 1, sizeof(text) - 1); /* each becomes six bytes */
    strbuf_clear(&out);
    assert_int_equal(webhook_make_body(&c, &a, &out), 0);
}

UNIT_TEST(an_id_names_one_write_of_one_job)
{
    CLEANUP(arena_release) struct arena a;
    struct job_meta job = a_job();
    struct webhook_change c = {.job = &job};
    char id[5][WEBHOOK_ID_SIZE];

    arena_init(&a, 1u << 20);
    c.status = read_text(&a, STATUS("Running", ""));
    webhook_make_id(&c, id[0]);
    c.status = read_text(&a, STATUS("Running", ",\"workers\":\"2/2\""));
    webhook_make_id(&c, id[1]);
    assert_string_equal(id[0], id[1]);
    assert_int_equal(strlen(id[0]), WEBHOOK_ID_SIZE - 1);
    assert_int_equal(strspn(id[0], "msg_0123456789abcdef"), WEBHOOK_ID_SIZE - 1);
    job.resource_version = "42";
    webhook_make_id(&c, id[2]);
    job.uid = "0f-2";
    webhook_make_id(&c, id[3]);
    c.status = read_text(&a, STATUS("Failed", ""));
    webhook_make_id(&c, id[4]);
    for (size_t i = 1; i < 5; i++) {
        for (size_t k = i + 1; k < 5; k++)
            assert_string_not_equal(id[i], id[k]);
    }
}

static int read_and_write(void *arg)
{
    CLEANUP(arena_release) struct arena a;
    CLEANUP(strbuf_release) struct strbuf out;
    AUTOFREE char *server = NULL;
    AUTOFREE char *path = NULL;
    const struct webhook_key key = {.n = 24};
    int rc = webhook_read_url("https://h.example/x", &server, &path, NULL);

    arena_init(&a, 1u << 20);
    strbuf_init(&out, WEBHOOK_MAX_BODY);
    if (rc == 0)
        rc = webhook_make_body(arg, &a, &out);
    if (rc == 0) {
        strbuf_clear(&out);
        webhook_make_headers("id", 1, "{}", 2, &key, &out);
        rc = strbuf_status(&out);
    }
    return rc;
}

UNIT_TEST(memory_may_be_out_at_any_time)
{
    CLEANUP(arena_release) struct arena a;
    struct job_meta job = a_job();
    struct webhook_change c = {.job = &job, .reason = "R", .message = "m"};

    arena_init(&a, 1u << 20);
    c.status = read_text(&a, STATUS("Failed", ",\"progress\":{\"step\":7}"));
    torture(read_and_write, &c);
}

UNIT_MAIN(NULL, NULL)
