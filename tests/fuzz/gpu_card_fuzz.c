/* SPDX-License-Identifier: Apache-2.0 */
/* GPU cards of other ranks: one card, or several and the verdict on them. */
#include <errno.h>

#include "runtime/backend/nccl/card.h"
#include "runtime/base/mem.h"
#include "tests/fuzz/fuzz.h"

enum { MAX_CARDS = 8 };

FUZZ_TARGET(gpu_card)
{
    static const uint32_t ranks[MAX_CARDS] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct gpu_card v[MAX_CARDS];
    struct comm_terms t = {.how = COMM_FRESH};
    struct err err = ERR_INIT;
    uint32_t n_cards = 0;

    while (n_cards < MAX_CARDS && n >= GPU_CARD_BYTES) {
        uint8_t again[GPU_CARD_BYTES];

        if (gpu_card_read(data, &v[n_cards], &err)) {
            MUST(err.code == -EPROTO && err.text[0]);
            return 0;
        }
        gpu_card_write(&v[n_cards], again);
        if (v[n_cards].version == GPU_CARD_VERSION)
            MUST(memcmp(again, data, sizeof(again)) == 0);
        data += GPU_CARD_BYTES;
        n -= GPU_CARD_BYTES;
        n_cards++;
    }
    if (n_cards == 0)
        return 0;
    int rc = gpu_cards_judge(v, ranks, NULL, n_cards, &t, &err);
    MUST(rc == 0 ? t.n_streams > 0 : err.text[0] != '\0');
    MUST((t.n_excluded > 0) == (t.how == COMM_SHRINK));
    for (uint32_t i = 1; i < t.n_excluded; i++)
        MUST(t.excluded[i] > t.excluded[i - 1]);
    comm_terms_release(&t);
    return 0;
}
