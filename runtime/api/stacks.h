/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks of this process for the launcher (contract/stacks_file.h). */
#ifndef RUNTIME_API_STACKS_H
#define RUNTIME_API_STACKS_H

/* Handles STACKS_SIGNAL and creates the file, once for the process. Nothing where dir is
 * "", or where the program handles the signal itself. */
void stacks_watch(const char *dir);

#endif
