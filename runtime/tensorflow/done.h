/* SPDX-License-Identifier: Apache-2.0 */
/* done.h: keeping TensorFlow's completion callback of an asynchronous kernel beyond
 * compute().
 *
 * TensorFlow's C API passes an asynchronous kernel the address of a
 * std::function<void()> on the caller's stack. It is invalid once compute() has
 * returned (using it crashes inside tf.function). It must be copied, and the C API has
 * no function for that. The layout is libstdc++'s, unchanged since GCC 4: two words of
 * storage, a manager (2: clone, 3: destroy) and an invoker. The layout is checked
 * before use. */
#ifndef RUNTIME_TENSORFLOW_DONE_H
#define RUNTIME_TENSORFLOW_DONE_H

#include <stdbool.h>

struct TF_AsyncOpKernelDoneCallback;
struct done;

/* Whether the callback looks like libstdc++'s std::function: its third and fourth words
 * are code of a loaded library. Under libc++ the fourth word is an object's address. */
bool done_is_clonable(const struct TF_AsyncOpKernelDoneCallback *callback);

/* A copy that may be run after compute() has returned; NULL: out of memory. Requires
 * done_is_clonable(). */
struct done *done_clone(const struct TF_AsyncOpKernelDoneCallback *callback);

/* Runs the callback once and frees the copy. */
void done_run(struct done *d);

/* Frees a copy without running it. Accepts NULL. */
void done_free(struct done *d);

#endif
