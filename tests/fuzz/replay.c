/* SPDX-License-Identifier: Apache-2.0 */
/* Runs every file of the corpus through its target and prints TAP, one test per target.
 * Built with any compiler, so that the fuzzer's findings are tested on each change under
 * gcc's sanitizers. A violated property aborts; the TAP output is then incomplete.
 *
 * Usage: replay CORPUS   (folders CORPUS/NAME/ with one input a file) */
#include <dirent.h>
#include <stdbool.h>

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "tests/fuzz/fuzz.h"

#define MAX_INPUT_BYTES (1u << 20)

typedef int (*target_fn)(const uint8_t *data, size_t n);

/* FUZZ_TARGETS(X): X(NAME) for each file NAME_fuzz.c; module.mk defines it. */
#define DECLARE(name) int fuzz_##name(const uint8_t *data, size_t n);
FUZZ_TARGETS(DECLARE)

static const struct {
    const char *name;
    target_fn run;
} targets[] = {
#define ROW(name) {#name, fuzz_##name},
    FUZZ_TARGETS(ROW)};

static bool run_file(const char *path, target_fn run)
{
    AUTOFREE char *text = NULL;
    size_t n = 0;
    struct err err = ERR_INIT;

    if (fd_read_file(path, MAX_INPUT_BYTES, &text, &n, &err)) {
        (void)printf("# %s\n", err.text);
        return false;
    }
    (void)run((const uint8_t *)text, n);
    return true;
}

/* How many inputs were run; -1: one could not be read. */
static int run_folder(const char *corpus, const char *name, target_fn run)
{
    char path[1024];
    int n = 0;

    (void)snprintf(path, sizeof(path), "%s/%s", corpus, name);
    DIR *dir = opendir(path);
    if (!dir)
        return 0;
    for (struct dirent *e = readdir(dir); e && n >= 0; e = readdir(dir)) {
        if (e->d_name[0] == '.')
            continue;
        (void)snprintf(path, sizeof(path), "%s/%s/%s", corpus, name, e->d_name);
        (void)fprintf(stderr, "# %s\n", path);
        n = run_file(path, run) ? n + 1 : -1;
    }
    (void)closedir(dir);
    return n;
}

int main(int argc, char **argv)
{
    int n_failed = 0;

    if (argc != 2) {
        (void)fprintf(stderr, "usage: replay CORPUS\n");
        return 2;
    }
    (void)printf("1..%zu\n", ARRAY_LEN(targets));
    for (size_t i = 0; i < ARRAY_LEN(targets); i++) {
        int n = run_folder(argv[1], targets[i].name, targets[i].run);

        /* An empty corpus tests nothing. */
        (void)printf("%s %zu - fuzz corpus of %s: %d inputs\n", n > 0 ? "ok" : "not ok",
                     i + 1, targets[i].name, n);
        (void)fflush(stdout);
        n_failed += n <= 0;
    }
    return n_failed ? 1 : 0;
}
