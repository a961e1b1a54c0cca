/* SPDX-License-Identifier: Apache-2.0 */
/* What selftest.sh runs under jitter.so: probe CALL N does N calls and prints what came
 * of them, which must be the same with and without the library. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int n_passed; /* under lock: by both threads in turn */

static void lock_often(int n)
{
    for (int i = 0; i < n; i++) {
        pthread_mutex_lock(&lock);
        n_passed++;
        pthread_mutex_unlock(&lock);
    }
}

static void *turn_take(void *arg)
{
    for (int i = 0; i < *(int *)arg; i++) {
        pthread_mutex_lock(&lock);
        while (n_passed % 2 == 0)
            pthread_cond_wait(&changed, &lock);
        n_passed++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static void turns_alternate(int n)
{
    pthread_t t;

    if (pthread_create(&t, NULL, turn_take, &n) != 0)
        abort();
    for (int i = 0; i < n; i++) {
        pthread_mutex_lock(&lock);
        while (n_passed % 2 == 1)
            pthread_cond_wait(&changed, &lock);
        n_passed++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    pthread_join(t, NULL);
}

/* Bytes through a pair of sockets, by each kind of call; errno must survive a pause. */
static void bytes_pass(int n)
{
    int fd[2];
    char c[4] = "abc";

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd) != 0)
        abort();
    for (int i = 0; i < n; i++) {
        struct pollfd p = {.fd = fd[1], .events = POLLIN};
        n_passed += send(fd[0], c, 3, 0) == 3 && poll(&p, 1, -1) == 1;
        n_passed += recv(fd[1], c, 3, 0) == 3 && strcmp(c, "abc") == 0;
        n_passed += write(fd[0], c, 2) == 2 && read(fd[1], c, 2) == 2;
        errno = 0;
        n_passed += recv(fd[1], c, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN;
    }
}

static void children_lock(int n)
{
    for (int i = 0; i < 3; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            lock_often(n);
            exit(n_passed == n ? 0 : 1);
        }
        int status = 0;
        n_passed += waitpid(pid, &status, 0) == pid && status == 0;
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[1] : "";
    int n = argc > 2 ? atoi(argv[2]) : 0;

    if (strcmp(what, "lock") == 0)
        lock_often(n);
    else if (strcmp(what, "turns") == 0)
        turns_alternate(n);
    else if (strcmp(what, "bytes") == 0)
        bytes_pass(n);
    else if (strcmp(what, "fork") == 0)
        children_lock(n);
    printf("%s %d\n", what, n_passed);
    return n_passed > 0 ? 0 : 1;
}
