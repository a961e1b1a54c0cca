/* SPDX-License-Identifier: Apache-2.0 */
/* Key generation by OpenSSL; the public half in ssh's own form (RFC 5656, 3.1):
 * string "ecdsa-sha2-nistp521", string "nistp521", string Q, the uncompressed point. */
#include "operator/ssh_key.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <openssl/bio.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include "operator/doc/base64.h"

#define KEY_TYPE    "ecdsa-sha2-nistp521"
#define CURVE       "nistp521"
#define POINT_BYTES 133 /* 4, x, y of 66 bytes each */
#define BLOB_MAX    (4 + sizeof(KEY_TYPE) + 4 + sizeof(CURVE) + 4 + POINT_BYTES)

static size_t ssh_put_string(uint8_t *out, const void *p, size_t n)
{
    out[0] = (uint8_t)(n >> 24);
    out[1] = (uint8_t)(n >> 16);
    out[2] = (uint8_t)(n >> 8);
    out[3] = (uint8_t)n;
    memcpy(out + 4, p, n);
    return n + 4;
}

static int write_public(const EVP_PKEY *key, struct ssh_key *ret)
{
    char encoded[BASE64_SIZE(BLOB_MAX)];
    uint8_t point[POINT_BYTES], blob[BLOB_MAX];
    size_t n_point = 0, n = 0;

    if (EVP_PKEY_get_octet_string_param(key, OSSL_PKEY_PARAM_PUB_KEY, point,
                                        sizeof(point), &n_point)
            != 1
        || n_point != POINT_BYTES || point[0] != 4)
        return -EIO;
    n += ssh_put_string(blob + n, KEY_TYPE, strlen(KEY_TYPE));
    n += ssh_put_string(blob + n, CURVE, strlen(CURVE));
    n += ssh_put_string(blob + n, point, n_point);
    base64_encode(blob, n, encoded);
    (void)snprintf(ret->public_line, sizeof(ret->public_line), KEY_TYPE " %s\n",
                   encoded);
    return 0;
}

static int write_private(const EVP_PKEY *key, struct ssh_key *ret)
{
    BIO *bio = BIO_new(BIO_s_secmem());
    int n = -1;

    if (bio
        && PEM_write_bio_PrivateKey_traditional(bio, key, NULL, NULL, 0, NULL, NULL)
               == 1)
        n = BIO_read(bio, ret->private_pem, sizeof(ret->private_pem) - 1);
    BIO_free(bio);
    if (n <= 0)
        return -EIO;
    ret->private_pem[n] = '\0';
    return 0;
}

int ssh_key_make(struct ssh_key *ret, struct err *err)
{
    EVP_PKEY *key = EVP_EC_gen("P-521");
    int rc = key ? write_public(key, ret) : -EIO;

    if (rc == 0)
        rc = write_private(key, ret);
    EVP_PKEY_free(key);
    if (rc < 0) {
        ssh_key_wipe(ret);
        return err_set(err, rc, "OpenSSL cannot create a P-521 key");
    }
    return 0;
}

void ssh_key_wipe(struct ssh_key *k)
{
    explicit_bzero(k, sizeof(*k));
}
