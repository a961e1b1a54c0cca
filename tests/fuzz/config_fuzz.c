/* SPDX-License-Identifier: Apache-2.0 */
/* horovodrun --config-file. */
#include <errno.h>

#include "runtime/launch/config_file.h"
#include "tests/fuzz/fuzz.h"

static int
no_file(void *arg, const char *path, struct launch_options *o, struct err *err)
{
    (void)arg;
    (void)path;
    (void)o;
    return err_set(err, -ENOENT, "none");
}

/* What is taken is in its one form: taken again it is the same. A refusal names the
 * file and has a sentence. */
FUZZ_TARGET(config)
{
    struct err err = ERR_INIT;
    struct launch_options o;
    char name[] = "horovodrun";
    char *argv[] = {name, NULL};

    MUST(options_parse(1, argv, no_file, NULL, &o, &err) == 0);
    int rc = config_text_read("f.yaml", (const char *)data, n, &o, &err);
    MUST(rc == 0 || rc == -EINVAL);
    MUST(rc == 0 || !strncmp(err.text, "f.yaml: line ", 13));
    for (size_t i = 0; rc == 0 && i < OPT_COUNT; i++) {
        const struct launch_option_row *row = option_row((enum option_id)i);
        const char *before = o.text[i];
        if (!before || !*row->key)
            continue;
        MUST(options_set_key(&o, row->key, before, &err) == 0);
        MUST(!strcmp(o.text[i], before));
    }
    options_release(&o);
    return 0;
}
