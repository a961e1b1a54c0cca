/* SPDX-License-Identifier: Apache-2.0 */
/* How an agent gets the stacks of a rank that hangs, without a debugger.
 *
 *   agent: empties HVD_STATS_DIR/stacks.PID, sends STACKS_SIGNAL to the main thread
 *   rank:  Python's faulthandler writes all Python threads, if Python is there
 *          libhvd's handler writes "native", one address a line, and "end"
 *
 * If the main thread does not answer, since the kernel does not let it run, the agent
 * asks another thread, which writes "other" in place of "native" and addresses.
 *
 * The signal is the fourth real-time signal from the end of the range. glibc and musl
 * use the first ones (32 to 34), .NET and garbage collectors those after them; Valgrind
 * uses 64, HVD_STALL_STACKS 62. Python, JVMs, NCCL and CUDA use none of the range. A
 * process that has not set a handler would die: a sender must look at SigCgt first. */
#ifndef RUNTIME_CONTRACT_STACKS_FILE_H
#define RUNTIME_CONTRACT_STACKS_FILE_H

#define STACKS_SIGNAL    61
#define STACKS_FILE      "stacks." /* and the pid */
#define STACKS_NATIVE    "native"
#define STACKS_OTHER     "other"
#define STACKS_END       "end"
#define STACKS_MAX_BYTES (1u << 20)

#endif
