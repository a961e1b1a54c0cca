/* SPDX-License-Identifier: Apache-2.0 */
/* A second process of a rank: refused while the first has claimed the rank. */
#include "runtime/world/claim.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/unit.h"

static struct contract contract_of(uint32_t rank, uint32_t size)
{
    struct contract c = {.known = KNOWN_ALL, .rdv_port = 1};

    c.place.rank = rank;
    c.place.size = size;
    (void)snprintf(c.rdv_host, sizeof(c.rdv_host), "127.0.0.1");
    (void)snprintf(c.job_id, sizeof(c.job_id), "claim-test-%d", (int)getpid());
    return c;
}

/* What claim_rank returns in another process: one that was forked, with its own copy of
 * what this one has claimed dropped. */
static int claim_elsewhere(const struct contract *c, int fd)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        int own = 0;

        claim_drop(&fd);
        _exit(claim_rank(c, &own, NULL) < 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status) ? -EINVAL : 0;
}

UNIT_TEST(a_rank_is_one_process_until_it_leaves)
{
    struct contract c = contract_of(1, 2), other = contract_of(0, 2);
    struct err err = ERR_INIT;
    int fd = 0;

    assert_int_equal(claim_elsewhere(&c, 0), 0);
    assert_int_equal(claim_rank(&c, &fd, &err), 0);
    assert_true(fd > 0);
    assert_int_equal(claim_rank(&c, &fd, &err), 0); /* again, by this process */
    assert_int_equal(claim_elsewhere(&c, fd), -EINVAL);
    assert_int_equal(claim_elsewhere(&other, fd), 0);
    claim_drop(&fd);
    assert_int_equal(fd, 0);
    assert_int_equal(claim_elsewhere(&c, 0), 0);
}

UNIT_TEST(a_single_rank_claims_nothing)
{
    struct contract c = contract_of(0, 1);
    int fd = 0;

    assert_int_equal(claim_rank(&c, &fd, NULL), 0);
    assert_int_equal(fd, 0);
}

UNIT_MAIN(NULL, NULL)
