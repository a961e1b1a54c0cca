/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a watch, cut where the first byte says: the lines must not depend on the
 * cut, and every object that is a pod or a job goes into the store. */
#include "operator/core/store/store.h"
#include "operator/doc/object.h"
#include "operator/kube/stream.h"
#include "runtime/base/sha256.h"
#include "tests/fuzz/fuzz.h"

struct sink {
    struct store *store;
    struct sha256 digest;
};

static int take_line(void *arg, const char *line, size_t n)
{
    struct sink *s = arg;
    char key[STORE_KEY_SIZE];
    struct arena a;
    struct node *o;
    char conditions[POD_CONDITIONS_SIZE];
    struct pod pod;

    sha256_add(&s->digest, line, n);
    sha256_add(&s->digest, "\n", 1);
    arena_init(&a, OBJECT_MAX_BYTES);
    if (s->store
        && object_read(&a, (struct json_span){line, n}, pod_rules, &o, NULL) == 0
        && pod_decode(KUBE_JOB, o, conditions, &pod, NULL) == 0)
        (void)store_put_pod(s->store, &pod, key);
    arena_release(&a);
    if (s->store
        && object_read(&a, (struct json_span){line, n}, job_rules, &o, NULL) == 0)
        (void)store_put_job(s->store, KUBE_JOB, o, key, NULL);
    arena_release(&a);
    return 0;
}

FUZZ_TARGET(watch)
{
    struct sink whole = {.store = store_new()}, cut = {0};
    uint8_t a[SHA256_BYTES], b[SHA256_BYTES];
    size_t step = n ? data[0] % 7 + 1u : 1;
    struct stream s;
    int rc1, rc2 = 0;

    sha256_init(&whole.digest);
    sha256_init(&cut.digest);
    stream_init(&s, 256);
    rc1 = stream_feed(&s, (const char *)data, n, take_line, &whole);
    stream_clear(&s);
    for (size_t i = 0; i < n && rc2 == 0; i += step)
        rc2 = stream_feed(&s, (const char *)data + i, n - i < step ? n - i : step,
                          take_line, &cut);
    stream_release(&s);
    sha256_end(&whole.digest, a);
    sha256_end(&cut.digest, b);
    MUST(rc1 == rc2);
    MUST(memcmp(a, b, sizeof(a)) == 0);
    store_free(whole.store);
    return 0;
}
