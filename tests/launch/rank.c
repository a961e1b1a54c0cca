/* SPDX-License-Identifier: Apache-2.0 */
/* A training process without training: finds its place, meets the other ranks at the
 * launcher's rendezvous and prints one line. This proves that the variables from the
 * launchers are sufficient. With the argument "master", rank 0 first checks that its
 * launcher holds MASTER_PORT and that it can listen there, as torch.distributed does. */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
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

static int rank_listen(const struct contract *c, struct err *err)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(c->master_port)};
    CLEANUP(fd_close) int fd = -1;
    CLEANUP(fd_close) int stranger = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(stranger, (struct sockaddr *)&any, sizeof(any)) == 0
        || errno != EADDRINUSE)
        return err_set(err, -EINVAL, "nobody holds MASTER_PORT %u", c->master_port);
    return tcp_listen("::", c->master_port, &fd, NULL, err);
}

int main(int argc, char **argv)
{
    bool listens = argc > 1 && strcmp(argv[1], "master") == 0;
    struct err err = ERR_INIT;
    struct contract c;
    if (contract_parse(from_env, NULL, &c, &err) < 0
        || (listens && c.place.rank == 0 && rank_listen(&c, &err) < 0)
        || rank_meet(&c, &err) < 0) {
        fprintf(stderr, "rank: %s\n", err.text);
        return 1;
    }
    return 0;
}
