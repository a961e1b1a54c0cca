/* SPDX-License-Identifier: Apache-2.0 */
/* Exit codes: that of the first failed rank, 128 + signal, or 0. Called by horovodrun.c
 * and local_job.c. */
#include "runtime/launch/outcome.h"

#include <stdio.h>
#include <string.h>

#include "runtime/launch/signals.h"
#include "runtime/launch/termination.h"

/* Prints a failure; in a launcher's pod also reports it to the operator. */
static void outcome_print_failure(const char *program, const struct report *r)
{
    char sentence[480];
    termination_write(termination_path(), r);
    report_sentence(r, sentence, sizeof(sentence));
    fprintf(stderr, "%s: %s\n", program, sentence);
    if (!*r->tail)
        return;
    fprintf(stderr, "%s: the last lines of rank %d:\n", program, r->f.rank);
    for (const char *p = r->tail; *p;) {
        size_t n = strcspn(p, "\n");
        fprintf(stderr, "    %.*s\n", (int)n, p);
        p += n + (p[n] == '\n');
    }
}

int outcome_print(const char *program, const struct report *first, int sig)
{
    if (first) {
        outcome_print_failure(program, first);
        return failure_exit_code(&first->f);
    }
    if (sig) {
        fprintf(stderr, "%s: stopped by %s\n", program, signal_name(sig));
        return 128 + sig;
    }
    return 0;
}
