/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of the API server, the schedulers, the kubelet and Kueue, shortened to what a
 * user needs. What they write again and again stays the same text: no elapsed times, no
 * ids of a single try. Written against Kubernetes 1.34, Volcano 1.12 and Kueue 0.13; an
 * unknown text is passed on. Pure. */
#ifndef OPERATOR_CORE_WORDING_H
#define OPERATOR_CORE_WORDING_H

#include <stdbool.h>
#include <stddef.h>

#define WORDING_SIZE 513 /* of a result, with NUL; longer ones are cut */

/* Why the API server refuses an object: quota, LimitRange, PodSecurity, a webhook. False:
 * the message is of another failure, and is passed on. */
bool wording_refusal(const char *message, char ret[WORDING_SIZE]);
/* Of a pod's condition PodScheduled. The counts of nodes are kept. */
void wording_scheduler(const char *message, char ret[WORDING_SIZE]);
/* Of a container whose image is not there: "IMAGE: why", or "(message)". */
void wording_image(const char *message, char ret[WORDING_SIZE]);
/* Of an Event about a volume: "volume NAME: why". False: it is about something else, and
 * is passed on. */
bool wording_volume(const char *message, char ret[WORDING_SIZE]);
/* Of an Event about the pod's sandbox or network. As wording_volume. */
bool wording_network(const char *message, char ret[WORDING_SIZE]);
/* Of a container that the kubelet cannot start. */
void wording_start(const char *message, char ret[WORDING_SIZE]);
/* Of a condition of Volcano's PodGroup. */
void wording_volcano(const char *message, char ret[WORDING_SIZE]);
/* Of a condition of Kueue's Workload. */
void wording_kueue(const char *message, char ret[WORDING_SIZE]);

#endif
