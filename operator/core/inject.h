/* SPDX-License-Identifier: Apache-2.0 */
/* The operator's additions to a user's pod so that hvd-agent runs in it: the init
 * container that installs the runtime, two volumes, variables, the command. Pure. */
#ifndef OPERATOR_CORE_INJECT_H
#define OPERATOR_CORE_INJECT_H

#include <stdbool.h>
#include <stdint.h>

#include "operator/doc/node.h"
#include "runtime/base/err.h"
#include "runtime/contract/agent_env.h"
#include "runtime/contract/elastic_env.h"

#define INIT_CONTAINER "ringmaster-install"
#define VOLUME_RUNTIME "ringmaster-runtime"
#define VOLUME_TOKEN   "ringmaster-token"
#define MOUNT_RUNTIME  "/opt/ringmaster"
#define MOUNT_TOKEN    "/etc/ringmaster"
#define AGENT_COMMAND  MOUNT_RUNTIME "/bin/hvd-agent"
#define TOKEN_KEY      "token"
#define RSH_COMMAND    MOUNT_RUNTIME "/bin/hvd-rsh"

/* A variable that the agent reads and a template must not set. HVD_START_TIMEOUT may be
 * set by the user and then has priority. */
bool inject_env_is_reserved(const char *name);

/* .type, .immutable and .data of the Secret that holds the token. */
void inject_token(struct build *b, struct node *secret, const uint8_t token[32]);

/* One function per part. spec is that of a pod, container one of its containers. */
void inject_init(struct build *b, struct node *spec, const char *runtime_image);
void inject_volumes(struct build *b, struct node *spec, const char *token_secret);
void inject_mounts(struct build *b, struct node *container);
/* Adds variables of the agent that the container does not set, before its own. */
int inject_env(struct build *b,
               struct node *container,
               const struct agent_env *a,
               struct err *err);
/* Adds a variable before those of the container, unless the container sets it. value
 * NULL: nothing is added. */
void inject_variable(struct build *b,
                     struct node *container,
                     const char *name,
                     const char *value);
/* Puts `hvd-agent WORDS --` before the command of the container. */
void inject_command(struct build *b,
                    struct node *container,
                    const char *const *words,
                    size_t n);
/* HVD_LEAVE_TIME: the pod's terminationGracePeriodSeconds, less what its end takes. */
void inject_leave_time(struct build *b, struct node *spec, struct node *container);

/* Probes of an sshd that the agent replaces ask the agent's port: all of a TCP port, and
 * those that run a command with "ssh" in it. */
void inject_probes(struct build *b, struct node *container, uint16_t port);

void inject_mount(struct build *b,
                  struct node *container,
                  const char *name,
                  const char *path,
                  bool read_only);

#endif
