/* SPDX-License-Identifier: Apache-2.0 */
/* A training process without training: finds its place, meets the other ranks at the
 * launcher's rendezvous and prints one line. This proves that the variables from the
 * launchers are sufficient. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/contract/contract.h"
#include "runtime/contract/token.h"
#include "runtime/rendezvous/rendezvous.h"

static const char *from_env(void *arg, const char *name)
{
    (void)arg;
    return getenv(name);
}

static int rank_meet(const struct contract *c, struct err *err)
{
    struct token token;
    struct rdv_client *client = NULL;
    uint8_t **blobs = NULL;
    uint32_t *sizes = NULL, mine = c->place.rank;
    uint64_t deadline = clock_now_ns() + 20 * NS_PER_S;
    int rc = token_from_contract(c, &token, err);
    if (rc < 0)
        return rc;
    struct auth_id id = {
        .token = &token, .job_id = c->job_id, .generation = c->generation};
    rc = rdv_client_connect(c->rdv_host, c->rdv_port, &id, mine, c->place.size,
                            deadline, &client, err);
    if (rc == 0)
        rc = rdv_client_exchange(client, &mine, sizeof(mine), deadline, &blobs, &sizes,
                                 err);
    uint32_t sum = 0;
    for (uint32_t i = 0; rc == 0 && i < c->place.size; i++)
        sum += *(const uint32_t *)(const void *)blobs[i];
    if (rc == 0)
        printf("rank %u of %u met ranks that add up to %u\n", mine, c->place.size, sum);
    mem_free(blobs);
    rdv_client_close(client);
    return rc;
}

int main(void)
{
    struct err err = ERR_INIT;
    struct contract c;
    if (contract_parse(from_env, NULL, &c, &err) < 0 || rank_meet(&c, &err) < 0) {
        fprintf(stderr, "rank: %s\n", err.text);
        return 1;
    }
    return 0;
}
