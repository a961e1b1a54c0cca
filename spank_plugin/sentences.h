/* SPDX-License-Identifier: Apache-2.0 */
/* What srun prints of the sentences that tasks have sent. Pure. */
#ifndef SPANK_PLUGIN_SENTENCES_H
#define SPANK_PLUGIN_SENTENCES_H

#include <stdint.h>

#define SENTENCES_MAX 8

typedef void (*sentence_fn)(void *arg, const char *sentence);

/* Calls print once for each different sentence, at most SENTENCES_MAX times. Sentences
 * that differ only in the node before them ("node1: ") are one, with the names of its
 * first nodes and the number of further ones. Those of size 0 are none. */
void sentences_print(uint8_t *const *sentences,
                     const uint32_t *sizes,
                     uint32_t n,
                     sentence_fn print,
                     void *arg);

#endif
