/* SPDX-License-Identifier: Apache-2.0 */
/* Pages are the files rank.N of a folder, which ranks map and write (observe/stats.c). They
 * are read, not mapped: a file that a rank truncates is then a short read and not a
 * SIGBUS in the process that is PID 1 of the pod. Files that are no valid page are
 * skipped. Called by metrics.c, live_host.c and examine_command.c. */
#include "runtime/launch/stats_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/parse.h"
#include "runtime/contract/contract.h"
#include "runtime/contract/stats_page.h"
#include "runtime/contract/step_pages.h"

enum { PAGES_MAX = 65536 };

/* The rank writes its progress within a microsecond. One that was stopped or killed
 * meanwhile leaves an odd turn, and numbers without metrics. */
static ssize_t page_copy(int fd, struct stats_page *ret)
{
    enum { TRIES = 16 };
    const off_t at = offsetof(struct stats_page, progress_turn);
    uint64_t before, after;
    ssize_t n = 0;

    for (int i = 0; i < TRIES; i++) {
        if (pread(fd, &before, sizeof(before), at) != sizeof(before))
            return -1;
        n = pread(fd, ret, sizeof(*ret), 0);
        if (n < 0 || pread(fd, &after, sizeof(after), at) != sizeof(after))
            return -1;
        if (before % 2 == 0 && before == after)
            return n;
    }
    ret->progress_turn |= 1;
    return n;
}

struct stats_page *stats_page_read(const char *path)
{
    CLEANUP(fd_close)
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    AUTOFREE struct stats_page *p = mem_zalloc(sizeof(*p));
    ssize_t n;

    if (fd < 0 || !p)
        return NULL;
    n = page_copy(fd, p);
    if (n < 0 || stats_page_check(p, (size_t)n, NULL) < 0)
        return NULL;
    return TAKE(p);
}

static int page_compare_rank(const void *a, const void *b)
{
    const struct stats_page *const *x = a, *const *y = b;

    return (*x)->rank < (*y)->rank ? -1 : (*x)->rank > (*y)->rank;
}

size_t stats_dir_read(const char *dir, struct stats_page ***ret)
{
    DIR *d = opendir(dir);
    const struct dirent *entry;
    void *v = NULL;
    size_t n = 0, cap = 0;
    uint32_t rank;

    while (d && (entry = readdir(d)) != NULL) {
        char path[CONTRACT_PATH_MAX + 300];
        struct stats_page *p;

        if (strncmp(entry->d_name, "rank.", 5) != 0
            || parse_u32("rank", entry->d_name + 5, 0, UINT32_MAX, &rank, NULL) < 0)
            continue; /* a temporary or another file */
        (void)snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
        p = stats_page_read(path);
        if (!p)
            continue;
        if (mem_grow(&v, n, &cap, sizeof(void *), PAGES_MAX) < 0) {
            mem_free(p);
            break;
        }
        ((struct stats_page **)v)[n++] = p;
    }
    if (d)
        (void)closedir(d);
    if (n > 0)
        qsort(v, n, sizeof(void *), page_compare_rank);
    *ret = v;
    return n;
}

void stats_dir_free(struct stats_page **pages, size_t n)
{
    for (size_t i = 0; i < n; i++)
        mem_free(pages[i]);
    mem_free(pages);
}

const char *stats_dir_choose(const char *set, const char *own)
{
    bool is_of_step =
        set && strncmp(set, STEP_PAGES_PATH, strlen(STEP_PAGES_PATH)) == 0;

    return set && *set && !is_of_step ? set : own;
}

void stats_dir_text(const char *dir, struct strbuf *out)
{
    struct stats_page **pages;
    size_t n = stats_dir_read(dir, &pages);

    stats_page_text((const struct stats_page *const *)pages, n, out);
    stats_dir_free(pages, n);
}
