/* SPDX-License-Identifier: Apache-2.0 */
/* errand.c: what is written is read back, nothing cut or changed passes, hosts are
 * shared out once each. ssh.c: the command line, and what ssh's complaints mean.
 * session.c: keys.
 */
#include <sys/wait.h>

#include "runtime/launch/core/errand.h"
#include "runtime/launch/session.h"
#include "tests/unit/launch_fixture.h"

static void errand_fill(struct errand *e)
{
    char words[][16] = {"python", "train.py",  "it's",
                        "",       "new\nline", "PATH=/bin",
                        "X=a=b",  "EMPTY=",    "CYCLE_TIME=3"};
    char *const argv[] = {words[0], words[1], words[2], words[3], words[4], NULL};
    char *const env[] = {words[5], words[6], words[7], NULL};
    char *const vars[] = {words[8], NULL};
    struct err err = ERR_INIT;
    memset(e, 0, sizeof(*e));
    strcpy(e->version, "1.2.3");
    strcpy(e->job_id, "horovodrun/abc");
    memset(e->seed, 7, sizeof(e->seed));
    assert_int_equal(hostlist_append(&e->hosts, "a", 2, &err), 0);
    assert_int_equal(hostlist_append(&e->hosts, "fd00::2", 1, &err), 0);
    e->np = 3;
    e->local = 2;
    e->peer_timeout_ms = 30000;
    strcpy(e->dir, "/data/a b");
    strcpy(e->iface, "eth0");
    strcpy(e->binding, "cores");
    e->roles = (struct tf_roles){FRAMEWORK_TF_PS, 2, true};
    strcpy(e->agent_path, "/opt/x/bin/hvd-agent");
    strcpy(e->ssh.program, "ssh -J gate");
    e->ssh.port = 2222;
    e->fanout = 32;
    assert_int_equal(words_copy(argv, &e->argv, &err), 0);
    assert_int_equal(words_copy(env, &e->env, &err), 0);
    assert_int_equal(words_copy(vars, &e->vars, &err), 0);
}

/* Fills the errand and writes it. */
static void errand_prepare(struct errand *e, struct strbuf *b)
{
    errand_fill(e);
    strbuf_init(b, 1u << 20);
    errand_write(e, b);
}

static int
read_back(const struct strbuf *b, size_t n, struct errand *ret, struct err *err)
{
    return errand_read((const uint8_t *)b->p, n, "1.2.3", ret, err);
}

static void words_are_equal(const struct errand_words *a, const struct errand_words *b)
{
    assert_int_equal(a->n, b->n);
    for (size_t i = 0; i < a->n; i++)
        assert_string_equal(a->v[i], b->v[i]);
    assert_null(b->v[b->n]);
}

UNIT_TEST(an_errand_comes_back_as_it_was)
{
    CLEANUP(errand_release) struct errand e;
    CLEANUP(strbuf_release) struct strbuf b;
    struct errand f;
    struct err err = ERR_INIT;
    struct option_var *vars;
    errand_prepare(&e, &b);
    assert_int_equal(read_back(&b, b.n, &f, &err), 0);
    assert_string_equal(f.job_id, e.job_id);
    assert_memory_equal(f.seed, e.seed, sizeof(e.seed));
    assert_int_equal(f.roles.framework, FRAMEWORK_TF_PS);
    assert_int_equal(f.roles.n_ps, 2);
    assert_true(f.roles.has_evaluator);
    assert_int_equal(f.hosts.n, 2);
    assert_string_equal(f.hosts.v[1].name, "fd00::2");
    assert_int_equal(f.hosts.v[0].slots, 2);
    assert_string_equal(f.dir, e.dir);
    assert_string_equal(f.ssh.program, e.ssh.program);
    assert_int_equal(f.ssh.port, 2222);
    assert_int_equal(f.fanout, 32);
    assert_int_equal(f.local, 2);
    words_are_equal(&e.argv, &f.argv);
    words_are_equal(&e.env, &f.env);
    assert_int_equal(errand_vars(&f, &vars, &err), 0);
    assert_string_equal(vars[0].name, "CYCLE_TIME");
    assert_string_equal(vars[0].value, "3");
    mem_free(vars);
    errand_release(&f);
}

/* Every prefix, and the whole with one byte more. */
UNIT_TEST(a_cut_errand_is_refused)
{
    CLEANUP(errand_release) struct errand e;
    CLEANUP(strbuf_release) struct strbuf b;
    struct errand f;
    errand_prepare(&e, &b);
    for (size_t n = 0; n < b.n; n++) {
        struct err err = ERR_INIT;
        assert_int_equal(read_back(&b, n, &f, &err), -EPROTO);
        assert_true(err.text[0]);
    }
    strbuf_putc(&b, 'x');
    assert_int_equal(read_back(&b, b.n, &f, NULL), -EPROTO);
}

UNIT_TEST(another_version_is_named)
{
    CLEANUP(errand_release) struct errand e;
    CLEANUP(strbuf_release) struct strbuf b;
    struct errand f;
    struct err err = ERR_INIT;
    errand_prepare(&e, &b);
    b.p[b.n - 1] ^= 1; /* what else may be different there does not count */
    assert_int_equal(errand_read((const uint8_t *)b.p, b.n, "0.9", &f, &err), -EPROTO);
    assert_non_null(strstr(err.text, "version 0.9"));
    assert_non_null(strstr(err.text, "horovodrun has 1.2.3"));
}

UNIT_TEST(an_errand_survives_a_lack_of_memory)
{
    CLEANUP(errand_release) struct errand e;
    CLEANUP(strbuf_release) struct strbuf b;
    struct errand f;
    errand_prepare(&e, &b);
    for (long n = 0;; n++) {
        struct err err = ERR_INIT;
        mem_fail_after(n);
        int rc = read_back(&b, b.n, &f, &err);
        bool has_failed = mem_fail_fired();
        mem_fail_after(-1);
        if (rc == 0)
            errand_release(&f);
        if (!has_failed)
            break;
        assert_true(rc < 0);
    }
}

UNIT_TEST(small_messages_come_back_as_they_were)
{
    CLEANUP(strbuf_release) struct strbuf b;
    CLEANUP(errand_start_release)
    struct errand_start s = {.rdv_port = 1234, .master_port = 65535};
    CLEANUP(errand_start_release) struct errand_start s2 = {.rdv_port = 0};
    struct errand_ready r = {80, 65537, 2, "10.0.0.2", ""}, r2;
    struct errand_lost l = {7, "its agent exited"}, l2;
    strbuf_init(&b, 4096);
    assert_int_equal(hostlist_append(&s.reach, "fe80::1%eth0", 3, NULL), 0);
    assert_int_equal(hostlist_append(&s.reach, "10.0.0.2", 1, NULL), 0);
    memcpy(s.rdv_host, "10.0.0.1", sizeof("10.0.0.1"));
    errand_start_write(&s, &b);
    assert_int_equal(errand_start_read((const uint8_t *)b.p, b.n, &s2, NULL), 0);
    assert_int_equal(s2.reach.n, 2);
    assert_string_equal(s2.reach.v[0].name, "fe80::1%eth0");
    assert_int_equal(s2.reach.v[0].slots, 3);
    assert_string_equal(s2.rdv_host, "10.0.0.1");
    assert_int_equal(s2.rdv_port, 1234);
    struct errand_start bad;
    assert_int_equal(errand_start_read((const uint8_t *)b.p, b.n - 1, &bad, NULL),
                     -EPROTO);
    b.p[2] = 1; /* a port above 65535 */
    assert_int_equal(errand_start_read((const uint8_t *)b.p, b.n, &bad, NULL), -EPROTO);
    hostlist_release(&s.reach); /* without the host of rank 0 */
    strbuf_clear(&b);
    errand_start_write(&s, &b);
    assert_int_equal(errand_start_read((const uint8_t *)b.p, b.n, &bad, NULL), -EPROTO);
    strbuf_clear(&b);
    errand_ready_write(&r, &b);
    assert_int_equal(errand_ready_read((const uint8_t *)b.p, b.n, &r2, NULL), 0);
    assert_string_equal(r2.own, "10.0.0.2");
    assert_string_equal(r2.theirs, "");
    strbuf_clear(&b);
    errand_lost_write(&l, &b);
    assert_int_equal(errand_lost_read((const uint8_t *)b.p, b.n, &l2, NULL), 0);
    assert_int_equal(l2.end, 7);
    assert_string_equal(l2.why, l.why);
    struct errand_output o;
    const uint8_t output[] = {9, 0, 0, 0, 1, 0, 0, 0, 'h', 'i'};
    assert_int_equal(errand_output_read(output, sizeof(output), &o, NULL), 0);
    assert_true(o.rank == 9 && o.stream == 1 && o.n == 2 && !memcmp(o.p, "hi", 2));
    assert_int_equal(errand_output_read(output, 7, &o, NULL), -EPROTO);
}

/* Each host but skip is started by exactly one agent, whatever the numbers. */
static void start_below(uint32_t first,
                        uint32_t end,
                        uint32_t skip,
                        uint32_t fanout,
                        uint8_t *seen,
                        unsigned depth)
{
    uint32_t a = 0, b = 0, j = 0;
    assert_true(depth < 100);
    for (; errand_share(first, end, skip, fanout, j, &a, &b); j++) {
        assert_true(first <= a && a < b && b <= end && a != skip);
        seen[a]++;
        start_below(a + 1, b, skip, fanout, seen, depth + 1);
    }
    if (fanout)
        assert_true(j <= fanout);
}

UNIT_TEST(every_host_is_started_once)
{
    for (uint32_t n = 1; n < 70; n++)
        for (uint32_t skip = 0; skip <= n; skip += 1 + n / 9)
            for (uint32_t fanout = 0; fanout < 34; fanout += 1 + fanout / 4) {
                uint8_t seen[80] = {0};
                if (fanout == 0) { /* all by the first, none by any other */
                    uint32_t a, b;
                    for (uint32_t j = 0; errand_share(0, n, skip, 0, j, &a, &b); j++)
                        seen[a]++;
                } else {
                    start_below(0, n, skip, fanout, seen, 0);
                }
                for (uint32_t h = 0; h < n; h++)
                    assert_int_equal(seen[h], h != skip);
            }
}

/* The result of a quoted word in a real shell. */
UNIT_TEST(quoted_words_survive_a_shell)
{
    static const char *const words[] = {
        "plain", "",          "it's",           "a b\t\"c\" $HOME `id` \\",
        "'''",   "new\nline", "*;|&<>(){}[]~#!"};
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        CLEANUP(strbuf_release) struct strbuf b;
        int out[2];
        char got[256] = "";
        strbuf_init(&b, 4096);
        strbuf_puts(&b, "printf %s ");
        ssh_quote(words[i], &b);
        assert_int_equal(pipe(out), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            (void)dup2(out[1], 1);
            (void)execl("/bin/sh", "sh", "-c", strbuf_str(&b), (char *)NULL);
            _exit(127);
        }
        (void)close(out[1]);
        ssize_t n = read(out[0], got, sizeof(got) - 1);
        assert_true(n >= 0);
        (void)close(out[0]);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        assert_string_equal(got, words[i]);
    }
}

UNIT_TEST(the_command_line_of_ssh)
{
    struct ssh_how how = {.connect_s = 7};
    struct ssh_command c;
    struct err err = ERR_INIT;
    assert_int_equal(ssh_command(&how, "b", "/x/hvd-agent", &c, &err), 0);
    assert_string_equal(c.v[0], "ssh");
    assert_string_equal(c.v[2], "BatchMode=yes");
    assert_string_equal(c.v[6], "ConnectTimeout=7");
    assert_string_equal(c.v[7], "b");
    assert_non_null(strstr(c.v[8], "exec /bin/sh -c '"));
    assert_non_null(strstr(c.v[8], "' hvd-agent '/x/hvd-agent'"));
    assert_null(c.v[9]);
    strcpy(how.program, "  my-ssh  -J\tgate ");
    strcpy(how.identity, "/my keys/id");
    how.port = 2222;
    assert_int_equal(ssh_command(&how, "b", "/x/hvd-agent", &c, &err), 0);
    const char *const wanted[] = {"my-ssh", "-J", "gate",        "-p",
                                  "2222",   "-i", "/my keys/id", "b"};
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
        assert_string_equal(c.v[i], wanted[i]);
    assert_int_equal(ssh_command(&how, "-oProxyCommand=x", "/x", &c, &err), -EINVAL);
    memset(how.program, 'a', sizeof(how.program) - 1);
    for (size_t i = 1; i < sizeof(how.program) - 1; i += 2)
        how.program[i] = ' ';
    assert_int_equal(ssh_command(&how, "b", "/x", &c, &err), -EINVAL); /* too many */
}

UNIT_TEST(errors_of_ssh_become_one_message)
{
    static const char *const table[][2] = {
        {"ssh: Could not resolve hostname b: Name or service not known\r\n", "DNS"},
        {"ssh: connect to host b port 22: Connection refused\r\n", "no sshd listens"},
        {"ssh: connect to host b port 22: Connection timed out\n", "does not answer"},
        {"ssh: connect to host b port 22: No route to host\n", "no route"},
        {"No ED25519 host key is known for b and you have requested strict checking.\n"
         "Host key verification failed.\n",
         "log in once by ssh b"},
        {"@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification "
         "failed.\n",
         "ssh-keygen -R b"},
        {"Warning: Identity file /k not accessible: No such file or directory.\n"
         "root@b: Permission denied (publickey).\n",
         "identity file of -i does not exist"},
        {"root@b: Permission denied (publickey,password).\n", "permission denied"},
        {"bash: x\n" SSH_NO_AGENT "\n", "there is no hvd-agent"},
        {"motd\nsomething new\033[0m happened\n\n", "agent started: something new?[0m"},
        {"", "without a message"}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        char got[240];
        static const struct ssh_how how;

        ssh_explain(&how, "b", table[i][0], got, sizeof(got));
        if (!strstr(got, table[i][1]))
            fail_msg("%s: not in: %s", table[i][1], got);
    }
}

UNIT_TEST(keys_differ_by_direction_root_and_seed)
{
    struct token root = {{1}}, other = {{2}}, a, b;
    struct auth_session ours, theirs, strange;
    uint8_t seed[ERRAND_SEED_BYTES] = {3};
    session_of_job(&root, true, &ours);
    session_of_job(&root, false, &theirs);
    session_of_job(&other, false, &strange);
    assert_memory_equal(ours.send_key, theirs.recv_key, 32);
    assert_memory_equal(ours.recv_key, theirs.send_key, 32);
    assert_memory_not_equal(ours.send_key, ours.recv_key, 32);
    assert_memory_not_equal(ours.send_key, strange.recv_key, 32);
    session_job_token(&root, seed, &a);
    seed[31] = 1;
    session_job_token(&root, seed, &b);
    assert_memory_not_equal(a.key, b.key, 32);
    assert_memory_not_equal(a.key, root.key, 32);
}

UNIT_MAIN(NULL, NULL)
