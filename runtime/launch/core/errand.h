/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between horovodrun and the agents of its hosts. Pure.
 *
 *   Every payload starts with host:4, an index of the job's host list: the receiver or
 *   the sender. Agents in between forward messages by it.
 *
 *   JOB      to agent    end:4 errand        what to run; the receiver also starts the
 *                                            agents of the hosts host+1 .. end-1
 *   START    to agent    rdv_port:4 master_port:4 rdv_host:str
 *                           n:4 {address:str slots:4} * n
 *   SIGNAL   to agent    number:4            horovodrun received a signal
 *   CREDIT   to agent    n:4                 number of further output bytes allowed
 *   STOP     to agent    -                   the job has failed: stop the ranks
 *   FINISH   to agent    -                   all ranks of the job have exited with 0
 *   READY    to launcher master_port:4 generation:4 n_leaders:4 own:str theirs:str
 *                                            the command exists; addresses of both ends
 *                                            of the connection as seen here, or ""
 *   OUTPUT   to launcher rank:4 stream:4 bytes
 *   FAILED   to launcher a report as in message.h
 *   ENDED    to launcher -                   the rank whose end is the end of the job has
 *                                            exited with 0
 *   DONE     to launcher -                   all ranks have exited, all output is sent
 *   LOST     to launcher end:4 why:str       hosts host .. end-1 are lost
 *   NOTE     to launcher lines:str           text for the user
 *   LIVE     to launcher part:4 number:4 bytes
 *                                            what ranks do (live_host.h)
 *   EXAMINE  to agent    number:4            examine all ranks
 *
 *   In an elastic job, without START, OUTPUT with the slot in place of the rank:
 *   SPAWN    to agent    process rank:4 size:4 local_rank:4 local_size:4 cross_rank:4
 *                        cross_size:4        start it, with this place in its environment
 *   KILL     to agent    process             stop it
 *   MEMBER   both        process message     pass it on: of wire/member_message.h
 *   EXITED   to launcher process report      it has ended; exit_code 0: with success
 *   HAS      to launcher process bits:4 generation:4 rank:4 n_ranks:4 since:4
 *                                            before READY, to a horovodrun that takes the
 *                                            job over (core/elastic.h): it runs, or has
 *                                            ended with success
 *   LEAVING  to launcher -                   this host is about to go: its processes
 *                                            leave at the next commit
 *   RETIRE   to agent    report              no process works on this host, by this
 *                                            failure: if another one can take its place,
 *                                            the agent exits
 *   process is slot:4 incarnation:4
 *   PING     both        - */
#ifndef RUNTIME_LAUNCH_CORE_ERRAND_H
#define RUNTIME_LAUNCH_CORE_ERRAND_H

#include <limits.h>

#include "runtime/contract/contract.h"
#include "runtime/contract/hostlist.h"
#include "runtime/contract/tf_world.h"
#include "runtime/launch/core/elastic.h"
#include "runtime/launch/core/options.h"
#include "runtime/launch/core/ssh.h"
#include "runtime/wire/bytes.h"

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
    ERRAND_ENDED,
    ERRAND_DONE,
    ERRAND_LOST,
    ERRAND_NOTE,
    ERRAND_PING,
    ERRAND_LIVE,
    ERRAND_EXAMINE,
    ERRAND_SPAWN,
    ERRAND_KILL,
    ERRAND_MEMBER,
    ERRAND_EXITED,
    ERRAND_HAS,
    ERRAND_LEAVING,
    ERRAND_RETIRE
};
#define ERRAND_TO_AGENT_MAX_BYTES    (24u << 20)
#define ERRAND_TO_LAUNCHER_MAX_BYTES (128u << 10)
/* of output before the first CREDIT */
#define ERRAND_CREDIT_BYTES          (128u << 10)
#define ERRAND_SEED_BYTES            32
#define ERRAND_MAX_WORDS             65536 /* of a command or an environment */

struct errand_words { /* NULL-terminated */
    char **v;
    size_t n;
};
void words_release(struct errand_words *w);
int words_copy(char *const *from, struct errand_words *ret, struct err *err);

/* The content of JOB, the same for all hosts. */
struct errand {
    char version[64]; /* of the sender */
    char job_id[JOB_ID_MAX];
    /* the job's token is derived from it, see session.h */
    uint8_t seed[ERRAND_SEED_BYTES];
    struct hostlist hosts;
    uint32_t np, local;       /* index of horovodrun's own host; none: hosts.n */
    uint32_t peer_timeout_ms; /* of agents */
    char dir[PATH_MAX];       /* working directory */
    char iface[64];           /* "": that of the route to the peer */
    /* values of --binding and --network-interfaces; "": none */
    char binding[16], nics[256];
    uint32_t is_verbose;
    struct tf_roles roles;
    char agent_path[PATH_MAX];
    struct ssh_how ssh; /* for agents that start other agents */
    uint32_t fanout;    /* 0: no agent starts other agents */
    /* of each host in an elastic job, where slot i of host h has the number
     * h * elastic_slots + i; 0: the job is not elastic */
    uint32_t elastic_slots;
    /* how long an agent keeps its processes when horovodrun is lost, for the next one of
     * the same job_id; 0: not at all */
    uint32_t keep_ms;
    struct errand_words argv, env,
        vars; /* vars: variables that horovodrun's options set */
};
void errand_release(struct errand *e);
void errand_write(const struct errand *e, struct strbuf *out);
/* version: our own. -EPROTO with err if the sender's differs. */
int errand_read(const uint8_t *p,
                size_t n,
                const char *version,
                struct errand *ret,
                struct err *err);

/* Splits vars into names and values, which point into e. e must not be written
 * afterwards. The caller frees *ret. */
int errand_vars(struct errand *e, struct option_var **ret, struct err *err);

struct errand_start { /* release with errand_start_release */
    uint16_t rdv_port, master_port;
    char rdv_host[HOST_NAME_MAX_BYTES];
    /* addresses by which the receiver reaches the hosts, with their slots: all hosts in
     * a job of TensorFlow's strategies, otherwise only that of rank 0 */
    struct hostlist reach;
};
void errand_start_release(struct errand_start *s);
void errand_start_write(const struct errand_start *s, struct strbuf *out);
int errand_start_read(const uint8_t *p,
                      size_t n,
                      struct errand_start *ret,
                      struct err *err);

struct errand_process { /* of an elastic job */
    uint32_t slot, incarnation;
};
void errand_process_write(const struct errand_process *s, struct strbuf *out);
/* The rest of the payload remains in r. */
struct errand_process errand_process_read(struct bytes_reader *r);

/* Without the host, which is the receiver's. */
void errand_place_write(const struct place *p, struct strbuf *out);
struct place errand_place_read(struct bytes_reader *r);

void errand_has_write(const struct errand_process *s,
                      const struct elastic_process *p,
                      struct strbuf *out);
int errand_has_read(const uint8_t *p,
                    size_t n,
                    struct errand_process *ret,
                    struct elastic_process *ret_state,
                    struct err *err);

struct errand_ready {
    uint16_t master_port;
    /* of an elastic job: the latest world that the agent knows, 0: none; and for how many
     * horovodruns it has worked before */
    uint32_t generation, n_leaders;
    char own[HOST_NAME_MAX_BYTES], theirs[HOST_NAME_MAX_BYTES]; /* "": unknown */
};
void errand_ready_write(const struct errand_ready *s, struct strbuf *out);
int errand_ready_read(const uint8_t *p,
                      size_t n,
                      struct errand_ready *ret,
                      struct err *err);

struct errand_output {
    uint32_t rank, stream; /* 0 stdout, 1 stderr */
    const uint8_t *p;      /* points into the payload */
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

/* Divides the hosts first .. end-1 among at most fanout agents, each of which starts
 * the rest of its share. Returns the j-th share; false: none. skip (horovodrun's own
 * host) is left out. fanout 0: one host per share. */
bool errand_share(uint32_t first,
                  uint32_t end,
                  uint32_t skip,
                  uint32_t fanout,
                  uint32_t j,
                  uint32_t *ret_first,
                  uint32_t *ret_end);

#endif
