/* SPDX-License-Identifier: Apache-2.0 */
/* Leads an elastic job: carries out what core/elastic.h decides. It has a rendezvous
 * server for each world, writes the messages to the processes, and remembers the failure
 * that ended a world. How messages reach a process is the owner's. One thread. */
#ifndef RUNTIME_LAUNCH_ELASTIC_LEAD_H
#define RUNTIME_LAUNCH_ELASTIC_LEAD_H

#include "runtime/launch/core/elastic.h"
#include "runtime/launch/core/verdict.h"
#include "runtime/rendezvous/rendezvous.h"
#include "runtime/wire/member_message.h"

struct elastic_lead_config {
    struct elastic_config policy;
    const struct token *token; /* of the job; outlives the lead, as job_id does */
    const char *job_id;
    /* To the launcher of the slot's worker. Each is called in elastic_lead_step. */
    void (*spawn)(void *arg,
                  uint32_t slot,
                  uint32_t incarnation,
                  const struct place *place);
    void (*kill)(void *arg, uint32_t slot, uint32_t incarnation);
    void (*send)(void *arg,
                 uint32_t slot,
                 uint32_t incarnation,
                 const struct strbuf *message);
    /* The name of a worker, and the address by which it reaches this program. */
    const char *(*name_of)(void *arg, uint32_t worker);
    const char *(*address_for)(void *arg, uint32_t worker);
    /* Each slot of the worker is excluded. r: the last failure there. */
    void (*retire)(void *arg, uint32_t worker, const struct report *r);
    /* A world has formed or ended: the process of this slot now has this rank. */
    void (*on_rank)(void *arg, uint32_t slot, uint32_t rank);
    void *arg;
};
struct elastic_lead {
    struct elastic_lead_config c;
    struct elastic e;
    struct place *places; /* [e.n_slots] by rank, of the current world */
    struct rdv_server *server;
    uint16_t port;
    struct report *cause; /* of the last failure that others did not cause */
    bool has_cause;
    uint64_t broken_ns;  /* the current world broke; 0: it works */
    bool is_handed_over; /* the state of the job: this has been logged */
    struct err failure;  /* of this program: code 0: none */
};

int elastic_lead_open(struct elastic_lead *l,
                      const struct elastic_lead_config *c,
                      struct err *err);
void elastic_lead_close(struct elastic_lead *l); /* accepts a zeroed struct */
/* p: READY or COMMIT, by the process of this slot. */
void elastic_lead_take_message(struct elastic_lead *l,
                               uint32_t slot,
                               uint32_t incarnation,
                               const uint8_t *p,
                               size_t n);
/* A process has ended. exit_code and signal 0: with success. Completes r. */
void elastic_lead_take_exit(struct elastic_lead *l,
                            uint32_t slot,
                            uint32_t incarnation,
                            struct report *r);
void elastic_lead_lose_worker(struct elastic_lead *l, uint32_t worker, const char *why);
/* All workers are lost, but keep their processes: elastic_take_over_again. */
void elastic_lead_take_over_again(struct elastic_lead *l);
/* A process that runs already, of a job that this program takes over: after
 * elastic_take_over. */
void elastic_lead_adopt(struct elastic_lead *l,
                        uint32_t slot,
                        const struct elastic_process *p);
/* Carries out what is due. Returns when to come again. */
uint64_t elastic_lead_step(struct elastic_lead *l);
bool elastic_lead_has_ended(const struct elastic_lead *l);
/* Ended, and not well: the failure to report. */
void elastic_lead_fill_end(const struct elastic_lead *l, struct report *ret);

#endif
