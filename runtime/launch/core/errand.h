/* SPDX-License-Identifier: Apache-2.0 */
/* What horovodrun and the agents of other hosts tell each other, as bytes. Pure.
 *
 *   every payload begins with host:4, the index in the job's host list that it is for
 *   or from, by which agents in between pass it on
 *
 *   JOB      to agent   end:4 errand        what to run; the receiver also starts the
 *                                           agents of the hosts host+1 .. end-1
 *   START    to agent   rdv_port:4 master_port:4 rdv_host:str master_addr:str
 *   SIGNAL   to agent   number:4            somebody told horovodrun to stop
 *   CREDIT   to agent   n:4                 so many more bytes of output may come
 *   STOP     to agent   -                   a failure was found: stop the ranks
 *   FINISH   to agent   -                   all is done
 *   READY    to us      master_port:4 own:str theirs:str
 *                                           the command is there; both ends of the
 *                                           connection as this host sees them, or ""
 *   OUTPUT   to us      rank:4 stream:4 bytes
 *   FAILED   to us      a report as in message.h
 *   DONE     to us      -                   no rank runs any more, all output is sent
 *   LOST     to us      end:4 why:str       hosts .. end-1 cannot be reached any more
 *   NOTE     to us      lines:str           for people
 *   PING     both       - */
#ifndef RUNTIME_LAUNCH_CORE_ERRAND_H
#define RUNTIME_LAUNCH_CORE_ERRAND_H

#include <limits.h>

#include "runtime/contract/contract.h"
#include "runtime/contract/hostlist.h"
#include "runtime/launch/core/options.h"
#include "runtime/launch/core/ssh.h"

enum errand_type {
    ERRAND_JOB = 1,
    ERRAND_START,
    ERRAND_SIGNAL,
    ERRAND_CREDIT,
    ERRAND_STOP,
    ERRAND_FINISH,
    ERRAND_READY,
    ERRAND_OUTPUT,
    ERRAND_FAILED,
    ERRAND_DONE,
    ERRAND_LOST,
    ERRAND_NOTE,
    ERRAND_PING
};
#define ERRAND_TO_AGENT_MAX_BYTES    (24u << 20)
#define ERRAND_TO_LAUNCHER_MAX_BYTES (128u << 10)
#define ERRAND_CREDIT_BYTES          (128u << 10) /* of output before the first CREDIT */
#define ERRAND_SEED_BYTES            32
#define ERRAND_MAX_WORDS             65536 /* of a command; of an environment */

struct errand_words { /* NULL-terminated */
    char **v;
    size_t n;
};
void words_release(struct errand_words *w);
int words_copy(char *const *from, struct errand_words *ret, struct err *err);

/* The same for all hosts of a job. */
struct errand {
    char version[64]; /* of who wrote it */
    char job_id[JOB_ID_MAX];
    uint8_t seed[ERRAND_SEED_BYTES]; /* the job's token is made of it, see token.h */
    struct hostlist hosts;
    uint32_t np, local; /* index of the host that is horovodrun's own; none: hosts.n */
    uint32_t peer_timeout_ms;    /* of agents */
    char dir[PATH_MAX];          /* working directory */
    char iface[64];              /* "": the route to the peer */
    char binding[16], nics[256]; /* of --binding, --network-interfaces; "": none */
    uint32_t is_verbose;
    char agent_path[PATH_MAX];
    struct ssh_how ssh; /* for agents that start others */
    uint32_t fanout;    /* 0: no agent starts others */
    struct errand_words argv, env,
        vars; /* vars: what horovodrun's flags set in the ranks */
};
void errand_release(struct errand *e);
void errand_write(const struct errand *e, struct strbuf *out);
/* version: our own. -EPROTO with a sentence when theirs is another. */
int errand_read(const uint8_t *p,
                size_t n,
                const char *version,
                struct errand *ret,
                struct err *err);

/* vars as names and values, which point into it and which it can then no longer be
 * written with. The caller frees *ret. */
int errand_vars(struct errand *e, struct option_var **ret, struct err *err);

struct errand_start {
    uint16_t rdv_port, master_port;
    char rdv_host[HOST_NAME_MAX_BYTES], master_addr[HOST_NAME_MAX_BYTES];
};
void errand_start_write(const struct errand_start *s, struct strbuf *out);
int errand_start_read(const uint8_t *p,
                      size_t n,
                      struct errand_start *ret,
                      struct err *err);

struct errand_ready {
    uint16_t master_port;
    char own[HOST_NAME_MAX_BYTES], theirs[HOST_NAME_MAX_BYTES]; /* "": unknown */
};
void errand_ready_write(const struct errand_ready *s, struct strbuf *out);
int errand_ready_read(const uint8_t *p,
                      size_t n,
                      struct errand_ready *ret,
                      struct err *err);

struct errand_output {
    uint32_t rank, stream; /* 0 stdout, 1 stderr */
    const uint8_t *p;      /* into the payload */
    size_t n;
};
int errand_output_read(const uint8_t *p,
                       size_t n,
                       struct errand_output *ret,
                       struct err *err);

struct errand_lost {
    uint32_t end;
    char why[240];
};
void errand_lost_write(const struct errand_lost *l, struct strbuf *out);
int errand_lost_read(const uint8_t *p,
                     size_t n,
                     struct errand_lost *ret,
                     struct err *err);

/* How hosts first .. end-1 are shared out among at most fanout agents that each start
 * the rest of their share: the j-th share; false when there is none. skip (horovodrun's
 * own host, which needs none) is left out; fanout 0: one host each. */
bool errand_share(uint32_t first,
                  uint32_t end,
                  uint32_t skip,
                  uint32_t fanout,
                  uint32_t j,
                  uint32_t *ret_first,
                  uint32_t *ret_end);

#endif
