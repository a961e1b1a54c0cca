/* SPDX-License-Identifier: Apache-2.0 */
/* Credential plug-ins: what they answer, by tables; and real ones, small programs of
 * the shell, through creds.c. */
#include <fcntl.h>

#include "tests/unit/unit.h"

#include "operator/kube/creds.h"
#include "operator/kube/exec.h"
#include "operator/kube/exec_answer.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "tests/unit/torture.h"

#define V1      "client.authentication.k8s.io/v1"
#define HEAD    "{\"apiVersion\":\"" V1 "\",\"kind\":\"ExecCredential\",\"status\":"
#define WAIT_NS (20 * NS_PER_S)

static int read_answer(const char *text, struct exec_answer *ret, struct err *err)
{
    return exec_answer_read(text, strlen(text), V1, ret, err);
}

UNIT_TEST(answers_are_parsed)
{
    static const struct {
        const char *text, *says; /* says NULL: it is good */
        uint64_t expires;
    } t[] = {
        {HEAD "{\"token\":\"t\"}}", NULL, 0},
        {HEAD "{\"token\":\"t\",\"expirationTimestamp\":\"2026-01-02T03:04:05Z\"}}",
         NULL, 1767323045},
        {HEAD "{\"token\":\"t\",\"expirationTimestamp\":"
              "\"2026-01-02T04:04:05.25+01:00\"}}",
         NULL, 1767323045},
        {HEAD
         "{\"token\":\"t\",\"expirationTimestamp\":\"2024-02-29T00:00:00-00:30\"}}",
         NULL, 1709166600},
        {HEAD "{\"clientCertificateData\":\"C\",\"clientKeyData\":\"K\"}}", NULL, 0},
        {"", "is not a JSON object", 0},
        {"secret", "is not a JSON object", 0},
        {"{}", "kind: must be ExecCredential", 0},
        {"{\"kind\":\"ExecCredential\",\"apiVersion\":"
         "\"client.authentication.k8s.io/v1beta1\"}",
         "apiVersion: must be " V1, 0},
        {HEAD "{}}", "has neither token nor", 0},
        {HEAD "{\"token\":5}}", "status.token: must be a string", 0},
        {HEAD "{\"token\":\"secret\\nX: y\"}}", "status.token: must be one line", 0},
        {HEAD "{\"token\":\"t\",\"clientKeyData\":\"K\"}}", "belong together", 0},
        {HEAD "{\"token\":\"t\",\"expirationTimestamp\":\"soon\"}}", "RFC 3339", 0},
        {HEAD "{\"token\":\"t\",\"expirationTimestamp\":\"2026-01-02T03:04:05\"}}",
         "RFC 3339", 0},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct exec_answer a = {0};
        struct err e = ERR_INIT;
        int rc = read_answer(t[i].text, &a, &e);

        if (!t[i].says != (rc == 0) || (t[i].says && !strstr(e.text, t[i].says)))
            fail_msg("case %zu: %d \"%s\"", i, rc, e.text);
        assert_null(strstr(e.text, "secret"));
        assert_int_equal(a.expires_wall_s, t[i].expires);
        exec_answer_release(&a);
    }
}

static int answer_once(void *arg)
{
    struct exec_answer a;
    int rc = read_answer(HEAD "{\"token\":\"t\"}}", &a, NULL);

    (void)arg;
    if (rc == 0)
        exec_answer_release(&a);
    return rc;
}

UNIT_TEST(out_of_memory_is_reported)
{
    torture(answer_once, NULL);
}

/* --- programs -------------------------------------------------------------------- */

struct plug_in {
    char dir[32], script[512];
    char *argv[5], *env[3];
    struct exec_spec spec;
    struct kube_config config;
    struct creds *creds;
};

/* A plug-in that is this text for the shell; $D is a folder of its own. */
static void open_plug_in(struct plug_in *p, const char *script)
{
    static const char initial[3][32] = {"sh", "-c", "{\"kind\":\"ExecCredential\"}"};
    static char dir_variable[64], version[] = V1, hint[] = "install it";
    static char words[3][32]; /* tests change them */

    *p = (struct plug_in){.dir = "/tmp/op-exec-XXXXXX"};
    assert_non_null(mkdtemp(p->dir));
    (void)snprintf(p->script, sizeof(p->script), "%s", script);
    (void)snprintf(dir_variable, sizeof(dir_variable), "D=%s", p->dir);
    memcpy(words, initial, sizeof(words));
    p->argv[0] = words[0];
    p->argv[1] = words[1];
    p->argv[2] = p->script;
    p->env[0] = dir_variable;
    p->spec = (struct exec_spec){.argv = p->argv,
                                 .env = p->env,
                                 .api_version = version,
                                 .info = words[2],
                                 .install_hint = hint};
    p->config.exec = &p->spec;
}

static void close_plug_in(struct plug_in *p)
{
    char command[64];

    creds_free(p->creds);
    (void)snprintf(command, sizeof(command), "rm -r %s", p->dir);
    assert_int_equal(system(command), 0);
}

/* Runs until nothing is on its way. */
static void plug_in_settle(struct plug_in *p)
{
    uint64_t end_ns = clock_now_ns() + WAIT_NS;
    struct pollfd fds[CREDS_FDS];
    size_t n;

    while ((n = creds_fds(p->creds, fds)) > 0) {
        assert_true(clock_now_ns() < end_ns);
        (void)poll(fds, n, 1000);
        creds_run(p->creds, clock_now_ns());
    }
}

/* Runs such a plug-in until it has answered. */
static void start_plug_in(struct plug_in *p, const char *script)
{
    open_plug_in(p, script);
    assert_int_equal(creds_new(&p->config, &p->creds, NULL), 0);
    plug_in_settle(p);
}

static const char *plug_in_authorization(struct plug_in *p)
{
    struct identity who;
    struct err e = ERR_INIT;
    static char failure[512];

    if (creds_get(p->creds, clock_now_ns(), &who, &e) == 0)
        return who.authorization;
    (void)snprintf(failure, sizeof(failure), "%s", e.text);
    return failure;
}

#define PRINT(token, more)                                                             \
    "printf '{\"apiVersion\":\"" V1 "\",\"kind\":\"ExecCredential\",\"status\":"       \
    "{\"token\":\"%s\"" more "}}' " token

UNIT_TEST(a_refused_token_is_fetched_again)
{
    struct plug_in p;
    struct err e = ERR_INIT;
    uint64_t now;

    open_plug_in(&p, "echo >>$D/runs; " PRINT("$(wc -l <$D/runs)", ""));
    assert_int_equal(creds_new(&p.config, &p.creds, &e), 0);
    assert_true(creds_is_waiting(p.creds));
    plug_in_settle(&p);
    assert_false(creds_is_waiting(p.creds));
    assert_string_equal(plug_in_authorization(&p), "Bearer 1");
    assert_int_equal(creds_next_ns(p.creds), UINT64_MAX);
    now = clock_now_ns();
    assert_false(creds_refused(p.creds, 1, now)); /* it has just been asked */
    assert_true(creds_refused(p.creds, 1, now + 10 * NS_PER_S));
    assert_true(creds_is_waiting(p.creds));
    assert_true(creds_refused(p.creds, 1, now + 10 * NS_PER_S)); /* one run for all */
    plug_in_settle(&p);
    assert_string_equal(plug_in_authorization(&p), "Bearer 2");
    assert_true(creds_refused(p.creds, 1, now)); /* it was sent with the old one */
    assert_false(creds_is_waiting(p.creds));
    close_plug_in(&p);
}

UNIT_TEST(the_plug_in_runs_again_before_its_answer_expires)
{
    struct plug_in p;
    uint64_t left;

    start_plug_in(&p, "echo >>$D/runs; e=$(date -u -d '+100 seconds' "
                      "+%Y-%m-%dT%H:%M:%SZ); " PRINT(
                          "$(wc -l <$D/runs) $e", ",\"expirationTimestamp\":\"%s\""));
    left = creds_next_ns(p.creds) - clock_now_ns();
    assert_true(left > 70 * NS_PER_S && left <= 80 * NS_PER_S);
    creds_run(p.creds, creds_next_ns(p.creds));
    assert_false(creds_is_waiting(p.creds)); /* the old one is good meanwhile */
    assert_string_equal(plug_in_authorization(&p), "Bearer 1");
    plug_in_settle(&p);
    assert_string_equal(plug_in_authorization(&p), "Bearer 2");
    close_plug_in(&p);
}

UNIT_TEST(a_failure_reports_stderr_but_never_the_output)
{
    struct plug_in p;

    start_plug_in(&p, "echo secret; echo 'no such profile' >&2; exit 3");
    assert_string_equal(plug_in_authorization(&p),
                        "exec plug-in \"sh\" exited with code 3: no such profile");
    assert_true(creds_next_ns(p.creds) != UINT64_MAX); /* it is tried again */
    assert_false(creds_is_waiting(p.creds));
    close_plug_in(&p);
    start_plug_in(&p, "echo secret");
    assert_string_equal(plug_in_authorization(&p),
                        "exec plug-in \"sh\": its answer: is not a JSON object");
    close_plug_in(&p);
    open_plug_in(&p, "");
    (void)snprintf(p.argv[0], 32, "no-such-program");
    assert_true(creds_new(&p.config, &p.creds, &(struct err){0}) < 0);
    close_plug_in(&p);
}

UNIT_TEST(a_plug_in_that_hangs_is_killed_with_its_children)
{
    struct plug_in p;
    char path[64], *text;
    size_t n;

    open_plug_in(&p, "sleep 1000 & echo $! >$D/pid; wait");
    assert_int_equal(creds_new(&p.config, &p.creds, NULL), 0);
    (void)snprintf(path, sizeof(path), "%s/pid", p.dir);
    for (uint64_t end = clock_now_ns() + WAIT_NS;;) {
        if (fd_read_file(path, 64, &text, &n, NULL) == 0) {
            if (n > 1)
                break;
            mem_free(text);
        }
        assert_true(clock_now_ns() < end);
    }
    creds_run(p.creds, creds_next_ns(p.creds)); /* a minute later */
    assert_non_null(strstr(plug_in_authorization(&p), "timed out after seconds: 60"));
    (void)snprintf(path, sizeof(path), "/proc/%d/wchan", atoi(text));
    mem_free(text);
    for (uint64_t end = clock_now_ns() + WAIT_NS; access(path, F_OK) == 0;) {
        char stat[64], *state_text;

        (void)snprintf(stat, sizeof(stat), "%.*s/stat",
                       (int)(strrchr(path, '/') - path), path);
        if (fd_read_file(stat, 1024, &state_text, &n, NULL) < 0)
            break;
        bool is_dead = strstr(state_text, ") Z") != NULL;
        mem_free(state_text);
        if (is_dead) /* where nobody reaps orphans */
            break;
        assert_true(clock_now_ns() < end);
    }
    close_plug_in(&p);
}

UNIT_TEST(a_plug_in_has_its_variables_no_terminal_and_no_blocked_signals)
{
    struct plug_in p;

    open_plug_in(&p,
                 "read x && exit 1; test \"$(readlink /proc/self/fd/0)\" = /dev/null "
                 "|| exit 2; " PRINT("$D-$KUBERNETES_EXEC_INFO", ""));
    (void)snprintf(p.spec.info, 32, "{}");
    assert_int_equal(creds_new(&p.config, &p.creds, NULL), 0);
    plug_in_settle(&p);
    assert_int_equal(strncmp(plug_in_authorization(&p), "Bearer /tmp/op-exec-", 20), 0);
    assert_non_null(strstr(plug_in_authorization(&p), "-{}"));
    close_plug_in(&p);
}

UNIT_TEST(endless_output_of_a_plug_in_blocks_nothing)
{
    struct plug_in p;
    struct exec_run x;

    open_plug_in(&p, "sleep 1000");
    exec_init(&x, &p.spec);
    assert_int_equal(exec_start(&x, clock_now_ns(), NULL), 0);
    fd_close(&x.err_fd);
    x.err_fd = open("/dev/zero", O_RDONLY | O_CLOEXEC); /* has always more */
    assert_true(x.err_fd >= 0);
    (void)alarm(60); /* a step without an end has no other */
    assert_int_equal(exec_step(&x, clock_now_ns(), NULL), 0);
    (void)alarm(0);
    exec_release(&x);
    close_plug_in(&p);
}

UNIT_TEST(name_and_password_are_sent_as_base64)
{
    char user[] = "Aladdin", password[] = "open sesame";
    struct kube_config config = {.username = user, .password = password};
    struct plug_in p = {0};

    assert_int_equal(creds_new(&config, &p.creds, NULL), 0);
    assert_string_equal(plug_in_authorization(&p),
                        "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    assert_false(creds_refused(p.creds, 0, clock_now_ns()));
    creds_free(p.creds);
}

UNIT_MAIN(NULL, NULL)
