/* SPDX-License-Identifier: Apache-2.0 */
/* What horovodrun, the operator and `hvd-agent report` agree on about a job that
 * horovodrun leads. */
#ifndef RUNTIME_CONTRACT_ELASTIC_ENV_H
#define RUNTIME_CONTRACT_ELASTIC_ENV_H

/* The name of an elastic job, by which one horovodrun takes over from another. */
#define ENV_ELASTIC_JOB   "HVD_ELASTIC_JOB"
/* Where the horovodrun of such a job answers the operator. */
#define ENV_STATUS_PORT   "HVD_STATUS_PORT"
/* The job's id in handshakes, of that name or of a random one. */
#define HOROVODRUN_JOB_ID "horovodrun/%s"

#endif
