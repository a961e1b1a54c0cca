/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of the fakes: "key=value" words from hvd_fake_set_faults, HVD_FAKE_FAULTS and
 * the file HVD_FAKE_FILE, in this order. Counts of questions are kept by key. */
#include "tests/fakes/cuda/fake_cuda.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *set_text;
static struct {
    char key[32];
    char value[64];
    int n;
} asked[32];

void hvd_fake_die(const char *fmt, ...)
{
    va_list ap;

    fprintf(stderr, "fake CUDA: ");
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\n");
    abort();
}

void *fake_zalloc(size_t bytes)
{
    void *p = calloc(1, bytes);

    if (!p)
        hvd_fake_die("out of memory");
    return p;
}

static bool fault_find(const char *text, const char *key, char ret[64])
{
    size_t n = strlen(key);

    while (text && *text) {
        size_t len = strcspn(text, ", \n");
        if (len > n && strncmp(text, key, n) == 0 && text[n] == '=') {
            (void)snprintf(ret, 64, "%.*s", (int)(len - n - 1), text + n + 1);
            return true;
        }
        text += len + strspn(text + len, ", \n");
    }
    return false;
}

static bool find_all(const char *key, char ret[64])
{
    const char *path = getenv("HVD_FAKE_FILE");
    char text[512];

    if (set_text)
        return fault_find(set_text, key, ret);
    if (fault_find(getenv("HVD_FAKE_FAULTS"), key, ret))
        return true;
    FILE *f = path ? fopen(path, "re") : NULL;
    if (!f)
        return false;
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    (void)fclose(f);
    return fault_find(text, key, ret);
}

bool hvd_fake_fault(const char *key, char ret[64])
{
    LOCK_HERE(&lock);
    return find_all(key, ret);
}

void hvd_fake_set_faults(const char *text)
{
    LOCK_HERE(&lock);
    free(set_text);
    set_text = text ? strdup(text) : NULL;
    memset(asked, 0, sizeof(asked));
}

int hvd_fake_strikes(const char *key)
{
    char value[64];
    int code = 0;

    LOCK_HERE(&lock);
    if (find_all(key, value)) {
        size_t i = 0;
        while (i < 31 && asked[i].key[0] && strcmp(asked[i].key, key) != 0)
            i++;
        if (strcmp(asked[i].value, value) != 0) {
            (void)snprintf(asked[i].key, sizeof(asked[i].key), "%s", key);
            (void)snprintf(asked[i].value, sizeof(asked[i].value), "%s", value);
            asked[i].n = 0;
        }
        const char *at = strchr(value, '@');
        int when = atoi(at ? at + 1 : value);
        if (++asked[i].n == (when > 0 ? when : 1))
            code = at ? atoi(value) : 1;
    }
    return code;
}
