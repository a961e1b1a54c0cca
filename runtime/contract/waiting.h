/* SPDX-License-Identifier: Apache-2.0 */
/* The line "waiting for rank 1 of 2" while a world forms: when it is due, which rank
 * writes it, and its text. Pure. Called by everything that waits for ranks at start:
 * the rendezvous server, its client, and the launcher's channel (bootstrap). */
#ifndef RUNTIME_CONTRACT_WAITING_H
#define RUNTIME_CONTRACT_WAITING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* When the next line is due, for a wait that began at since_ns: 10 s after that, then
 * once a minute. Later than now_ns. */
uint64_t waiting_next_ns(uint64_t since_ns, uint64_t now_ns);

/* Whether this rank writes the line where each rank waits by itself. first_missing: the
 * first rank that is absent; size: unknown. Rank 0 writes it if it is there. Otherwise
 * ranks 1, 2, 4, 8, ... do, because none of them knows which ranks are there: 10
 * lines in a job of 1,000 ranks. */
bool waiting_is_writer(uint32_t rank, uint32_t size, uint32_t first_missing);

/* "waiting for rank 1 of 2", "waiting for rank 1 of 4 (the first that is missing)", or
 * for an unknown rank "waiting for some of 4 ranks". */
void waiting_text(uint32_t size, uint32_t first_missing, char *ret, size_t size_bytes);
/* Format of the details of such a line in the log. unsigned long long: the seconds so
 * far. */
#define WAITING_DETAILS "waited_s=%llu limit=HOROVOD_START_TIMEOUT"

#endif
