/* SPDX-License-Identifier: Apache-2.0 */
/* The files of /proc/PID that an examination reads, as text. Pure. */
#ifndef RUNTIME_LAUNCH_CORE_PROC_TEXT_H
#define RUNTIME_LAUNCH_CORE_PROC_TEXT_H

#include "runtime/launch/core/hang.h"

struct proc_stat {
    char state;
    uint32_t parent;
    uint64_t n_major_faults, cpu_ticks, start_ticks, resident_pages;
};
/* Of /proc/PID/stat and /proc/PID/task/TID/stat. False: damaged. */
bool proc_text_stat(const char *text, struct proc_stat *ret);
/* A line of /proc/PID/status, as "VmSwap" or "TracerPid"; 0: absent. base 10 or 16. */
uint64_t proc_text_status(const char *text, const char *key, int base);
/* Whether a signal is in a mask of /proc/PID/status: "SigCgt", "SigBlk". */
bool proc_text_has_signal(const char *text, const char *key, int sig);
/* Of /proc/PID/syscall: sets syscall, arg and sp. "": unknown. */
void proc_text_syscall(const char *text, struct hang_thread *ret);

/* A mapping of a file in /proc/PID/maps. */
struct proc_mapping {
    uint64_t start, end, offset;
    char path[1024];
};
/* The mapping that contains address; false: there is none, or it is of no file. */
bool proc_text_mapping(const char *maps, uint64_t address, struct proc_mapping *ret);

#endif
