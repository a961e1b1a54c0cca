/* SPDX-License-Identifier: Apache-2.0 */
/* The Slurm plugin's options. A first byte "p": the arguments in plugstack.conf, one a
 * line; any other: the user's --hvd=..., which slurmstepd parses as root. */
#include <errno.h>

#include "spank_plugin/site.h"
#include "tests/fuzz/fuzz.h"

enum { MAX_WORDS = 64 };

/* What is taken, rendered and taken again is the same. */
static void options_check_rendered(const struct step_options *o)
{
    struct step_options back = {0};
    struct strbuf text;
    struct err err = ERR_INIT;
    strbuf_init(&text, 4 * STEP_MAX_BYTES);
    step_options_render(o, &text);
    MUST(strbuf_status(&text) == 0);
    if (text.n < STEP_MAX_BYTES) {
        MUST(step_options_add(&back, "--hvd", strbuf_str(&text), &err) == 0);
        MUST(back.n == o->n);
        for (uint32_t i = 0; i < o->n; i++) {
            const char *value = step_options_get(&back, o->v[i].setting);
            MUST(value && strcmp(value, o->text + o->v[i].at) == 0);
        }
    }
    strbuf_release(&text);
}

static void options_parse_step(const char *text)
{
    struct step_options o = {0}, before = o;
    struct err err = ERR_INIT;
    int rc = step_options_add(&o, "--hvd", text, &err);
    if (rc) {
        MUST(rc < 0 && rc != -ENOMEM && strncmp(err.text, "--hvd: ", 7) == 0);
        MUST(memcmp(&o, &before, sizeof(o)) == 0);
        return;
    }
    const char *iface = step_options_get(&o, OWN_IFACE);
    MUST(o.is_on || strcmp(text, "off") == 0);
    MUST(step_options_start_ms(&o) <= 86400000);
    MUST(!iface || (strlen(iface) <= 15 && !strpbrk(iface, "/ \t\n")));
    options_check_rendered(&o);
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
        MUST(rc < 0 && rc != -ENOMEM && strncmp(err.text, "plugstack.conf: ", 16) == 0);
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
