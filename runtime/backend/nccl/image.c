/* SPDX-License-Identifier: Apache-2.0 */
/* Embeds the file that compile.py wrote into the library. KERNELS_BIN comes from
 * module.mk. */
#include "runtime/backend/nccl/image.h"

__asm__(".section .rodata\n"
        ".balign 16\n"
        ".hidden kernels_image, kernels_image_end\n"
        ".global kernels_image, kernels_image_end\n"
        "kernels_image:\n"
        ".incbin \"" KERNELS_BIN "\"\n"
        "kernels_image_end:\n"
        ".byte 0\n"
        ".previous\n");
