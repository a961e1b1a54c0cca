/* SPDX-License-Identifier: Apache-2.0 */
/* A message of Kubernetes or of a webhook: whatever it is, the words are one line that ends,
 * and the same each time. */
#include "operator/core/wording.h"
#include "runtime/base/mem.h"
#include "tests/fuzz/fuzz.h"

static void wording_each(const char *message, int which, char ret[WORDING_SIZE])
{
    static void (*const plain[])(const char *, char *) = {
        wording_scheduler, wording_image, wording_start, wording_volcano,
        wording_kueue};
    static bool (*const sorting[])(const char *, char *) = {
        wording_refusal, wording_volume, wording_network};

    if (which < 5)
        plain[which](message, ret);
    else
        (void)sorting[which - 5](message, ret);
}

FUZZ_TARGET(wording)
{
    char *message = malloc(n + 1);

    MUST(message);
    if (n > 0)
        memcpy(message, data, n);
    message[n] = '\0';
    for (int i = 0; i < 8; i++) {
        char text[WORDING_SIZE], again[WORDING_SIZE];
        size_t k;

        fuzz_fill(text, sizeof(text));
        wording_each(message, i, text);
        k = strnlen(text, sizeof(text));
        MUST(k < sizeof(text));
        for (size_t c = 0; c < k; c++)
            MUST((unsigned char)text[c] >= ' ');
        wording_each(message, i, again);
        MUST(strcmp(text, again) == 0);
    }
    free(message);
    return 0;
}
