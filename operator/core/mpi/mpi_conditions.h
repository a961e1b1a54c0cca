/* SPDX-License-Identifier: Apache-2.0 */
/* The conditions of an MPIJob's status, with mpi-operator's rules for setting one.
 * Pure. */
#ifndef OPERATOR_CORE_MPI_MPI_CONDITIONS_H
#define OPERATOR_CORE_MPI_MPI_CONDITIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "operator/doc/node.h"

#define MPI_MAX_CONDITIONS 16

struct mpi_condition {
    const char *type, *status, *reason, *message;
    const char *updated, *since; /* lastUpdateTime, lastTransitionTime; RFC 3339 */
};

struct mpi_conditions { /* strings belong to the status and to the callers of set */
    struct mpi_condition v[MPI_MAX_CONDITIONS];
    size_t n;
};

/* Loads a stored status. Conditions without a type or beyond the limit are dropped. */
void mpi_conditions_load(struct mpi_conditions *c, const struct node *status);
const struct mpi_condition *mpi_conditions_find(const struct mpi_conditions *c,
                                                const char *type);
bool mpi_conditions_is_true(const struct mpi_conditions *c, const char *type);
/* Returns false and changes nothing if the condition has that status and reason
 * already, whatever its message. Otherwise the condition becomes the last one. */
bool mpi_conditions_set(struct mpi_conditions *c,
                        const char *type,
                        bool is_true,
                        const char *reason,
                        const char *message,
                        const char *now);
/* Changes the message of a condition that exists; its place and lastTransitionTime stay.
 */
void mpi_conditions_reword(struct mpi_conditions *c,
                           const char *type,
                           const char *message,
                           const char *now);
struct node *mpi_conditions_node(struct build *b, const struct mpi_conditions *c);

#endif
