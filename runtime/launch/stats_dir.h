/* SPDX-License-Identifier: Apache-2.0 */
/* The counters that the ranks of a host keep in a folder. */
#ifndef RUNTIME_LAUNCH_STATS_DIR_H
#define RUNTIME_LAUNCH_STATS_DIR_H

#include "runtime/base/strbuf.h"
#include "runtime/contract/stats_page.h"

/* The pages in dir, by rank; the number of them. A folder that is missing has no page.
 * For stats_dir_free. */
size_t stats_dir_read(const char *dir, struct stats_page ***ret);
void stats_dir_free(struct stats_page **pages, size_t n);

/* set, which is HVD_STATS_DIR, if the user has set it; else own. That of the Slurm step in
 * which a launcher runs is not the user's: other worlds of the step have it too, and only
 * one node has the folder. */
const char *stats_dir_choose(const char *set, const char *own);

/* Appends the pages in dir as Prometheus' text, by rank. A folder that is missing has no
 * page. */
void stats_dir_text(const char *dir, struct strbuf *out);

/* A copy of one page, for the caller to mem_free; NULL: there is none, or memory is
 * out. */
struct stats_page *stats_page_read(const char *path);

#endif
