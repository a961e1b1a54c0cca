/* SPDX-License-Identifier: Apache-2.0 */
/* Two decimal numbers and one blank. Strict, because a misread value would restart a
 * job at a wrong size. Called by the agent and, to render, by the operator. */
#include "runtime/contract/job_world.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "runtime/contract/hostlist.h"

void job_world_render(const struct job_world *w, char ret[JOB_WORLD_TEXT_SIZE])
{
    (void)snprintf(ret, JOB_WORLD_TEXT_SIZE, "%u %u", w->generation, w->workers);
}

/* Digits alone: the number parser would take blanks and signs before them. */
static int
read_number(const char *s, size_t n, uint32_t min, uint32_t max, uint32_t *ret)
{
    char number[JOB_WORLD_TEXT_SIZE];

    if (n == 0 || n >= sizeof(number) || strspn(s, "0123456789") < n)
        return -EINVAL;
    (void)snprintf(number, sizeof(number), "%.*s", (int)n, s);
    return parse_u32("world", number, min, max, ret, NULL);
}

int job_world_parse(const char *text, struct job_world *ret, struct err *err)
{
    size_t first = strcspn(text, " "), all = strcspn(text, "\n");
    struct job_world w;

    if (first < all && (!text[all] || !text[all + 1])
        && read_number(text, first, 0, UINT32_MAX, &w.generation) == 0
        && read_number(text + first + 1, all - first - 1, 1, HOSTLIST_MAX_HOSTS,
                       &w.workers)
               == 0) {
        *ret = w;
        return 0;
    }
    return err_set(err, -EINVAL,
                   "\"%.40s\" is not a generation and a number of workers from 1 to "
                   "%d, as in \"2 4\"",
                   text, HOSTLIST_MAX_HOSTS);
}
