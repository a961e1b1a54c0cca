/* SPDX-License-Identifier: Apache-2.0 */
/* numbers.h: numbers of eager operations that have no name. */
#ifndef RUNTIME_TENSORFLOW_NUMBERS_H
#define RUNTIME_TENSORFLOW_NUMBERS_H

#include <stdint.h>

#define NUMBERS_MAX 64

struct numbers;

/* The numbers of one kind of operation (identified by any address) in one process set;
 * NULL: out of memory. Valid until the process exits. Any thread. */
struct numbers *numbers_of(const void *kind, int32_t process_set);

/* The lowest number that is free; NUMBERS_MAX: none is. */
int numbers_take(struct numbers *n);
void numbers_give_back(struct numbers *n, int number); /* NUMBERS_MAX: does nothing */

#endif
