/* SPDX-License-Identifier: Apache-2.0 */
/* See pair.h. Both files are checked by stat for each request, which costs a
 * microsecond. The request after a renewal thus already has the new certificate, on a
 * new connection (libcurl shares connections only among requests of one certificate).
 * The files are read here and not by libcurl, so that no connection gets the new
 * certificate with the old key, and no copy of the key is left.
 *
 * A change after the stat has another stamp and is detected the next time. */
#include "operator/kube/pair.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#define MAX_PEM_BYTES (1u << 20)
#define RETRY_NS      (1 * NS_PER_S)

void pair_release(struct key_pair *p)
{
    mem_free_secret(&p->cert_pem);
    mem_free_secret(&p->key_pem);
}

void pair_stale(struct key_pair *p)
{
    p->cert_stamp = p->key_stamp = (struct pair_stamp){0};
    p->retry_ns = 0;
}

/* Without a file the stamp is always the same. */
static int pair_stat_file(const char *path, struct pair_stamp *ret, struct err *err)
{
    struct stat st;

    *ret = (struct pair_stamp){0};
    if (!path)
        return 0;
    if (stat(path, &st) < 0)
        return err_errno(err, errno, "cannot stat %s", path);
    ret->device = st.st_dev;
    ret->inode = st.st_ino;
    ret->size_bytes = (uint64_t)st.st_size;
    ret->changed = st.st_mtim;
    return 0;
}

static bool is_same(const struct pair_stamp *a, const struct pair_stamp *b)
{
    return a->device == b->device && a->inode == b->inode
           && a->size_bytes == b->size_bytes && a->changed.tv_sec == b->changed.tv_sec
           && a->changed.tv_nsec == b->changed.tv_nsec;
}

static int
read_one(const char *path, const char *fixed, char **ret_pem, struct err *err)
{
    size_t n;

    if (path)
        return fd_read_file(path, MAX_PEM_BYTES, ret_pem, &n, err);
    *ret_pem = mem_strdup(fixed);
    return *ret_pem ? 0 : err_set(err, -ENOMEM, "out of memory");
}

int pair_init(struct key_pair *p, const struct kube_config *config, struct err *err)
{
    int rc;

    *p = (struct key_pair){.config = config};
    if (!config->cert_pem && !config->cert_file)
        return 0;
    rc = read_one(config->cert_file, config->cert_pem, &p->cert_pem, err);
    if (rc == 0)
        rc = read_one(config->key_file, config->key_pem, &p->key_pem, err);
    return rc;
}

/* Without this OpenSSL would prompt for a password on the terminal. */
static int no_password(char *buf, int size, int is_writing, void *arg)
{
    (void)buf;
    (void)size;
    (void)is_writing;
    (void)arg;
    return -1;
}

static bool pair_is_matching(const char *cert_pem, const char *key_pem)
{
    BIO *cert_bio = BIO_new_mem_buf(cert_pem, -1);
    BIO *key_bio = BIO_new_mem_buf(key_pem, -1);
    X509 *cert = cert_bio ? PEM_read_bio_X509(cert_bio, NULL, no_password, NULL) : NULL;
    EVP_PKEY *key =
        key_bio ? PEM_read_bio_PrivateKey(key_bio, NULL, no_password, NULL) : NULL;
    bool do_fit = cert && key && X509_check_private_key(cert, key) == 1;

    EVP_PKEY_free(key);
    X509_free(cert);
    BIO_free(key_bio);
    BIO_free(cert_bio);
    ERR_clear_error();
    return do_fit;
}

static void pair_take(struct key_pair *p, char **cert_pem, char **key_pem)
{
    if (strcmp(*cert_pem, p->cert_pem) != 0)
        log_info("client certificate renewed", "server=%s", p->config->server);
    mem_free_secret(&p->cert_pem);
    mem_free_secret(&p->key_pem);
    p->cert_pem = TAKE(*cert_pem);
    p->key_pem = TAKE(*key_pem);
}

static int read_both(struct key_pair *p, struct err *err)
{
    const struct kube_config *c = p->config;
    char *cert_pem = NULL, *key_pem = NULL;
    int rc = read_one(c->cert_file, c->cert_pem, &cert_pem, err);

    if (rc == 0)
        rc = read_one(c->key_file, c->key_pem, &key_pem, err);
    if (rc == 0 && !pair_is_matching(cert_pem, key_pem))
        rc = err_set(err, -EINVAL, "%s: does not belong to %s",
                     c->key_file ? c->key_file : "client-key-data",
                     c->cert_file ? c->cert_file : "client-certificate-data");
    if (rc == 0)
        pair_take(p, &cert_pem, &key_pem);
    mem_free_secret(&cert_pem);
    mem_free_secret(&key_pem);
    return rc;
}

static int pair_read_changed(struct key_pair *p, struct err *err)
{
    struct pair_stamp cert = {0}, key = {0};
    int rc = pair_stat_file(p->config->cert_file, &cert, err);

    if (rc == 0)
        rc = pair_stat_file(p->config->key_file, &key, err);
    if (rc < 0 || (is_same(&cert, &p->cert_stamp) && is_same(&key, &p->key_stamp)))
        return rc;
    rc = read_both(p, err);
    if (rc == 0) {
        p->cert_stamp = cert;
        p->key_stamp = key;
    }
    return rc;
}

void pair_refresh(struct key_pair *p, uint64_t now_ns)
{
    struct err err = ERR_INIT;

    if (!p->cert_pem || now_ns < p->retry_ns
        || (!p->config->cert_file && !p->config->key_file))
        return;
    p->retry_ns = 0;
    if (pair_read_changed(p, &err) == 0) {
        p->is_logged = false;
        return;
    }
    p->retry_ns = now_ns + RETRY_NS;
    if (!p->is_logged)
        log_warn("client certificate cannot be read, keeping the former one",
                 "retry_ms=%llu cause=\"%s\"", RETRY_NS / NS_PER_MS, err.text);
    p->is_logged = true;
}
