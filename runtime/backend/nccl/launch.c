/* SPDX-License-Identifier: Apache-2.0 */
/* From the image to functions of the driver, and one launch.
 *
 * Design: the image is read in place, and every number in it is checked before use. A
 * cubin runs on GPUs of its major version from its own on; PTX on all from its own on,
 * after the driver has compiled it. Cubins are of CUDA 12: a driver of CUDA 11 refuses
 * them and gets the PTX, which is declared as 7.0 (CUDA 11.0).
 *
 * A grid has at most 8 blocks of 256 threads per multiprocessor, the most threads that
 * it can have (registers allow 4 to 6 at once; the rest even out differences between
 * chunks); the kernels process their chunks in strides of the grid. Called by the
 * launcher. */
#include "runtime/backend/nccl/launch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { HEAD_BYTES = 16, ROW_BYTES = 24, MAX_PARTS = 64, BLOCKS_EACH = 8 };

static uint32_t u32_at(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

static uint64_t u64_at(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

struct image_part image_part(const void *image, size_t i)
{
    const uint8_t *p = (const uint8_t *)image + HEAD_BYTES + i * ROW_BYTES;
    return (struct image_part){.sm = u32_at(p),
                               .kind = u32_at(p + 4) == 0 ? IMAGE_CUBIN : IMAGE_PTX,
                               .data = (const uint8_t *)image + u64_at(p + 8),
                               .bytes = u64_at(p + 16)};
}

static bool is_part_whole(const uint8_t *image, size_t bytes, size_t i)
{
    const uint8_t *p = image + HEAD_BYTES + i * ROW_BYTES;
    uint64_t at = u64_at(p + 8), n = u64_at(p + 16);
    if (u32_at(p + 4) > IMAGE_PTX || at % 16 != 0 || n < 4 || at > bytes
        || n > bytes - at)
        return false;
    return u32_at(p + 4) == IMAGE_CUBIN ? memcmp(image + at, "\177ELF", 4) == 0
                                        : image[at + n - 1] == 0;
}

int image_count(const void *image, size_t bytes, struct err *err)
{
    const uint8_t *p = image;
    if (bytes < HEAD_BYTES || memcmp(p, "HVDK", 4) != 0 || u32_at(p + 4) != 1)
        return err_set(err, -EPROTO,
                       "the image of the GPU kernels is not of version 1");
    uint32_t n = u32_at(p + 8);
    if (n > MAX_PARTS || HEAD_BYTES + (size_t)n * ROW_BYTES > bytes)
        return err_set(err, -EPROTO, "the image of the GPU kernels is cut off");
    for (uint32_t i = 0; i < n; i++)
        if (!is_part_whole(p, bytes, i))
            return err_set(err, -EPROTO,
                           "part %u of the image of the GPU kernels is damaged", i);
    return (int)n;
}

/* Is a better than b (if set) for this GPU? */
static bool
is_better(const struct image_part *a, const struct image_part *b, uint32_t sm)
{
    if (a->sm > sm || (a->kind == IMAGE_CUBIN && a->sm / 10 != sm / 10))
        return false;
    if (!b->data)
        return true;
    return a->kind == b->kind ? a->sm > b->sm : a->kind == IMAGE_CUBIN;
}

bool image_pick(const void *image, uint32_t sm, bool wants_ptx, struct image_part *ret)
{
    struct image_part best = {0};
    uint32_t n = u32_at((const uint8_t *)image + 8);
    for (uint32_t i = 0; i < n; i++) {
        struct image_part p = image_part(image, i);
        if ((p.kind == IMAGE_PTX || !wants_ptx) && is_better(&p, &best, sm))
            best = p;
    }
    if (!best.data)
        return false;
    *ret = best;
    return true;
}

const char *image_text(const void *image, char *buf, size_t n)
{
    uint32_t parts = u32_at((const uint8_t *)image + 8);
    size_t at = 0;
    buf[0] = 0;
    for (uint32_t i = 0; i < parts && at < n; i++) {
        struct image_part p = image_part(image, i);
        int len = snprintf(buf + at, n - at, "%s%s_%u", i > 0 ? " " : "",
                           p.kind == IMAGE_CUBIN ? "sm" : "ptx", p.sm);
        at += len > 0 ? (size_t)len : 0;
    }
    return buf;
}

/* The driver may be too old for the part that fits best. */
static int
launch_load(struct gpu_launch *l, const void *image, uint32_t sm, struct err *err)
{
    int result = l->cu->module_load(&l->module, l->part.data);
    bool is_refused = result == CU_NO_BINARY || result == CU_INVALID_IMAGE
                      || result == CU_UNSUPPORTED_PTX || result == CU_INVALID_PTX
                      || result == CU_NOT_SUPPORTED;
    if (is_refused && l->part.kind == IMAGE_CUBIN
        && image_pick(image, sm, true, &l->part)) {
        result = l->cu->module_load(&l->module, l->part.data);
        is_refused = is_refused && result != CU_OK;
    }
    if (result == CU_OK)
        return 0;
    l->module = NULL;
    struct err why = ERR_INIT;
    int r = cuda_fail(l->cu, cuda_symbol(CUDA_module_load), result, &why);
    if (!is_refused)
        return err_set(err, r, "%s", why.text);
    return err_set(err, -ENOTSUP,
                   "the driver, for CUDA %d.%d, accepts none of the GPU kernels for "
                   "compute capability %u.%u (%.200s): try a newer driver",
                   l->cu->version / 1000, l->cu->version % 1000 / 10, sm / 10, sm % 10,
                   why.text);
}

int launch_init(struct gpu_launch *l,
                const struct cuda_api *cu,
                const void *image,
                size_t bytes,
                int sm,
                int n_multiprocessors,
                bool wants_ptx,
                struct err *err)
{
#define NAME(name, args) "hvd_" #name,
    static const char *const names[KERNEL_COUNT] = {KERNELS(NAME)};
#undef NAME
    struct gpu_launch made = {.cu = cu};
    int n = image_count(image, bytes, err);
    if (n < 0)
        return n;
    if (n == 0)
        return err_set(err, -ENOTSUP, "no GPU kernels were built in (KERNELS=none)");
    char kernels[64];
    if (!image_pick(image, (uint32_t)sm, wants_ptx, &made.part))
        return err_set(err, -ENOTSUP,
                       "a GPU of compute capability %d.%d is too old: the kernels are "
                       "%s",
                       sm / 10, sm % 10, image_text(image, kernels, sizeof(kernels)));
    int rc = launch_load(&made, image, (uint32_t)sm, err);
    if (rc < 0)
        return rc;
    for (size_t k = 0; k < KERNEL_COUNT; k++) {
        rc = CUDA_TRY(cu, module_func, err, &made.funcs[k], made.module, names[k]);
        if (rc < 0) {
            launch_release(&made);
            return rc;
        }
    }
    made.max_blocks =
        BLOCKS_EACH * (uint32_t)(n_multiprocessors > 0 ? n_multiprocessors : 1);
    *l = made;
    return 0;
}

void launch_release(struct gpu_launch *l)
{
    /* an error here means that the context is lost, with all its memory */
    if (l->module)
        (void)l->cu->module_free(l->module);
    l->module = NULL;
}

int launch_kernel(const struct gpu_launch *l,
                  enum kernel_id k,
                  uint32_t n_chunks,
                  const void *args,
                  cu_stream s,
                  struct err *err)
{
    /* the driver takes pointers to arguments that it only reads */
    union {
        const void *in;
        void *out;
    } a = {.in = args};
    void *params[] = {a.out};
    uint32_t blocks = n_chunks < l->max_blocks ? n_chunks : l->max_blocks;
    if (blocks == 0)
        return 0;
    return CUDA_TRY(l->cu, launch, err, l->funcs[k], blocks, 1, 1, KERNEL_THREADS, 1, 1,
                    0, s, params, NULL);
}
