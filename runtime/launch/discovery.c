/* SPDX-License-Identifier: Apache-2.0 */
/* Converts the script's lines to a hostfile and parses that. Called by horovodrun.c and
 * discovery_watch.c. */
#include "runtime/launch/discovery.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/mem.h"

/* "host" alone: neither "host:2", "[::1]:2" nor "host slots=2". */
static bool line_has_no_slots(const char *line, size_t len)
{
    const char *colon = memchr(line, ':', len);
    const char *last = memrchr(line, ':', len);
    if (memchr(line, '=', len))
        return false;
    return !colon || (colon != last && line[len - 1] == ']')
           || (colon != last && !memchr(line, ']', len));
}

int discovery_parse(uint32_t slots,
                    const char *command,
                    const struct strbuf *out,
                    struct hostlist *ret,
                    struct err *err)
{
    struct strbuf text;
    strbuf_init(&text, 2 * DISCOVERY_MAX_BYTES);
    for (const char *p = strbuf_str(out); *p;) {
        size_t whole = strcspn(p, "\n"), n = whole;
        while (n && strchr(" \t\r", p[n - 1]))
            n--;
        strbuf_add(&text, p, n);
        if (n && *p != '#' && line_has_no_slots(p, n))
            strbuf_printf(&text, " slots=%u", slots);
        strbuf_putc(&text, '\n');
        p += whole + (p[whole] == '\n');
    }
    int rc = strbuf_status(&text);
    if (rc < 0)
        rc = err_set(err, rc, "out of memory for the hosts of %s", command);
    else if ((rc = hostlist_parse_hostfile(strbuf_str(&text), ret, err)) < 0)
        err_prefix(err, "%s", command);
    strbuf_release(&text);
    return rc;
}

int discovery_run(struct capture *c,
                  const char *command,
                  uint32_t slots,
                  struct hostlist *ret,
                  struct err *err)
{
    struct strbuf out;
    char shell[] = "sh", flag[] = "-c";
    AUTOFREE char *script = mem_strdup(command);
    char *argv[] = {shell, flag, script, NULL};
    if (!script)
        return err_set(err, -ENOMEM, "out of memory for %s", command);
    c->path = "/bin/sh";
    c->name = command;
    c->argv = argv;
    strbuf_init(&out, DISCOVERY_MAX_BYTES);
    int rc = capture_run(c, &out, err);
    c->argv = NULL;
    if (rc == 0)
        rc = discovery_parse(slots, command, &out, ret, err);
    strbuf_release(&out);
    return rc < 0 && !c->signal ? (err_prefix(err, "--host-discovery-script"), rc) : rc;
}
