/* SPDX-License-Identifier: Apache-2.0 */
/* done.h: keeping TensorFlow's completion callback of an asynchronous kernel beyond
 * compute().
 *
 * TensorFlow's C API hands an asynchronous kernel the address of a
 * std::function<void()> that lives on the caller's stack: once compute() has returned
 * it is gone (a crash inside tf.function, luck in eager mode). It must be copied, which
 * the C API has no function for. The object's layout is libstdc++'s, unchanged since
 * GCC 4: two words of storage, a manager (2: clone, 3: destroy) and an invoker. That is
 * looked at before it is trusted. */
#ifndef RUNTIME_TENSORFLOW_DONE_H
#define RUNTIME_TENSORFLOW_DONE_H

#include <stdbool.h>

struct TF_AsyncOpKernelDoneCallback;
struct done;

/* Does the callback look like libstdc++'s std::function: are its third and fourth words
 * code of a loaded library? Under libc++ the fourth word is an object's address. Pure
 * but for the loader. */
bool done_is_clonable(const struct TF_AsyncOpKernelDoneCallback *callback);

/* A copy that may be run after compute() has returned; NULL when memory is out. Only
 * after done_is_clonable() said yes. */
struct done *done_clone(const struct TF_AsyncOpKernelDoneCallback *callback);

/* Runs the callback once and frees the copy. */
void done_run(struct done *d);

/* Frees a copy that is not to be run. Accepts NULL. */
void done_free(struct done *d);

#endif
