/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses by which the hosts of a job reach horovodrun and each other. */
#ifndef RUNTIME_LAUNCH_REMOTE_ADDRESS_H
#define RUNTIME_LAUNCH_REMOTE_ADDRESS_H

#include "runtime/launch/remote_hosts.h"

/* Fills launcher of all hosts, which must be ready. iface: our interface;
 * NULL: that of the route to each host. */
int remote_address_find(struct remote_hosts *h, const char *iface, struct err *err);
/* Appends to ret by which address host `from` reaches each of the first n hosts. After
 * remote_address_find. */
int remote_address_reach(const struct remote_hosts *h,
                         uint32_t from,
                         uint32_t n,
                         struct hostlist *ret,
                         struct err *err);

/* The address by which one host reaches this program. Completes ready. */
int remote_address_launcher(const char *iface, /* NULL: the route to the host */
                            const char *name,
                            struct errand_ready *ready,
                            char ret[HOST_NAME_MAX_BYTES],
                            struct err *err);

#endif
