/* SPDX-License-Identifier: Apache-2.0 */
/* The world's counts are correct in any order of join, put, leave and finish. Two bytes
 * per step: the operation and the rank. */
#include "runtime/base/mem.h"
#include "runtime/rendezvous/world.h"
#include "tests/fuzz/fuzz.h"

#define SIZE 4

static void world_check(const struct rdv_world *w)
{
    uint32_t n_put = 0, n_seen = 0;
    uint64_t n_bytes = 0;
    char text[320];

    for (uint32_t i = 0; i < SIZE; i++) {
        n_put += w->v[i].has_put;
        n_seen += w->v[i].was_seen;
        n_bytes += w->v[i].n;
        MUST(!w->v[i].has_put || w->v[i].owner);
        MUST(w->v[i].has_put || (!w->v[i].blob && w->v[i].n == 0));
    }
    MUST(n_put == w->n_put && n_seen == w->n_seen && n_bytes == w->n_bytes);
    rdv_world_missing(w, text, sizeof(text));
    MUST(text[0]);
}

static void world_finish(struct rdv_world *w)
{
    uint8_t *blobs[SIZE];
    uint32_t sizes[SIZE], round = w->round;
    struct rdv_msg *m = rdv_world_finish(w);

    MUST(m && w->round == round + 1 && w->n_put == 0);
    MUST(rdv_all_parse(m->data, m->n, round, SIZE, blobs, sizes, NULL) == 0);
    rdv_msg_unref(m);
}

FUZZ_TARGET(world)
{
    static char owners[4]; /* connections: only their addresses count */
    struct rdv_world w;

    MUST(rdv_world_init(&w, SIZE, NULL) == 0);
    for (size_t i = 0; i + 1 < n; i += 2) {
        uint32_t rank = data[i + 1] % SIZE;
        char *owner = &owners[data[i + 1] / SIZE % 4];
        struct rdv_put put = {rank, w.round + (data[i] >> 3 & 3) - 1u, data[i],
                              data + i, 2};
        void *old;

        switch (data[i] % 5) {
        case 0:
            (void)rdv_world_admit(&w, rank, &old);
            rdv_world_join(&w, rank, owner);
            break;
        case 1:
            if (w.v[rank].owner) /* the server accepts puts of members only */
                (void)rdv_world_put(&w, rank, &put, i, NULL);
            break;
        case 2:
            rdv_world_leave(&w, rank, owner);
            break;
        case 3:
            rdv_world_withdraw(&w, rank);
            break;
        default:
            if (rdv_world_is_full(&w))
                world_finish(&w);
            break;
        }
        world_check(&w);
    }
    rdv_world_release(&w);
    return 0;
}
