/* SPDX-License-Identifier: Apache-2.0 */
/* hvd-gpu info: prints what this machine has, one "key value" line each, for the agent
 * and horovodrun --check-build, which are linked statically and cannot dlopen:
 *
 *   driver 550.54.15          cuda 12.4         nccl 2.27.5      nccl-path /usr/...
 *   kernels sm_70 .. ptx
 *   gpu INDEX UUID SM MEMORY-MIB mig|- NAME
 *   nvlink I J LINKS          (J -: to switches and other devices)
 *   ib DEVICE PORT RATE       (active ports)
 *   problem WHY               why GPU tensors are unsupported here
 *
 * Unknown values have no line. The exit status is 0 except for wrong usage.
 *
 * The last NCCL that is tried is the bundled one, in nccl/ next to libhvd_cuda.so: by
 * default in the folder lib/ next to the bin/ of this program. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "runtime/backend/nccl/image.h"
#include "runtime/backend/nccl/report.h"
#include "runtime/base/mem.h"

/* The start of the kernels' image, which image_text reads. */
__asm__(".section .rodata\n"
        ".balign 16\n"
        ".hidden kernels_head\n"
        ".global kernels_head\n"
        "kernels_head:\n"
        ".incbin \"" KERNELS_BIN "\"\n"
        ".previous\n");
extern const uint8_t kernels_head[];

static void print_text(const char *key, const char *value)
{
    if (*value)
        (void)printf("%s %s\n", key, value);
}

static void print_gpus(const struct device_report *r)
{
    for (uint32_t i = 0; i < r->n_gpus; i++) {
        const struct device_gpu *g = &r->gpus[i];
        (void)printf("gpu %u %s %d %llu %s %s\n", i, *g->uuid ? g->uuid : "-", g->sm,
                     (unsigned long long)(g->memory_bytes >> 20),
                     g->is_mig ? "mig" : "-", g->name);
    }
    for (uint32_t i = 0; i < r->n_gpus; i++) {
        unsigned others = r->gpus[i].n_nvlinks;
        for (uint32_t j = 0; j < r->n_gpus; j++) {
            unsigned n = r->gpus[i].nvlinks[j];
            others -= n;
            if (n > 0 && j > i)
                (void)printf("nvlink %u %u %u\n", i, j, n);
        }
        if (others > 0)
            (void)printf("nvlink %u - %u\n", i, others);
    }
}

/* The first line of a file of a port; "": none. */
static void read_port(const char *device,
                      const char *port,
                      const char *file,
                      char *ret,
                      size_t size_bytes)
{
    char path[768];
    int n = snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%s/%s", device,
                     port, file);
    FILE *f = n > 0 && (size_t)n < sizeof(path) ? fopen(path, "re") : NULL;

    ret[0] = '\0';
    if (!f)
        return;
    if (!fgets(ret, (int)size_bytes, f))
        ret[0] = '\0';
    ret[strcspn(ret, "\n")] = '\0';
    (void)fclose(f);
}

static void print_port(const char *device, const char *port)
{
    char state[64], rate[64];

    read_port(device, port, "state", state, sizeof(state));
    read_port(device, port, "rate", rate, sizeof(rate));
    if (strstr(state, "ACTIVE"))
        (void)printf("ib %s %s %s\n", device, port, *rate ? rate : "-");
}

static void each_entry(const char *path, const char *device)
{
    DIR *dir = opendir(path);
    struct dirent *e;
    char ports[512];

    while (dir && (e = readdir(dir)) != NULL) {
        if (e->d_name[0] == '.')
            continue;
        if (device) {
            print_port(device, e->d_name);
            continue;
        }
        int n = snprintf(ports, sizeof(ports), "%s/%s/ports", path, e->d_name);
        if (n > 0 && (size_t)n < sizeof(ports))
            each_entry(ports, e->d_name);
    }
    if (dir)
        (void)closedir(dir);
}

/* lib/ next to the folder of this program; "": unknown. */
static void find_folder(char ret[PATH_MAX + 8])
{
    ssize_t n = readlink("/proc/self/exe", ret, PATH_MAX);

    ret[n < 0 ? 0 : n] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(ret, '/');
        if (slash)
            *slash = '\0';
    }
    if (n > 0)
        memcpy(ret + strlen(ret), "/lib", sizeof("/lib"));
}

/* As ranks read it (core/knobs.h). */
static void judge_setting(const char *gpu, struct device_report *r)
{
    if (!gpu || !*gpu || strcasecmp(gpu, "auto") == 0)
        return;
    if (strcasecmp(gpu, "off") == 0)
        (void)snprintf(r->problem, sizeof(r->problem), "HVD_GPU=off");
    else
        (void)snprintf(r->problem, sizeof(r->problem),
                       "HVD_GPU: \"%.64s\" is not one of: auto off", gpu);
}

int main(int argc, char **argv)
{
    struct device_config c = {.nccl_lib = getenv("HVD_NCCL_LIB")};
    char kernels[sizeof(((struct device_report *)NULL)->kernels)];
    char folder[PATH_MAX + 8];
    AUTOFREE struct device_report *r = mem_zalloc(sizeof(*r));

    if (argc < 2 || argc > 4 || strcmp(argv[1], "info") != 0 || !r) {
        (void)fprintf(stderr, "usage: hvd-gpu info [FOLDER of libhvd_cuda.so "
                              "[framework's libnccl.so.2]]\n");
        return 2;
    }
    find_folder(folder);
    c.bundle_dir = argc > 2 ? argv[2] : folder;
    c.nccl_hint = argc > 3 ? argv[3] : NULL;
    gpu_report(&c, image_text(kernels_head, kernels, sizeof(kernels)), r);
    judge_setting(getenv("HVD_GPU"), r);
    print_text("driver", r->driver);
    print_text("cuda", r->cuda);
    print_text("nccl", r->nccl);
    print_text("nccl-path", r->nccl_path);
    print_text("kernels", r->kernels);
    print_gpus(r);
    each_entry("/sys/class/infiniband", NULL);
    print_text("problem", r->problem);
    return ferror(stdout) || fflush(stdout) != 0;
}
