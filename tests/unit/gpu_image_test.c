/* SPDX-License-Identifier: Apache-2.0 */
/* The image: constructed ones for every choice and every damage, and the one from
 * compile.py; and a launch over a driver of a few functions here. */
#include "runtime/backend/nccl/launch.h"
#include "tests/unit/unit.h"

/* --- a made-up image -------------------------------------------------------------- */

struct made {
    _Alignas(16) uint8_t bytes[1024];
    size_t n;
};

/* Fields are of 4 bytes, but a part's place and its length of 8. */
static void field_put(struct made *m, size_t at, uint64_t v)
{
    memcpy(m->bytes + at, &v, at < 24 || (at - 16) % 24 < 8 ? 4 : 8);
}

/* sms, 0 ends; those above 1000 are PTX. */
static struct made image_make(const uint32_t *sms)
{
    struct made m = {.bytes = "HVDK"};
    uint32_t n = 0;
    while (sms[n] != 0)
        n++;
    field_put(&m, 4, 1);
    field_put(&m, 8, n);
    m.n = (16 + 24 * (size_t)n + 15) & ~(size_t)15;
    for (uint32_t i = 0; i < n; i++) {
        bool is_ptx = sms[i] > 1000;
        field_put(&m, 16 + 24 * i, sms[i] % 1000);
        field_put(&m, 20 + 24 * i, is_ptx);
        field_put(&m, 24 + 24 * i, m.n);
        field_put(&m, 32 + 24 * i, 8);
        memcpy(m.bytes + m.n, is_ptx ? ".ptx   " : "\177ELFcub", 8);
        m.n += 16;
    }
    return m;
}

UNIT_TEST(best_part_is_picked)
{
    static const uint32_t sms[] = {70, 75, 80, 86, 90, 100, 1070, 1090, 0};
    static const struct {
        uint32_t sm;
        bool wants_ptx, is_there;
        uint32_t got;
        enum image_kind kind;
    } rows[] = {
        {90, false, true, 90, IMAGE_CUBIN},   {75, false, true, 75, IMAGE_CUBIN},
        {72, false, true, 70, IMAGE_CUBIN},   {87, false, true, 86, IMAGE_CUBIN},
        {103, false, true, 100, IMAGE_CUBIN}, {89, false, true, 86, IMAGE_CUBIN},
        {120, false, true, 90, IMAGE_PTX},    {90, true, true, 90, IMAGE_PTX},
        {86, true, true, 70, IMAGE_PTX},      {61, false, false, 0, IMAGE_PTX},
    };
    struct made m = image_make(sms);
    char text[128];
    assert_int_equal(8, image_count(m.bytes, m.n, NULL));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct image_part p = {0};
        assert_int_equal(rows[i].is_there,
                         image_pick(m.bytes, rows[i].sm, rows[i].wants_ptx, &p));
        if (p.sm != rows[i].got || (p.data != NULL && p.kind != rows[i].kind))
            fail_msg("sm_%u got %u", rows[i].sm, p.sm);
    }
    assert_string_equal("sm_70 sm_75 sm_80 sm_86 sm_90 sm_100 ptx_70 ptx_90",
                        image_text(m.bytes, text, sizeof(text)));
    assert_string_equal("sm_70 s", image_text(m.bytes, text, 8));
}

UNIT_TEST(damaged_image_is_refused)
{
    static const uint32_t sms[] = {70, 1070, 0};
    static const struct {
        size_t at;
        uint64_t v;
    } harm[] = {{0, 0},        {4, 2},           {8, 3},   {8, UINT32_MAX},
                {20, 2},       {24, 1 << 20},    {24, 65}, {24, UINT64_MAX - 15},
                {32, 1 << 20}, {32, UINT64_MAX}, {32, 3},  {56, 4}};
    struct made whole = image_make(sms);
    for (size_t i = 0; i < sizeof(harm) / sizeof(harm[0]); i++) {
        struct made m = whole;
        field_put(&m, harm[i].at, harm[i].v);
        if (image_count(m.bytes, m.n, NULL) != -EPROTO)
            fail_msg("row %zu was taken", i);
    }
    for (size_t n = 0; n < 64; n++) {
        uint8_t *cut = malloc(n + 1); /* so that ASan sees a look behind it */
        memcpy(cut, whole.bytes, n);
        assert_int_equal(-EPROTO, image_count(cut, n, NULL));
        free(cut);
    }
    assert_int_equal(-EPROTO, image_count(whole.bytes, whole.n - 9, NULL));
}

/* --- the real one --- */

static bool part_holds(const struct image_part *p, const char *what)
{
    return memmem(p->data, p->bytes, what, strlen(what)) != NULL;
}

UNIT_TEST(built_image_has_every_kernel_for_every_gpu)
{
#define NAME(name, args) "hvd_" #name,
    static const char *const names[] = {KERNELS(NAME)};
#undef NAME
    static const uint32_t gpus[] = {70, 72,  75,  80,  86,  87, 89,
                                    90, 100, 103, 120, 121, 130};
    size_t bytes = (size_t)(kernels_image_end - kernels_image);
    int n = image_count(kernels_image, bytes, NULL);
    assert_int_equal((uintptr_t)kernels_image % 16, 0);
    assert_true(n >= 0);
    if (n == 0)
        skip(); /* KERNELS=none */
    for (int i = 0; i < n; i++) {
        struct image_part p = image_part(kernels_image, (size_t)i);
        for (size_t k = 0; k < KERNEL_COUNT; k++)
            assert_true(part_holds(&p, names[k]));
        if (p.kind == IMAGE_CUBIN) {
            uint16_t machine;
            memcpy(&machine, (const uint8_t *)p.data + 18, sizeof(machine));
            assert_int_equal(machine, 190); /* EM_CUDA */
        } else {
            assert_true(part_holds(&p, ".version 7.0\n"));
            assert_true(part_holds(&p, ".target sm_70\n"));
            assert_int_equal(strlen(p.data) + 1, p.bytes);
        }
    }
    for (size_t i = 0; i < sizeof(gpus) / sizeof(gpus[0]); i++) {
        struct image_part p;
        assert_true(image_pick(kernels_image, gpus[i], false, &p));
    }
}

/* --- a launch --- */

static struct {
    int cubin_result, ptx_result, func_result, launch_result;
    unsigned n_loads, n_unloads, n_funcs, blocks, threads;
    struct args_move args;
    cu_func func;
} driver;

int cuda_fail(const struct cuda_api *api, const char *call, int result, struct err *err)
{
    return err_set(err, -EIO, "%s: %d", call, result);
}

const char *cuda_symbol(enum cuda_call c)
{
    return c == CUDA_launch ? "cuLaunchKernel" : "cuModule";
}

static int module_load(cu_module *ret, const void *image)
{
    driver.n_loads++;
    *ret = (cu_module)&driver;
    return memcmp(image, "\177ELF", 4) == 0 ? driver.cubin_result : driver.ptx_result;
}

static int module_func(cu_func *ret, cu_module m, const char *name)
{
    assert_ptr_equal(m, &driver);
    assert_true(strncmp(name, "hvd_", 4) == 0);
    *ret = (cu_func)(uintptr_t)++driver.n_funcs;
    return driver.func_result;
}

static int module_free(cu_module m)
{
    driver.n_unloads++;
    return 0;
}

static int launch_fake(cu_func f,
                       unsigned gx,
                       unsigned gy,
                       unsigned gz,
                       unsigned bx,
                       unsigned by,
                       unsigned bz,
                       unsigned shared_bytes,
                       cu_stream s,
                       void **params,
                       void **extra)
{
    assert_int_equal(gy * gz * by * bz, 1);
    assert_int_equal(shared_bytes, 0);
    assert_null(extra);
    assert_null(s);
    driver.blocks = gx;
    driver.threads = bx;
    driver.func = f;
    memcpy(&driver.args, params[0], sizeof(driver.args));
    return driver.launch_result;
}

static const struct cuda_api api = {.version = 11040,
                                    .module_load = module_load,
                                    .module_func = module_func,
                                    .module_free = module_free,
                                    .launch = launch_fake};
static const uint32_t parts[] = {90, 1070, 0};

static int
launch_init_for(struct gpu_launch *l, int sm, bool wants_ptx, struct err *err)
{
    static struct made m;
    m = image_make(parts);
    return launch_init(l, &api, m.bytes, m.n, sm, 132, wants_ptx, err);
}

static int driver_reset(void **state)
{
    memset(&driver, 0, sizeof(driver));
    return 0;
}

UNIT_TEST_WITH(launches_with_a_bounded_grid, driver_reset, NULL)
{
    struct gpu_launch l;
    struct err err = ERR_INIT;
    struct args_move a = {.chunks = 4711, .n = 5000, .divisor = 1, .scale = 0.5};
    assert_int_equal(0, launch_init_for(&l, 90, false, &err));
    assert_int_equal(l.part.kind, IMAGE_CUBIN);
    assert_int_equal(driver.n_funcs, KERNEL_COUNT);
    assert_int_equal(0, launch_kernel(&l, KERNEL_move_f32_f16, 3, &a, NULL, &err));
    assert_int_equal(driver.blocks, 3);
    assert_int_equal(driver.threads, 256);
    assert_ptr_equal(driver.func, (uintptr_t)KERNEL_move_f32_f16 + 1);
    assert_memory_equal(&driver.args, &a, sizeof(a));
    assert_int_equal(0, launch_kernel(&l, KERNEL_copy, 5000, &a, NULL, &err));
    assert_int_equal(driver.blocks, 132 * 8);
    driver.blocks = 77;
    assert_int_equal(0, launch_kernel(&l, KERNEL_copy, 0, &a, NULL, &err));
    assert_int_equal(driver.blocks, 77);
    driver.launch_result = 719;
    assert_int_equal(-EIO, launch_kernel(&l, KERNEL_copy, 1, &a, NULL, &err));
    assert_string_equal("cuLaunchKernel: 719", err.text);
    launch_release(&l);
    launch_release(&l);
    assert_int_equal(driver.n_unloads, 1);
}

UNIT_TEST_WITH(driver_that_refuses_the_cubin_gets_ptx, driver_reset, NULL)
{
    struct gpu_launch l;
    driver.cubin_result = CU_NO_BINARY;
    assert_int_equal(0, launch_init_for(&l, 90, false, NULL));
    assert_int_equal(l.part.kind, IMAGE_PTX);
    assert_int_equal(driver.n_loads, 2);
    launch_release(&l);
    driver.n_loads = 0;
    assert_int_equal(0, launch_init_for(&l, 90, true, NULL));
    assert_int_equal(driver.n_loads, 1);
    launch_release(&l);
}

UNIT_TEST_WITH(what_does_not_fit_has_a_message, driver_reset, NULL)
{
    struct gpu_launch l;
    struct err err = ERR_INIT;
    struct made none = image_make((const uint32_t[]){0});
    assert_int_equal(-ENOTSUP, launch_init_for(&l, 61, false, &err));
    assert_string_equal("a GPU of compute capability 6.1 is too old: the kernels are "
                        "sm_90 ptx_70",
                        err.text);
    driver.cubin_result = CU_INVALID_IMAGE;
    driver.ptx_result = CU_UNSUPPORTED_PTX;
    assert_int_equal(-ENOTSUP, launch_init_for(&l, 90, false, &err));
    assert_string_equal(
        "the driver, for CUDA 11.4, accepts none of the GPU kernels for compute "
        "capability 9.0 (cuModule: 222): try a newer driver",
        err.text);
    driver.ptx_result = 0;
    driver.func_result = CU_NOT_FOUND;
    assert_int_equal(-EIO, launch_init_for(&l, 90, false, &err));
    assert_int_equal(driver.n_unloads, 1);
    driver.cubin_result = CU_OUT_OF_MEMORY;
    driver.n_loads = 0;
    assert_int_equal(-EIO, launch_init_for(&l, 90, false, &err));
    assert_int_equal(driver.n_loads, 1);
    assert_int_equal(-ENOTSUP,
                     launch_init(&l, &api, none.bytes, none.n, 90, 1, false, &err));
    assert_string_equal("no GPU kernels were built in (KERNELS=none)", err.text);
}

UNIT_MAIN(NULL, NULL)
