/* SPDX-License-Identifier: Apache-2.0 */
/* Called by world/membership.c and launch/member_door.c. */
#include "runtime/wire/member_message.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/wire/bytes.h"

static void form_write(const struct member_message *m, struct strbuf *out)
{
    bytes_put_u32(out, m->place.rank);
    bytes_put_u32(out, m->place.size);
    bytes_put_u32(out, m->place.local_rank);
    bytes_put_u32(out, m->place.local_size);
    bytes_put_u32(out, m->place.cross_rank);
    bytes_put_u32(out, m->place.cross_size);
    bytes_put_u32(out, m->n_new);
    bytes_put_u32(out, m->rdv_port);
    bytes_put_str(out, m->rdv_host);
}

static int
form_read(struct bytes_reader *in, struct member_message *ret, struct err *err)
{
    uint32_t port;

    ret->place.rank = bytes_u32(in);
    ret->place.size = bytes_u32(in);
    ret->place.local_rank = bytes_u32(in);
    ret->place.local_size = bytes_u32(in);
    ret->place.cross_rank = bytes_u32(in);
    ret->place.cross_size = bytes_u32(in);
    ret->n_new = bytes_u32(in);
    port = bytes_u32(in);
    bytes_host(in, ret->rdv_host, sizeof(ret->rdv_host));
    if (in->is_bad || port == 0 || port > UINT16_MAX || ret->n_new > ret->place.size
        || place_check(&ret->place, NULL) < 0)
        return err_set(err, -EPROTO, "a world message is malformed");
    ret->rdv_port = (uint16_t)port;
    return 0;
}

static void why_read(struct bytes_reader *in, char *ret, size_t size_bytes)
{
    bytes_str(in, ret, size_bytes);
    for (char *p = ret; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            *p = '?';
}

void member_message_write(const struct member_message *m, struct strbuf *out)
{
    bytes_put(out, m->type, 1);
    if (m->type == MEMBER_READY) {
        bytes_put_u32(out, m->slot);
        bytes_put_u32(out, m->incarnation);
    }
    bytes_put_u32(out, m->generation);
    if (m->type == MEMBER_FORM)
        form_write(m, out);
    else if (m->type == MEMBER_BREAK || m->type == MEMBER_ENDING)
        bytes_put_str(out, m->why);
    else if (m->type == MEMBER_NOTIFY)
        bytes_put_u32(out, m->change);
}

int member_message_read(const uint8_t *p,
                        size_t n,
                        struct member_message *ret,
                        struct err *err)
{
    struct bytes_reader in = {.p = p, .left = n};
    uint64_t type = 0;
    int rc = 0;

    memset(ret, 0, sizeof(*ret));
    if (!bytes_get(&in, 1, &type) || type < MEMBER_READY || type > MEMBER_ENDING)
        return err_set(err, -EPROTO, "an elastic message has the unknown type %u",
                       (unsigned)type);
    ret->type = (enum member_message_type)type;
    if (ret->type == MEMBER_READY) {
        ret->slot = bytes_u32(&in);
        ret->incarnation = bytes_u32(&in);
    }
    ret->generation = bytes_u32(&in);
    if (ret->type == MEMBER_FORM)
        rc = form_read(&in, ret, err);
    else if (ret->type == MEMBER_BREAK || ret->type == MEMBER_ENDING)
        why_read(&in, ret->why, sizeof(ret->why));
    else if (ret->type == MEMBER_NOTIFY)
        ret->change = bytes_u32(&in);
    return rc < 0 ? rc : bytes_end(&in, "elastic message", err);
}

void member_address_write(const struct member_address *a, char *ret, size_t size_bytes)
{
    (void)snprintf(ret, size_bytes, "%s:%u.%u", a->name, a->slot, a->incarnation);
}

static bool number_read(const char **p, char end, uint32_t *ret)
{
    char *stop = NULL;
    unsigned long long v;

    if (**p < '0' || **p > '9')
        return false;
    errno = 0;
    v = strtoull(*p, &stop, 10);
    if (errno || v > UINT32_MAX || *stop != end)
        return false;
    *ret = (uint32_t)v;
    *p = stop + (end ? 1 : 0);
    return true;
}

int member_address_read(const char *text, struct member_address *ret, struct err *err)
{
    size_t n = strcspn(text, ":");
    const char *p = text + n + 1;

    memset(ret, 0, sizeof(*ret));
    if (n == 0 || n >= sizeof(ret->name) || text[n] != ':'
        || !number_read(&p, '.', &ret->slot)
        || !number_read(&p, '\0', &ret->incarnation))
        return err_set(err, -EINVAL,
                       "HVD_ELASTIC=%.100s is not NAME:SLOT.INCARNATION: it is the "
                       "launcher's, do not set it",
                       text);
    memcpy(ret->name, text, n);
    return 0;
}
