/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels' image: cubins for some GPUs and PTX for all other GPUs, as written by
 * kernels/compile.py. */
#ifndef RUNTIME_BACKEND_NCCL_IMAGE_H
#define RUNTIME_BACKEND_NCCL_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"

/* The embedded image; image.c is not in the archive. Aligned to 16. */
extern const uint8_t kernels_image[];
extern const uint8_t kernels_image_end[];

enum image_kind { IMAGE_CUBIN, IMAGE_PTX };

struct image_part {
    uint32_t sm; /* 90; PTX: the least that can run it */
    enum image_kind kind;
    const void *data; /* in the image; PTX ends in NUL */
    uint64_t bytes;
};

/* The number of parts; -EPROTO: no image, or an incomplete one. */
int image_count(const void *image, size_t bytes, struct err *err);
/* Part i below image_count. */
struct image_part image_part(const void *image, size_t i);
/* The part that fits a GPU best: the cubin for it, else of the highest GPU below it of
 * the same major version, else (or with wants_ptx, alone) PTX. False: none fits.
 * image_count has accepted the image. */
bool image_pick(const void *image, uint32_t sm, bool wants_ptx, struct image_part *ret);
/* "sm_70 sm_75 ptx_70"; "" of an image without kernels. Returns buf, which is cut at
 * n. */
const char *image_text(const void *image, char *buf, size_t n);

#endif
