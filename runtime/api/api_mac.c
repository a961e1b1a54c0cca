/* SPDX-License-Identifier: Apache-2.0 */
/* The exported C API: MACs of what ranks send each other and then execute, as Python's
 * pickled objects. The key is derived from the job token, the job and its generation;
 * the token itself does not leave the library. Stateless. */
#include "runtime/api/api.h"

#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"
#include "runtime/wire/bytes.h"

_Static_assert(HVD_MAC_BYTES == SHA256_BYTES, "hvd.h has the size");

/* No other use of the token begins with these bytes (auth_wire.c). */
static const char label[] = "hvd_mac/1";

static void mac_begin(struct hmac *m, const struct auth_id *id)
{
    uint8_t key[SHA256_BYTES], generation[4];

    bytes_store_u32(generation, id->generation);
    hmac_init(m, id->token->key, sizeof(id->token->key));
    hmac_add(m, label, sizeof(label));
    hmac_add(m, generation, sizeof(generation));
    hmac_add(m, id->job_id, strlen(id->job_id));
    hmac_end(m, key);
    hmac_init(m, key, sizeof(key));
    mem_wipe(key, sizeof(key));
}

int hvd_mac(const char *purpose,
            const void *data,
            size_t n,
            unsigned char ret_mac[HVD_MAC_BYTES])
{
    struct err *err = api_fresh_error();
    uint8_t length[8];
    struct world *w;
    struct hmac m;
    int rc;

    if (!purpose || !ret_mac || (n > 0 && !data))
        return err_set(err, HVD_INVALID_ARGUMENT, "%s: is NULL",
                       !purpose   ? "purpose"
                       : !ret_mac ? "ret_mac"
                                  : "data");
    rc = runtime_get(&w, err);
    if (rc < 0)
        return rc;
    mac_begin(&m, &w->env.id);
    runtime_put(w);
    bytes_store(length, strlen(purpose), sizeof(length));
    hmac_add(&m, length, sizeof(length));
    hmac_add(&m, purpose, strlen(purpose));
    hmac_add(&m, data, n);
    hmac_end(&m, ret_mac);
    return HVD_OK;
}
