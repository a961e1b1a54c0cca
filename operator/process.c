/* SPDX-License-Identifier: Apache-2.0 */
/* Reads /proc/self and the process's limits at the time of a scrape; keeps nothing. */
#include "operator/process.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"

static uint64_t rss_bytes(void)
{
    AUTOFREE char *text = NULL;
    unsigned long total, resident;
    long page = sysconf(_SC_PAGESIZE);
    size_t n;

    if (page <= 0 || fd_read_file("/proc/self/statm", 256, &text, &n, NULL) < 0
        || sscanf(text, "%lu %lu", &total, &resident) != 2)
        return 0;
    return (uint64_t)resident * (uint64_t)page;
}

static uint64_t n_open_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    const struct dirent *entry;
    uint64_t n = 0;

    if (!d)
        return 0;
    while ((entry = readdir(d)) != NULL)
        n += entry->d_name[0] != '.';
    (void)closedir(d);
    return n - 1; /* without the one of this function */
}

static uint64_t timeval_us(struct timeval t)
{
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_usec;
}

void process_read(struct process_facts *ret)
{
    struct rlimit files;
    struct rusage used;

    *ret = (struct process_facts){.rss_bytes = rss_bytes(), .open_fds = n_open_fds()};
    if (getrusage(RUSAGE_SELF, &used) == 0)
        ret->cpu_us = timeval_us(used.ru_utime) + timeval_us(used.ru_stime);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0)
        ret->max_fds = files.rlim_cur;
}
