/* SPDX-License-Identifier: Apache-2.0 */
/* The describe blob.
 *
 * host_key is the digest of the boot id, the network namespace (abstract Unix sockets
 * belong to one) and HVD_HOST_ID. It is only a hint which ranks to try: "same host"
 * means that the handshake of shm_join.c worked. Called by cpu.c and group.c.
 * Environment read here:
 *
 *   HVD_TRANSPORT  auto (default) or tcp: no shared memory, for tests and measurements
 *   HVD_HOST_ID    text; ranks with different values do not share memory, for tests and
 *                  diagnosis
 *   HOROVOD_HOSTNAME  this host's name in messages; default: gethostname() */
#include "runtime/backend/cpu/peers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/backend/backend.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"

#define PEER_MAGIC   0x48564443u /* "HVDC" */
#define PEER_VERSION 2

static uint64_t ns_inode(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (uint64_t)st.st_ino : 0;
}

static int add_boot_id(struct sha256 *s, struct err *err)
{
    AUTOFREE char *id = NULL;
    size_t n;
    int rc = fd_read_file("/proc/sys/kernel/random/boot_id", 256, &id, &n, err);
    if (rc < 0)
        return rc;
    sha256_add(s, id, n);
    return 0;
}

static void copy_host_name(char *ret)
{
    const char *set = getenv("HOROVOD_HOSTNAME");
    char name[256] = "unknown";
    if (set && set[0] != '\0')
        snprintf(name, sizeof(name), "%s", set);
    else if (gethostname(name, sizeof(name) - 1) != 0)
        snprintf(name, sizeof(name), "unknown");
    snprintf(ret, PEER_HOST_BYTES, "%.*s", PEER_HOST_BYTES - 1, name);
}

static int transport_is_auto(bool *ret, struct err *err)
{
    const char *t = getenv("HVD_TRANSPORT");
    if (!t || t[0] == '\0' || strcmp(t, "auto") == 0)
        *ret = true;
    else if (strcmp(t, "tcp") == 0)
        *ret = false;
    else
        return err_set(err, -EINVAL,
                       "HVD_TRANSPORT: \"%.40s\" must be one of: auto, tcp", t);
    return 0;
}

int peer_describe(struct peer *ret, struct err *err)
{
    struct peer p = {.magic = PEER_MAGIC, .version = PEER_VERSION};
    bool is_auto = true;
    int rc = transport_is_auto(&is_auto, err);
    if (rc < 0)
        return rc;
    uint64_t net_ns = ns_inode("/proc/self/ns/net");
    struct sha256 s;
    sha256_init(&s);
    /* without /proc hosts cannot be distinguished: TCP, which always works */
    p.wants_shm = is_auto && net_ns != 0 && add_boot_id(&s, NULL) == 0;
    sha256_add(&s, &net_ns, sizeof(net_ns));
    const char *id = getenv("HVD_HOST_ID");
    if (id)
        sha256_add(&s, id, strlen(id));
    sha256_end(&s, p.host_key);
    copy_host_name(p.host);
    p.pid = (uint64_t)getpid();
    p.pid_ns = ns_inode("/proc/self/ns/pid");
    *ret = p;
    return 0;
}

/* NUL-terminated and printable, so that it may enter a log line. */
static bool is_text(const char *s, size_t max)
{
    for (size_t i = 0; i < max; i++) {
        if (s[i] == '\0')
            return true;
        if (s[i] <= ' ' || s[i] > '~')
            return false;
    }
    return false;
}

int peer_parse(
    const uint8_t *blob, uint32_t n, uint32_t rank, struct peer *ret, struct err *err)
{
    struct peer p;
    if (n != sizeof(p))
        return err_set(err, -EPROTO,
                       "rank %u: backend description has %u bytes, not %zu; another "
                       "version of the runtime may be installed there",
                       rank, n, sizeof(p));
    memcpy(&p, blob, sizeof(p));
    if (p.magic != PEER_MAGIC || p.version != PEER_VERSION)
        return err_set(err, -EPROTO,
                       "rank %u: backend \"cpu\" version %u expected, got %u", rank,
                       PEER_VERSION, p.version);
    if (!is_text(p.host, sizeof(p.host)) || !is_text(p.sock, sizeof(p.sock))
        || !is_text(p.addr, sizeof(p.addr)) || (p.port > 0) != (p.addr[0] != '\0')
        || p.wants_shm > 1)
        return err_set(err, -EPROTO, "rank %u: garbled backend description", rank);
    *ret = p;
    return 0;
}

int peers_check_data(const struct peer *all,
                     uint32_t n,
                     const uint32_t *global,
                     struct err *err)
{
    for (uint32_t i = 1; i < n; i++) {
        bool has_mac[2] = {all[0].data_check == DATA_MAC,
                           all[i].data_check == DATA_MAC};
        bool is_mac = has_mac[0] != has_mac[1];
        if (all[i].data_check == all[0].data_check)
            continue;
        return err_set(err, -EINVAL,
                       "%s is %d on rank %u (host %s) and %d on rank %u (host %s); it "
                       "must be equal "
                       "on all ranks",
                       is_mac ? "HVD_DATA_MAC" : "HVD_DATA_CRC",
                       is_mac ? has_mac[0] : all[0].data_check == DATA_CRC,
                       global ? global[0] : 0, all[0].host,
                       is_mac ? has_mac[1] : all[i].data_check == DATA_CRC,
                       global ? global[i] : i, all[i].host);
    }
    return 0;
}

bool peer_may_share(const struct peer *a, const struct peer *b)
{
    return a->wants_shm && b->wants_shm && a->sock[0] != '\0' && b->sock[0] != '\0'
           && memcmp(a->host_key, b->host_key, sizeof(a->host_key)) == 0;
}

bool peer_same_process(const struct peer *a, const struct peer *b)
{
    return a->pid == b->pid && a->pid_ns == b->pid_ns;
}
