/* SPDX-License-Identifier: Apache-2.0
 *
 * The process that holds a pod's namespaces: sleeps, reaps what is left to it where
 * pods share a PID namespace, and ends on SIGTERM. Linked statically; the only file of
 * its image. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void leave(int signal_number)
{
    (void)signal_number;
    _exit(0);
}

static void reap(int signal_number)
{
    (void)signal_number;
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
}

int main(void)
{
    struct sigaction action = {.sa_handler = leave};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    action.sa_handler = reap;
    action.sa_flags = SA_NOCLDSTOP;
    sigaction(SIGCHLD, &action, NULL);
    for (;;)
        pause();
}
