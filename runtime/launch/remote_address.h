/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses by which the hosts of a job reach horovodrun and the host of rank 0. */
#ifndef RUNTIME_LAUNCH_REMOTE_ADDRESS_H
#define RUNTIME_LAUNCH_REMOTE_ADDRESS_H

#include "runtime/launch/remote_hosts.h"

/* Fills launcher and master of all hosts, which must be ready. iface: our interface;
 * NULL: that of the route to each host. */
int remote_address_find(struct remote_hosts *h, const char *iface, struct err *err);

#endif
