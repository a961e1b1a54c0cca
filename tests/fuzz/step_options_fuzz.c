/* SPDX-License-Identifier: Apache-2.0 */
/* The Slurm plugin's options. A first byte "p": the arguments in plugstack.conf, one a
 * line; any other: the user's --hvd=..., which slurmstepd parses as root. */
#include <errno.h>

#include "spank_plugin/options.h"
#include "tests/fuzz/fuzz.h"

enum { MAX_WORDS = 64 };

static void options_parse_step(const char *text)
{
    struct step_options o;
    struct err err = ERR_INIT;
    fuzz_fill(&o, sizeof(o));
    int rc = step_options_parse(text, &o, &err);
    if (rc) {
        MUST(rc == -EINVAL || rc == -ERANGE);
        MUST(strncmp(err.text, "--hvd: ", 7) == 0);
        MUST(fuzz_is_filled(&o, sizeof(o)));
        return;
    }
    MUST(o.start_timeout_ms == 0
         || (o.start_timeout_ms >= 1000 && o.start_timeout_ms <= 7ull * 86400 * 1000));
    MUST(strlen(o.iface) <= 15 && !strpbrk(o.iface, "/ \t\n"));
}

static void path_check(const char *path, size_t size)
{
    MUST(path[0] == '/' && strlen(path) < size && !strpbrk(path, ":\n"));
}

static void options_parse_plugstack(char *text)
{
    char *rest = text, *argv[MAX_WORDS];
    struct plugin_config c;
    struct err err = ERR_INIT;
    int argc = 0;
    fuzz_fill(&c, sizeof(c));
    while (rest && argc < MAX_WORDS)
        argv[argc++] = strsep(&rest, "\n");
    int rc = plugin_config_parse(argc, argv, &c, &err);
    if (rc) {
        MUST(rc == -EINVAL && strncmp(err.text, "plugstack.conf: ", 16) == 0);
        MUST(fuzz_is_filled(&c, sizeof(c)));
        return;
    }
    path_check(c.dir, sizeof(c.dir));
    path_check(c.run_dir, sizeof(c.run_dir));
}

FUZZ_TARGET(step_options)
{
    char *text = fuzz_text(data, n);
    if (text[0] == 'p')
        options_parse_plugstack(text + 1);
    else
        options_parse_step(text);
    free(text);
    return 0;
}
