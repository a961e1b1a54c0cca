/* SPDX-License-Identifier: Apache-2.0 */
/* plugstack.conf: its arguments, and the rules of a site for keys and variables. */
#include "tests/unit/unit.h"

#include "runtime/base/mem.h"
#include "spank_plugin/site.h"
#include "tests/unit/fake_env.h"

#define MAX_WORDS 8

/* text: words separated by blanks, as Slurm cuts them. */
static int site_parse(const char *text, struct plugin_config *ret, struct err *err)
{
    char copy[512], *rest = copy, *argv[MAX_WORDS];
    int argc = 0;
    (void)snprintf(copy, sizeof(copy), "%s", text);
    while (rest && *rest && argc < MAX_WORDS)
        argv[argc++] = strsep(&rest, " ");
    return plugin_config_parse(argc, argv, ret, err);
}

UNIT_TEST(plugstack_defaults_and_paths)
{
    struct plugin_config c;
    struct err err = ERR_INIT;
    assert_int_equal(site_parse("", &c, &err), 0);
    assert_string_equal(c.dir, "/opt/ringmaster");
    assert_false(c.dir_required);
    assert_string_equal(c.run_dir, "/run/ringmaster");
    assert_int_equal(site_parse("dir=/srv/rm run_dir=/run/x", &c, &err), 0);
    assert_string_equal(c.dir, "/srv/rm");
    assert_true(c.dir_required);
    assert_string_equal(c.run_dir, "/run/x");
}

UNIT_TEST(plugstack_mistakes_are_named)
{
    static const struct {
        const char *text, *in_text;
    } rows[] = {
        {"dri=/x", "\"dri=/x\" is not an argument of spank_hvd.so; allowed are dir="},
        {"dir=opt", "dir: \"opt\" is not an absolute path"},
        {"dir=/a:/b", "dir: \"/a:/b\""},
        {"run_dir=", "run_dir: \"\""},
        {"default=fusoin=3", "default: \"fusoin\" is not a key; the nearest is fusion"},
        {"force=fusion=x", "force: fusion=x is not a whole number"},
        {"max=timeline=/x", "max: HOROVOD_TIMELINE is not a number"},
        {"min=iface=ib0", "min: iface is not a number"},
        {"max=verbose", "max: verbose is not a number"},
        {"allow=timeout,colour", "allow: \"colour\" is not a key"},
        {"deny=", "deny: \"\" is not a key"},
        {"allow=timeout deny=report", "allow= and deny= exclude each other"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct plugin_config c = {.dir = "unchanged"};
        struct err err = ERR_INIT;
        if (site_parse(rows[i].text, &c, &err) >= 0)
            fail_msg("%s is accepted", rows[i].text);
        if (strncmp(err.text, "plugstack.conf: ", 16) != 0
            || !strstr(err.text, rows[i].in_text))
            fail_msg("%s: %s", rows[i].text, err.text);
        assert_string_equal(c.dir, "unchanged");
    }
}

/* conf, --hvd and environment -> the settings, or a sentence. */
UNIT_TEST(rules_are_applied_to_keys_and_variables_alike)
{
    static const struct {
        const char *conf, *keys, *env, *want, *sentence;
    } rows[] = {
        {"", "fusion=1", "HOROVOD_CYCLE_TIME=1", "HOROVOD_FUSION_THRESHOLD=\"1048576\"",
         NULL},
        /* default */
        {"default=iface=ib0,report", "", "", "iface=\"ib0\",HVD_REPORT=\"1\"", NULL},
        {"default=iface=ib0,report", "iface=eth0", "HVD_REPORT=0", "iface=\"eth0\"",
         NULL},
        {"default=report", "", "HVD_REPORT=", "HVD_REPORT=\"1\"", NULL},
        /* force */
        {"force=log-level=info", "", "", "HOROVOD_LOG_LEVEL=\"INFO\"", NULL},
        {"force=timeout=60", "timeout=1m", "", "HOROVOD_START_TIMEOUT=\"60\"", NULL},
        {"force=timeout=60", "timeout=61", "", NULL,
         "--hvd: HOROVOD_START_TIMEOUT=61: this site requires 60 (plugstack.conf: "
         "force)"},
        {"force=fusion=64", "", "HOROVOD_FUSION_THRESHOLD=64M",
         "HOROVOD_FUSION_THRESHOLD=\"67108864\"", NULL},
        {"force=fusion=64", "", "HOROVOD_FUSION_THRESHOLD=1", NULL,
         "the environment: HOROVOD_FUSION_THRESHOLD=1: this site requires 67108864"},
        {"force=iface=ib0", "iface=eth0", "", NULL,
         "--hvd: iface=eth0: this site requires ib0"},
        /* max, min */
        {"max=timeout=10m,fusion=64", "timeout=600,fusion=64", "",
         "HOROVOD_START_TIMEOUT=\"600\",HOROVOD_FUSION_THRESHOLD=\"67108864\"", NULL},
        {"max=timeout=10m", "timeout=601", "", NULL,
         "at most 600 (plugstack.conf: max)"},
        {"max=fusion=64", "", "HOROVOD_FUSION_THRESHOLD=65M", NULL,
         "the environment: HOROVOD_FUSION_THRESHOLD=65M: this site allows at most "
         "67108864"},
        {"min=HOROVOD_CYCLE_TIME=1", "HOROVOD_CYCLE_TIME=0.5", "", NULL,
         "at least 1 (plugstack.conf: min)"},
        /* a key has priority over the variable that it replaces */
        {"max=fusion=64", "fusion=1", "HOROVOD_FUSION_THRESHOLD=65M",
         "HOROVOD_FUSION_THRESHOLD=\"1048576\"", NULL},
        /* allow, deny */
        {"allow=timeout,report", "report", "", "HVD_REPORT=\"1\"", NULL},
        {"allow=timeout,report", "nancheck", "", NULL,
         "--hvd: HVD_NANCHECK=1: this site does not allow it (plugstack.conf: allow)"},
        {"allow=timeout", "", "HVD_NANCHECK=1", NULL,
         "the environment: HVD_NANCHECK=1"},
        {"deny=timeline", "timeline=/x", "", NULL, "(plugstack.conf: deny)"},
        {"deny=timeline", "HOROVOD_TIMELINE=/x", "", NULL, "(plugstack.conf: deny)"},
        {"deny=timeline", "", "HOROVOD_TIMELINE=/x", NULL, "the environment"},
        {"deny=timeline", "report", "", "HVD_REPORT=\"1\"", NULL},
        /* what the site itself sets is allowed */
        {"deny=iface default=iface=ib0", "iface=ib0", "", "iface=\"ib0\"", NULL},
        {"deny=iface default=iface=ib0", "iface=ib1", "", NULL, "deny"},
        {"allow=report force=fusion=1", "fusion=1", "",
         "HOROVOD_FUSION_THRESHOLD=\"1048576\"", NULL},
        /* tasks do not get these variables, so they request nothing */
        {"allow=report", "", "HOROVOD_CONTROLLER=mpi", "", NULL},
        /* a step in a task of another one: its folder for pages is the plugin's own */
        {"allow=report", "", "HVD_STATS_DIR=/dev/shm/hvd_step.1.0.0.9", "", NULL},
        {"default=HVD_STATS_DIR=/x", "", "HVD_STATS_DIR=/dev/shm/hvd_step.1.0.0.9",
         "HVD_STATS_DIR=\"/x\"", NULL},
        {"deny=HVD_STATS_DIR", "", "HVD_STATS_DIR=/dev/shm/mine", NULL,
         "the environment: HVD_STATS_DIR=/dev/shm/mine: this site does not allow it"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        static struct fake_env env;
        struct plugin_config c;
        struct step_options o = {0};
        struct err err = ERR_INIT;
        CLEANUP(strbuf_release) struct strbuf text;
        strbuf_init(&text, 4096);
        env.n = 0;
        fake_set_all(&env, rows[i].env);
        assert_int_equal(site_parse(rows[i].conf, &c, &err), 0);
        assert_int_equal(step_options_add(&o, "--hvd", rows[i].keys, &err), 0);
        int rc = site_apply(&c, fake_get, &env, &o, &err);
        if (rows[i].want) {
            for (int twice = 0; twice < 2 && rc == 0; twice++)
                rc = site_apply(&c, fake_get, &env, &o, &err);
            step_options_render(&o, &text);
            if (rc || strcmp(strbuf_str(&text), rows[i].want) != 0)
                fail_msg("row %zu: %s %s", i, strbuf_str(&text), err.text);
        } else if (rc != -EPERM || !strstr(err.text, rows[i].sentence)) {
            fail_msg("row %zu: %d %s", i, rc, err.text);
        }
    }
}

UNIT_TEST(help_shows_the_rules)
{
    struct plugin_config c;
    struct err err = ERR_INIT;
    CLEANUP(strbuf_release) struct strbuf text;
    strbuf_init(&text, 4096);
    assert_int_equal(site_parse("", &c, &err), 0);
    site_help(&c, &text);
    assert_string_equal(strbuf_str(&text), "  no rules\n");
    strbuf_clear(&text);
    assert_int_equal(
        site_parse("default=report force=iface=ib0 max=timeout=60 deny=timeline", &c,
                   &err),
        0);
    site_help(&c, &text);
    assert_string_equal(strbuf_str(&text), "  default HVD_REPORT=\"1\"\n"
                                           "  always  iface=\"ib0\"\n"
                                           "  at most HOROVOD_START_TIMEOUT=\"60\"\n"
                                           "  not allowed are HOROVOD_TIMELINE\n");
}

UNIT_MAIN(NULL, NULL)
