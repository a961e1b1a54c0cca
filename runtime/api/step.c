/* SPDX-License-Identifier: Apache-2.0 */
/* One step of the coordinator, run by whoever sits in the seat (coordinator.c):
 *
 *   queue -> requests -> up to rank 0        (rank 0: into the table at once)
 *   control: requests of others, responses, goodbyes, losses
 *   rank 0: ready tensors -> responses -> down to all, and into its own todo list
 *   todo: responses -> batches -> backend -> op_finish
 *
 * I1  Responses are carried out in their order, each exactly once; rank 0 reads the
 * very bytes that it has sent to the others. I2  After the backend or the world has
 * failed nothing is posted; every op ends with the cause. I3  What talks (queue,
 * control, negotiation) never posts, so it may run inside a backend's wait: the next
 * tensors are negotiated while this one travels.
 *
 * The backend completes inside post today; poll is honoured by waiting for it here.
 * Pipelining (a list of tickets in flight) belongs here when a backend needs it. */
#include "runtime/api/coordinator.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

enum { MESSAGE_AIM = 1 << 18 }; /* a message is sent when it has grown to this */

struct todo {
    struct todo *next;
    size_t n;
    uint8_t bytes[];
};

static int todo_append(struct coordinator *co, const void *p, size_t n, struct err *err)
{
    struct todo *t = mem_alloc(sizeof(*t) + n);

    if (!t)
        return err_set(err, -ENOMEM, "out of memory for %zu bytes of responses", n);
    t->next = NULL;
    t->n = n;
    memcpy(t->bytes, p, n);
    if (co->todo_tail)
        co->todo_tail->next = t;
    else
        co->todo_head = t;
    co->todo_tail = t;
    return 0;
}

static void todo_drop(struct coordinator *co)
{
    struct todo *t = co->todo_head;

    co->todo_head = t->next;
    if (!co->todo_head)
        co->todo_tail = NULL;
    mem_free(t);
}

void step_release(struct coordinator *co)
{
    while (co->todo_head)
        todo_drop(co);
}

/* --- ends --- */

static void finish(struct coordinator *co, struct op *op, int status, const char *text)
{
    tensor_queue_remove(&co->queue,
                        op); /* first: the callback may submit the name again */
    op_finish(op, status, text);
    op_unref(op);
}

void step_fail_all(struct coordinator *co, int status, const char *text)
{
    struct op *op;

    while ((op = tensor_queue_evict(&co->queue))) {
        op_finish(op, status, text);
        op_unref(op);
    }
    coordinator_wake_sleepers(co);
}

static void broken(struct coordinator *co, const char *cause)
{
    int life = (int)life_next((enum life)atomic_load(&co->life), LIFE_EV_FAILED);

    atomic_store(&co->life, life);
    co->is_stuck = true;
    if (co->backend)
        co->backend->ops->abort(co->backend);
    tensor_queue_close(&co->queue, HVD_ABORTED, cause);
    if (co->rank == 0)
        log_error("the world is broken, all operations fail", "cause=\"%s\"", cause);
    else
        log_info("the world is broken, all operations fail", "cause=\"%s\"", cause);
    step_fail_all(co, HVD_ABORTED, cause);
}

static void ended(struct coordinator *co)
{
    int life = (int)life_next((enum life)atomic_load(&co->life), LIFE_EV_ENDED);

    atomic_store(&co->life, life);
    tensor_queue_close(&co->queue, HVD_PRECONDITION, co->end_text);
    step_fail_all(co, HVD_PRECONDITION, co->end_text);
}

int coordinator_status(struct coordinator *co, struct err *err)
{
    int r;

    (void)pthread_mutex_lock(&co->queue.lock);
    r = co->queue.is_closed
            ? err_set(err, co->queue.closed_status, "%s", co->queue.closed_text)
            : 0;
    (void)pthread_mutex_unlock(&co->queue.lock);
    return r;
}

/* --- talking --- */

static void add_request(struct coordinator *co,
                        uint32_t rank,
                        const struct request *req,
                        struct err *err,
                        int *r)
{
    uint64_t now = clock_now_ns(), soon = UINT64_MAX;

    *r = negotiate_add(co->negotiate, rank, req, now, err);
    if (co->stall.warn_ns > 0)
        soon = now + co->stall.warn_ns;
    if (co->stall.fail_ns > 0 && now + co->stall.fail_ns < soon)
        soon = now + co->stall.fail_ns;
    if (soon < co->stall_next_ns)
        co->stall_next_ns = soon;
}

static void send_requests(struct coordinator *co)
{
    if (strbuf_status(&co->out) < 0)
        control_abort(co->control, "out of memory for requests");
    else if (co->out.n > 0)
        (void)control_up(co->control, co->out.p,
                         co->out.n); /* the pump tells of a loss */
    strbuf_clear(&co->out);
}

static bool submit_new(struct coordinator *co)
{
    struct op *op = tensor_queue_take(&co->queue), *next;
    struct err err = ERR_INIT;
    bool any = op != NULL;
    int r = 0;

    if (atomic_load(&co->life) != LIFE_READY)
        return false; /* what came too late is failed at the end */
    strbuf_clear(&co->out);
    for (; op && r == 0; op = next) {
        next = op->next;
        if (co->rank == 0) {
            add_request(co, 0, &op->req, &err, &r);
            continue;
        }
        if (co->out.n == 0)
            message_begin(&co->out, MESSAGE_REQUESTS);
        message_put_request(&co->out, &op->req);
        if (co->out.n >= MESSAGE_AIM)
            send_requests(co);
    }
    if (r < 0)
        control_abort(co->control, err.text);
    if (co->rank != 0)
        send_requests(co);
    return any;
}

int coordinator_on_up(
    void *arg, uint32_t rank, const uint8_t *p, size_t n, struct err *err)
{
    struct coordinator *co = arg;
    struct message_reader in;
    struct request req;
    int r = message_open(&in, p, n, err);

    if (r == 0 && in.kind != MESSAGE_REQUESTS)
        r = err_set(err, -EBADMSG, "control message: responses where requests belong");
    while (r == 0) {
        r = message_next_request(&in, &req, err);
        if (r <= 0)
            break;
        add_request(co, rank, &req, err, &r);
    }
    return r;
}

int coordinator_on_down(void *arg, const uint8_t *p, size_t n, struct err *err)
{
    return todo_append(arg, p, n, err);
}

void coordinator_on_ended(void *arg, const char *who)
{
    struct coordinator *co = arg;

    co->has_end = true;
    (void)snprintf(co->end_text, sizeof(co->end_text),
                   "Horovod has been shut down: %.440s", who);
}

static void respond(struct coordinator *co)
{
    struct err err = ERR_INIT;
    size_t n;
    int r = 0;

    while (r == 0 && negotiate_ready(co->negotiate) > 0 && !co->has_end) {
        strbuf_clear(&co->out);
        r = negotiate_write(co->negotiate, co->settings.fusion_bytes, &co->out, &n);
        if (r < 0) {
            (void)err_set(&err, r, "rank 0 is out of memory for responses");
            break;
        }
        (void)control_down(co->control, co->out.p,
                           co->out.n); /* the pump tells of a loss */
        r = todo_append(co, co->out.p, co->out.n, &err);
    }
    if (r < 0)
        control_abort(co->control, err.text);
}

/* Everything but posting. *moved is set when something happened. */
static int talk(struct coordinator *co, bool *moved, struct err *err)
{
    int r;

    if (submit_new(co))
        *moved = true;
    r = control_pump(co->control, err);
    if (co->rank == 0 && r == 0)
        respond(co);
    return r;
}

int coordinator_interrupted(void *arg, struct err *err)
{
    struct coordinator *co = arg;
    bool moved;

    if (atomic_load(&co->is_hurried))
        return err_set(err, -ESHUTDOWN, "this rank is shutting down");
    return talk(co, &moved, err);
}

static void check_stall(struct coordinator *co)
{
    CLEANUP(strbuf_release) struct strbuf text = {0};
    uint64_t now = clock_now_ns();
    char cause[MESSAGE_TEXT_MAX];

    if (co->rank != 0 || now < co->stall_next_ns)
        return;
    strbuf_init(&text, 4096);
    switch (stall_step(&co->stall, co->negotiate, now, &text, &co->stall_next_ns)) {
    case STALL_NONE:
        break;
    case STALL_WARN:
        log_warn("stalled: some ranks have not submitted what others wait for, still "
                 "waiting",
                 "%s", strbuf_str(&text));
        break;
    case STALL_FAIL:
        (void)snprintf(cause, sizeof(cause),
                       "stalled (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS): %.400s",
                       strbuf_str(&text));
        control_abort(co->control, cause);
        break;
    }
}

/* --- carrying out --- */

static void stuck(struct coordinator *co, const char *sentence)
{
    co->is_stuck = true;
    if (!atomic_load(&co->is_hurried))
        control_suspect(co->control, sentence);
}

static int
post_and_wait(struct coordinator *co, const struct batch *batch, struct err *err)
{
    struct backend *b = co->backend;
    uint64_t ticket, done;
    int r = b->ops->post(b, batch, co->batch_ops[0]->ready_event, &ticket, err);

    for (;;) {
        r = r < 0 ? r : b->ops->poll(b, &done, err);
        if (r < 0 || done >= ticket)
            return r;
        r = coordinator_interrupted(co, err);
        (void)sched_yield();
    }
}

static void run_batch(struct coordinator *co)
{
    const struct op *first = co->batch_ops[0];
    struct batch batch = {.coll = first->req.coll,
                          .dtype = first->req.dtype,
                          .op = first->req.op,
                          .root = first->req.root,
                          .prescale = first->req.prescale,
                          .postscale = first->req.postscale,
                          .items = co->batch_items,
                          .n_items = first->req.coll == COLL_BARRIER ? 0 : co->n_batch};
    struct err err = ERR_INIT;

    for (size_t i = 0; i < co->n_batch; i++) {
        const struct op *op = co->batch_ops[i];

        co->batch_items[i] = (struct batch_item){
            .in = op->data,
            .out = op->req.coll == COLL_ALLGATHER ? op->result : op->output,
            .count = op->count,
            .counts = op->counts};
    }
    if (post_and_wait(co, &batch, &err) < 0) {
        stuck(co, err.text);
        return;
    }
    for (size_t i = 0; i < co->n_batch; i++) {
        struct op *op = co->batch_ops[i];

        if (op->has_no_memory)
            finish(co, op, HVD_NO_MEMORY, "no memory for the result of an allgather");
        else
            finish(co, op, HVD_OK, NULL);
    }
    co->n_batch = 0;
    coordinator_wake_sleepers(co);
}

static int add_to_batch(struct coordinator *co,
                        struct op *op,
                        const struct response *resp,
                        struct err *err)
{
    void *ops = co->batch_ops, *items = co->batch_items;
    int r = mem_grow(&ops, co->n_batch, &co->ops_cap, sizeof(void *), SIZE_MAX / 64);

    co->batch_ops = ops;
    if (r == 0)
        r = mem_grow(&items, co->n_batch, &co->items_cap, sizeof(*co->batch_items),
                     SIZE_MAX / 64);
    co->batch_items = items;
    if (r == 0 && resp->coll == COLL_ALLGATHER)
        r = op_make_result(op, resp->counts, co->size);
    if (r < 0) {
        char name[NAME_SHOWN_MAX];

        return err_set(err, r, "rank %u is out of memory for tensor %s", co->rank,
                       name_shown(op->req.name, name));
    }
    co->batch_ops[co->n_batch++] = op;
    return 0;
}

static int
carry_out(struct coordinator *co, const struct response *resp, struct err *err)
{
    struct op *op = tensor_queue_find(&co->queue, resp->name);
    int r;

    if (!op || (resp->kind == RESPONSE_RUN && op->req.coll != resp->coll))
        return err_set(err, -EPROTO,
                       "rank 0 answers tensor \"%.200s\", which rank %u has not",
                       resp->name, co->rank);
    if (resp->kind == RESPONSE_FAIL) {
        finish(co, op, HVD_INVALID_ARGUMENT, resp->text);
        coordinator_wake_sleepers(co);
        return 0;
    }
    r = add_to_batch(co, op, resp, err);
    if (r == 0 && !resp->fuse_next)
        run_batch(co);
    return r;
}

static void run_message(struct coordinator *co, const struct todo *t)
{
    struct err err = ERR_INIT;
    struct message_reader in;
    struct response resp;
    int r = message_open(&in, t->bytes, t->n, &err);

    if (r == 0 && in.kind != MESSAGE_RESPONSES)
        r = err_set(&err, -EBADMSG, "control message: requests where responses belong");
    while (r == 0 && !co->is_stuck) {
        r = message_next_response(&in, co->counts, co->size, &resp, &err);
        if (r <= 0)
            break;
        r = carry_out(co, &resp, &err);
    }
    if (r < 0) {
        co->is_stuck = true;
        control_abort(co->control, err.text);
    }
}

static uint64_t next_ns(const struct coordinator *co)
{
    uint64_t a = control_next_ns(co->control);

    return co->rank == 0 && co->stall_next_ns < a ? co->stall_next_ns : a;
}

bool step_once(struct coordinator *co)
{
    struct err err = ERR_INIT;
    int life = atomic_load(&co->life);
    bool moved = false;

    if (life == LIFE_DOWN || life == LIFE_ABORTED)
        return false;
    if (talk(co, &moved, &err) < 0) {
        broken(co, err.text);
        return true;
    }
    while (co->todo_head && !co->is_stuck) {
        run_message(co, co->todo_head);
        todo_drop(co);
        moved = true;
    }
    if (co->has_end && (!co->todo_head || co->is_stuck)) {
        ended(co);
        return true;
    }
    check_stall(co);
    atomic_store(&co->next_ns, next_ns(co));
    return moved;
}
