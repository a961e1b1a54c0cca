/* SPDX-License-Identifier: Apache-2.0 */
/* name.h: one name for an operation on all ranks. */
#ifndef RUNTIME_TENSORFLOW_NAME_H
#define RUNTIME_TENSORFLOW_NAME_H

#include <stddef.h>

/* Writes "WORD.NAME" to ret (n bytes). A name that does not fit keeps its end, and a
 * hash of the whole replaces its beginning, so that equal names stay equal on all
 * ranks. Pure. */
void name_make(char *ret, size_t n, const char *word, const char *name, size_t length);

/* The part of a node's name behind its last '/'. Pure. */
size_t name_scope_length(const char *name, size_t length);

/* Writes name to ret (as long, no NUL) without parts like "_9/" behind a '/'; returns
 * the length. Pure. */
size_t name_stable(char *ret, const char *name, size_t length);

#endif
