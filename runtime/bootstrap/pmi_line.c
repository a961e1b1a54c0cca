/* SPDX-License-Identifier: Apache-2.0 */
/* The order of keys differs between launchers:
 *
 *   cmd=get_result rc=0 msg=success value=V      MPICH, Intel MPI
 *   cmd=get_result rc=0 value=V                  Slurm, Flux
 *   cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0
 *
 * No value that we request contains a blank (card.c). */
#include "runtime/bootstrap/pmi_line.h"

#include <stdlib.h>
#include <string.h>

bool pmi_value(const char *line, const char *key, char *ret, size_t size_bytes)
{
    size_t n_key = strlen(key);

    for (const char *p = line; *p;) {
        size_t n = strcspn(p, " ");

        if (n > n_key && p[n_key] == '=' && memcmp(p, key, n_key) == 0) {
            n -= n_key + 1;
            if (n >= size_bytes)
                return false;
            memcpy(ret, p + n_key + 1, n);
            ret[n] = '\0';
            return true;
        }
        p += n;
        p += strspn(p, " ");
    }
    return false;
}

bool pmi_is(const char *line, const char *cmd)
{
    char got[64];

    return pmi_value(line, "cmd", got, sizeof(got)) && strcmp(got, cmd) == 0;
}

long pmi_number(const char *line, const char *key, long or_else)
{
    char text[24], *end = NULL;

    if (!pmi_value(line, key, text, sizeof(text)) || !text[0])
        return or_else;
    long v = strtol(text, &end, 10);
    return *end ? or_else : v;
}
