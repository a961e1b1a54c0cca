/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a rank's last lines show a GPU error that is the cause of the rank's end, a
 * consequence, or neither. Pure. */
#ifndef RUNTIME_CONTRACT_GPU_CAUSE_H
#define RUNTIME_CONTRACT_GPU_CAUSE_H

#include <stddef.h>
#include <stdint.h>

enum gpu_cause {
    GPU_CAUSE_NONE,
    GPU_CAUSE_HARDWARE, /* XID 79: the cause of any other error that is reported */
    GPU_CAUSE_PROGRAM,  /* CUDA_ERROR_ILLEGAL_ADDRESS, XID 31: may be, as SIGSEGV may */
    GPU_CAUSE_REMOTE    /* NCCL lost a peer: a consequence, as "was lost" is */
};

/* Searches lines of text for the most important of these messages:
 *
 *   XID 79 (GPU has fallen off the bus) on GPU 0 (PCI 0000:3B:00.0)
 *     of rank 3 (host b): ..
 *   .. CUDA_ERROR_ILLEGAL_ADDRESS .., and what frameworks write for it
 *   NCCL asynchronous error on rank 3 (host b), .., which may be about another rank
 *
 * and copies it to ret_why (without the text before it, up to a "; ", cut to size), ""
 * for GPU_CAUSE_NONE. *ret_rank: the rank of the GPU that it names, -1: none. A message
 * that was copied is found again. */
enum gpu_cause
gpu_cause_scan(const char *text, char *ret_why, size_t size_bytes, int32_t *ret_rank);

#endif
