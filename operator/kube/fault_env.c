/* SPDX-License-Identifier: Apache-2.0 */
/* Faults by environment, only in hvd-operator-faults, which is never shipped.
 *
 *   HVD_CRASH=before:3       exits without clean-up before the third write is sent
 *   HVD_CRASH=after:3        the same when the third write was answered
 *   HVD_CRASH=stop:3         SIGSTOP when the third write has its connection and is not
 *                            sent yet
 *   HVD_NO_MEMORY=TEXT:5     one allocation fails: the one after the next five, counted
 *                            from the first event of a watch that contains TEXT
 *   HVD_HANGING_NAME=NAME    the resolver hangs for that name
 *
 * See fault.h. */
#include "operator/kube/fault.h"

#include <dlfcn.h>
#include <netdb.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/mem.h"

#define RESOLVER_S 40 /* two name servers, two tries of 10 s each */

static bool fault_is_due(const char *when, uint64_t number)
{
    const char *s = getenv("HVD_CRASH");
    size_t n = strlen(when);

    return s && strncmp(s, when, n) == 0 && s[n] == ':'
           && strtoull(s + n + 1, NULL, 10) == number;
}

static void fault_crash_at(const char *when, uint64_t number)
{
    if (!fault_is_due(when, number))
        return;
    (void)fprintf(stderr, "hvd-operator-faults: crash %s\n", when);
    _exit(FAULT_EXIT_CODE);
}

void fault_before_write(uint64_t number)
{
    fault_crash_at("before", number);
}

void fault_after_write(uint64_t number)
{
    fault_crash_at("after", number);
}

void fault_at_send(uint64_t number)
{
    if (fault_is_due("stop", number))
        (void)raise(SIGSTOP);
}

/* Replaces libc's, also for libcurl. */
__attribute__((visibility("default"))) int getaddrinfo(const char *name,
                                                       const char *service,
                                                       const struct addrinfo *req,
                                                       struct addrinfo **pai)
{
    typedef int (*resolve_fn)(const char *, const char *, const struct addrinfo *,
                              struct addrinfo **);
    const char *hanging = getenv("HVD_HANGING_NAME");
    void *found = dlsym(RTLD_NEXT, "getaddrinfo");
    resolve_fn resolve;

    if (hanging && name && strcmp(name, hanging) == 0) {
        (void)sleep(RESOLVER_S);
        return EAI_AGAIN;
    }
    memcpy(&resolve, &found, sizeof(resolve));
    return resolve(name, service, req, pai);
}

void fault_before_event(const char *line, size_t n)
{
    static bool has_failed;
    const char *s = getenv("HVD_NO_MEMORY"), *colon = s ? strchr(s, ':') : NULL;

    if (has_failed || !colon || !memmem(line, n, s, (size_t)(colon - s)))
        return;
    has_failed = true;
    mem_fail_after(strtol(colon + 1, NULL, 10));
}
