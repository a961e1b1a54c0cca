/* SPDX-License-Identifier: Apache-2.0 */
/* --mpi-args and --binding-args: arguments that Horovod passes to mpirun. */
#ifndef RUNTIME_LAUNCH_CORE_MPI_WORDS_H
#define RUNTIME_LAUNCH_CORE_MPI_WORDS_H

#include "runtime/launch/core/options.h"

/* Reads "-x NAME=VALUE" as a variable and "-bind-to X" as --binding, unless that is
 * given. One warning lists the words without effect. -EINVAL with err if a word lacks
 * its value. */
int options_mpi_words(struct launch_options *o, struct err *err);

#endif
