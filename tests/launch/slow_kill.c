/* SPDX-License-Identifier: Apache-2.0 */
/* To preload: after SIGTERM was sent to a process group, kill() returns when the file
 * SLOW_KILL_UNTIL exists. That is an agent that the kernel does not run for a while after
 * it has forwarded the signal to its ranks. */
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((visibility("default"))) int kill(pid_t pid, int sig)
{
    const char *until = getenv("SLOW_KILL_UNTIL");
    int (*next)(pid_t, int);
    void *f = dlsym(RTLD_NEXT, "kill");
    int rc;

    memcpy(&next, &f, sizeof(next));
    rc = next(pid, sig);
    while (until && pid < 0 && sig == SIGTERM && access(until, F_OK) < 0)
        (void)poll(NULL, 0, 10);
    return rc;
}
