/* SPDX-License-Identifier: Apache-2.0 */
/* The formats are proc(5). A process chooses its name, which stands in brackets in
 * `stat`, so the last bracket counts. Called by launch/examine.c and symbols.c. */
#include "runtime/launch/core/proc_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool proc_text_stat(const char *text, struct proc_stat *ret)
{
    const char *p = strrchr(text, ')');
    unsigned long long faults, user, kernel, start, pages;
    unsigned int parent;
    char state;

    /* state ppid pgrp session tty tpgid flags minflt cminflt MAJFLT cmajflt UTIME STIME
     * cutime cstime priority nice threads itrealvalue START vsize RSS */
    if (!p
        || sscanf(p + 1,
                  " %c %u %*s %*s %*s %*s %*s %*s %*s %llu %*s %llu %llu %*s %*s %*s "
                  "%*s %*s %*s %llu %*s %llu",
                  &state, &parent, &faults, &user, &kernel, &start, &pages)
               != 7)
        return false;
    *ret = (struct proc_stat){.state = state,
                              .parent = parent,
                              .n_major_faults = faults,
                              .cpu_ticks = user + kernel,
                              .start_ticks = start,
                              .resident_pages = pages};
    return true;
}

static const char *status_find(const char *text, const char *key)
{
    size_t n = strlen(key);

    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, n) == 0 && line[n] == ':')
            return line + n + 1;
    }
    return NULL;
}

uint64_t proc_text_status(const char *text, const char *key, int base)
{
    const char *value = status_find(text, key);

    return value ? strtoull(value, NULL, base) : 0;
}

bool proc_text_has_signal(const char *text, const char *key, int sig)
{
    return proc_text_status(text, key, 16) >> (sig - 1) & 1;
}

void proc_text_syscall(const char *text, struct hang_thread *ret)
{
    unsigned long long v[8];
    long long number;
    int n;

    ret->syscall = HANG_UNKNOWN;
    ret->sp = 0;
    for (int i = 0; i < 6; i++)
        ret->arg[i] = 0;
    if (strncmp(text, "running", 7) == 0) {
        ret->syscall = HANG_RUNNING;
        return;
    }
    n = sscanf(text, "%lld %llx %llx %llx %llx %llx %llx %llx", &number, &v[0], &v[1],
               &v[2], &v[3], &v[4], &v[5], &v[6]);
    if (n == 3 && number == -1) {
        ret->syscall = HANG_NOT_IN_SYSCALL;
        ret->sp = v[0];
    } else if (n == 8 && number >= 0) {
        ret->syscall = number;
        for (int i = 0; i < 6; i++)
            ret->arg[i] = v[i];
        ret->sp = v[6];
    }
}

/* "55d0-55e0 r-xp 00001000 fe:01 131    /usr/bin/python3.11", without its newline. */
static bool mapping_read(const char *line, size_t n, struct proc_mapping *ret)
{
    char text[sizeof(ret->path) + 128];
    unsigned long long start, end, offset;
    int at = 0;

    if (n >= sizeof(text))
        return false;
    (void)snprintf(text, sizeof(text), "%.*s", (int)n, line);
    if (sscanf(text, "%llx-%llx %*s %llx %*s %*s %n", &start, &end, &offset, &at) != 3
        || text[at] != '/' || n - (size_t)at >= sizeof(ret->path))
        return false;
    ret->start = start;
    ret->end = end;
    ret->offset = offset;
    (void)snprintf(ret->path, sizeof(ret->path), "%s", text + at);
    return true;
}

bool proc_text_mapping(const char *maps, uint64_t address, struct proc_mapping *ret)
{
    for (const char *line = maps; *line;) {
        size_t n = strcspn(line, "\n");
        char *p;
        uint64_t start = strtoull(line, &p, 16), end = 0;

        if (*p == '-')
            end = strtoull(p + 1, NULL, 16);
        if (start <= address && address < end)
            return mapping_read(line, n, ret);
        line += n + (line[n] == '\n');
    }
    return false;
}
