/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks of tokens, mapped one by one and kept until the end. A token that is not in use
 * begins with the pointer to the next one. Called by ask.c. */
#include "operator/vault.h"

#include <sys/mman.h>

#include "runtime/base/mem.h"

#define CHUNK_TOKENS 127u

struct vault_chunk { /* one page */
    struct vault_chunk *next;
    struct token token[CHUNK_TOKENS];
};
union vault_free { /* a token that is not in use */
    struct token token;
    union vault_free *next;
};

struct vault {
    struct vault_chunk *chunks;
    union vault_free *free;
};

struct vault *vault_new(void)
{
    return mem_zalloc(sizeof(struct vault));
}

static void vault_put(struct vault *v, struct token *t)
{
    union vault_free *f = (void *)t;

    token_wipe(t);
    f->next = v->free; /* aligned: chunks are, and tokens have 32 bytes */
    v->free = f;
}

static int vault_grow(struct vault *v)
{
    void *p = mmap(NULL, sizeof(struct vault_chunk), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct vault_chunk *c = p;

    if (p == MAP_FAILED)
        return -1;
    (void)mlock(p, sizeof(*c)); /* RLIMIT_MEMLOCK may be 0; then it can be swapped */
    (void)madvise(p, sizeof(*c), MADV_DONTDUMP);
    c->next = v->chunks;
    v->chunks = c;
    for (size_t i = 0; i < CHUNK_TOKENS; i++)
        vault_put(v, &c->token[i]);
    return 0;
}

struct token *vault_take(struct vault *v)
{
    union vault_free *f;

    if (!v->free && vault_grow(v) < 0)
        return NULL;
    f = v->free;
    v->free = f->next;
    return &f->token;
}

void vault_give(struct vault *v, struct token *t)
{
    if (t)
        vault_put(v, t);
}

void vault_free(struct vault *v)
{
    if (!v)
        return;
    while (v->chunks) {
        struct vault_chunk *c = v->chunks;

        v->chunks = c->next;
        mem_wipe(c->token, sizeof(c->token));
        (void)munmap(c, sizeof(*c));
    }
    mem_free(v);
}
