/* SPDX-License-Identifier: Apache-2.0 */
/* Cards are parsed strictly: they come from other processes, perhaps of another
 * version. Local ranks set by the launcher are kept (scripts take them for GPU
 * numbers); otherwise ranks are counted per host. Either way rank r's peers in
 * cross_rank are the ranks of the same local rank. Called by ../bootstrap. */
#include "runtime/contract/card.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/parse.h"

#define CARD_VERSION "hvd1"
#define N_FIELDS     8
#define N_COMMON     4

static bool card_is_plain(char c)
{
    return c > ' ' && c <= '~' && c != ';';
}

int card_format(const struct card *c, char *ret, size_t size_bytes, struct err *err)
{
    char local[16] = "-", job[JOB_ID_MAX];
    size_t n = strlen(c->job);
    int k;

    for (size_t i = 0; i <= n; i++) /* a job's name may hold what PMI cannot carry */
        job[i] = c->job[i] == '\0' || card_is_plain(c->job[i]) ? c->job[i] : '_';
    if (c->local_rank != CARD_NO_LOCAL)
        (void)snprintf(local, sizeof(local), "%u", c->local_rank); /* fits */
    if (c->port == 0)
        k = snprintf(ret, size_bytes, CARD_VERSION ";%s;%s;%s", c->host, c->net, local);
    else
        k = snprintf(ret, size_bytes, CARD_VERSION ";%s;%s;%s;%u;%s;%s;%s", c->host,
                     c->net, local, c->port, c->token, c->addrs, job);
    if (k < 0 || (size_t)k >= size_bytes)
        return err_set(
            err, -E2BIG,
            "the card of this rank has %d bytes, the launcher transports %zu", k,
            size_bytes - 1);
    return 0;
}

/* text is cut at its semicolons; 0 when a field is too much. */
static size_t card_split(char *text, char *ret[N_FIELDS])
{
    for (size_t n = 0; n < N_FIELDS;) {
        char *end = strchr(text, ';');

        ret[n++] = text;
        if (!end)
            return n;
        *end = '\0';
        text = end + 1;
    }
    return 0;
}

static bool is_hex(const char *s, size_t max)
{
    size_t n = strspn(s, "0123456789abcdef");

    return n <= max && s[n] == '\0';
}

static bool field_copy(const char *s, char *ret, size_t size_bytes)
{
    size_t n = strlen(s);

    for (size_t i = 0; i < n; i++)
        if (!card_is_plain(s[i]))
            return false;
    if (n >= size_bytes)
        return false;
    memcpy(ret, s, n + 1);
    return true;
}

static bool read_own(char *const f[N_FIELDS], struct card *c)
{
    uint32_t port;

    if (parse_u32("port", f[4], 1, 65535, &port, NULL) || !is_hex(f[5], 64)
        || strlen(f[5]) != 64 || !f[7][0])
        return false;
    c->port = (uint16_t)port;
    return field_copy(f[5], c->token, sizeof(c->token))
           && field_copy(f[6], c->addrs, sizeof(c->addrs))
           && field_copy(f[7], c->job, sizeof(c->job));
}

int card_parse(const char *text, uint32_t rank, struct card *ret, struct err *err)
{
    char copy[CARD_MAX_BYTES + 1], *f[N_FIELDS] = {NULL};
    struct card c = {.local_rank = CARD_NO_LOCAL};
    size_t n = strlen(text), n_fields = 0;

    if (n < sizeof(copy)) {
        memcpy(copy, text, n + 1);
        n_fields = card_split(copy, f);
    }
    if ((n_fields != N_COMMON && n_fields != N_FIELDS)
        || strcmp(f[0], CARD_VERSION) != 0 || !is_hex(f[1], CARD_KEY_BYTES - 1)
        || !is_hex(f[2], CARD_KEY_BYTES - 1)
        || !field_copy(f[1], c.host, sizeof(c.host))
        || !field_copy(f[2], c.net, sizeof(c.net))
        || (strcmp(f[3], "-") != 0
            && parse_u32("local rank", f[3], 0, WORLD_MAX_RANKS, &c.local_rank, NULL))
        || (n_fields == N_FIELDS && !read_own(f, &c)))
        return err_set(err, -EPROTO,
                       "the card of rank %u is invalid: another version of Ringmaster "
                       "may be installed there",
                       rank);
    *ret = c;
    return 0;
}

struct host_rank { /* a rank, for sorting */
    const char *host;
    uint32_t rank;
};

static int host_rank_compare(const void *a, const void *b)
{
    const struct host_rank *x = a, *y = b;
    int d = strcmp(x->host, y->host);

    if (d != 0)
        return d;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* ranks are sorted by host, then rank: local[] counts within a host, first[] is the
 * lowest rank of the host. */
static void ranks_count(const struct host_rank *s,
                        uint32_t n,
                        uint32_t *local,
                        uint32_t *first,
                        uint32_t *all)
{
    for (uint32_t i = 0; i < n;) {
        uint32_t end = i;

        while (end < n && strcmp(s[end].host, s[i].host) == 0)
            end++;
        for (uint32_t k = i; k < end; k++) {
            local[s[k].rank] = k - i;
            first[s[k].rank] = s[i].rank;
            all[s[k].rank] = end - i;
        }
        i = end;
    }
}

int card_find_place(const struct card_place *v, struct place *p, struct err *err)
{
    const uint32_t n = p->size;
    AUTOFREE struct host_rank *ranks = mem_calloc(n, sizeof(*ranks));
    AUTOFREE uint32_t *numbers = mem_calloc(n, 3 * sizeof(*numbers));

    if (!ranks || !numbers)
        return err_set(err, -ENOMEM, "out of memory for %u ranks", n);
    uint32_t *local = numbers, *first = numbers + n, *all = numbers + 2 * (size_t)n;
    for (uint32_t i = 0; i < n; i++)
        ranks[i] = (struct host_rank){v[i].host, i};
    qsort(ranks, n, sizeof(*ranks), host_rank_compare);
    ranks_count(ranks, n, local, first, all);

    const uint32_t me = p->rank;
    const bool has_local_rank = v[me].local_rank != CARD_NO_LOCAL;
    if (!has_local_rank) {
        p->local_rank = local[me];
        p->local_size = all[me];
    }
    p->cross_rank = p->cross_size = p->host = 0;
    for (uint32_t i = 0; i < n; i++) {
        if ((v[i].local_rank != CARD_NO_LOCAL) != has_local_rank)
            return err_set(
                err, -EPROTO,
                "the launcher sets the local rank of rank %u, but not of rank %u",
                has_local_rank ? me : i, has_local_rank ? i : me);
        if ((has_local_rank ? v[i].local_rank : local[i]) == p->local_rank) {
            p->cross_rank += i < me;
            p->cross_size++;
        }
        p->host += i < first[me] && first[i] == i;
    }
    return place_check(p, err);
}
