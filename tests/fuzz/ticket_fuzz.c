/* SPDX-License-Identifier: Apache-2.0 */
/* The Slurm plugin's ticket, which slurmstepd reads. What is accepted, rendered is the
 * same text; what is refused shows no byte of it. */
#include <errno.h>

#include "spank_plugin/ticket.h"
#include "tests/fuzz/fuzz.h"

FUZZ_TARGET(ticket)
{
    struct ticket t;
    char text[TICKET_MAX_BYTES];
    struct err err = ERR_INIT;

    fuzz_fill(&t, sizeof(t));
    int rc = ticket_parse((const char *)data, n, &t, &err);
    if (rc) {
        MUST(rc == -EINVAL && fuzz_is_filled(&t, sizeof(t)));
        MUST(!strcmp(err.text, TICKET_ENV " is damaged")
             || strstr(err.text, "the same version must be installed"));
        return 0;
    }
    MUST(t.port > 0 && n < TICKET_MAX_BYTES);
    ticket_render(&t, text);
    MUST(strlen(text) == n && memcmp(text, data, n) == 0);
    return 0;
}
