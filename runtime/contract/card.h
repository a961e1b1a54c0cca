/* SPDX-License-Identifier: Apache-2.0 */
/* The data that ranks exchange by a foreign launcher's own channel (PMI, PMIx), as one
 * line of printable text without blanks, and the place of a rank that follows from it.
 * Pure.
 *
 *   hvd1;HOST;NET;LOCAL[;PORT;TOKEN;ADDRESSES;JOB]       rank 0 only: the part in [] */
#ifndef RUNTIME_CONTRACT_CARD_H
#define RUNTIME_CONTRACT_CARD_H

#include <stdbool.h>

#include "runtime/contract/contract.h"

#define CARD_MAX_BYTES 1000 /* PMI carries 1024 */
#define CARD_KEY_BYTES 33
#define CARD_NO_LOCAL  UINT32_MAX

struct card {
    char host[CARD_KEY_BYTES];       /* equal on ranks of one host; hexadecimal */
    char net[CARD_KEY_BYTES];        /* equal where loopback reaches the other */
    uint32_t local_rank;             /* as set by the launcher, or CARD_NO_LOCAL */
    uint16_t port;                   /* from here on rank 0's; 0: another rank's card */
    char token[65];                  /* 64 hexadecimal digits */
    char addrs[HOST_NAME_MAX_BYTES]; /* separated by commas; may be "" */
    char job[JOB_ID_MAX];
};

/* -E2BIG when it does not fit. */
int card_format(const struct card *c, char *ret, size_t size_bytes, struct err *err);
/* -EPROTO names the rank whose card it is. */
int card_parse(const char *text, uint32_t rank, struct card *ret, struct err *err);

/* The part of each rank's card that a place follows from. */
struct card_place {
    char host[CARD_KEY_BYTES];
    uint32_t local_rank; /* of all ranks, or CARD_NO_LOCAL for all */
};
/* Completes p, of which rank and size are known. Local ranks count along the ranks of
 * one host, hosts along their first ranks. -EPROTO: some cards have a local rank and
 * some do not; -ENOMEM. */
int card_find_place(const struct card_place *v, struct place *p, struct err *err);

#endif
