/* SPDX-License-Identifier: Apache-2.0 */
/* --mpi-args and --binding-args: what horovodrun would give to mpirun. */
#ifndef RUNTIME_LAUNCH_CORE_MPI_WORDS_H
#define RUNTIME_LAUNCH_CORE_MPI_WORDS_H

#include "runtime/launch/core/options.h"

/* Takes "-x NAME=VALUE" as a variable and "-bind-to X" as --binding unless that is
 * given; one warning names what is left without effect. -EINVAL with a sentence for a
 * word that lacks its value. */
int options_mpi_words(struct launch_options *o, struct err *err);

#endif
