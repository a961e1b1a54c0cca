/* SPDX-License-Identifier: Apache-2.0 */
/* Transformers 5 (KubeflowCallback, transformers#44487) posts to the URL of
 * KUBEFLOW_TRAINER_SERVER_URL, with the content of the file KUBEFLOW_TRAINER_SERVER_TOKEN
 * as bearer token; without a token it reports nothing. Earlier versions of Kubeflow's SDK
 * (kubeflow/sdk#367) had STATUS in place of SERVER. Neither needs a CA certificate for
 * http.
 *
 * The token keeps out other users of the host, where the network is the host's. It has
 * nothing to do with the job's token. Called by metrics.c (its thread) and by agent.c. */
#include "runtime/launch/trainer.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"
#include "runtime/contract/contract.h"
#include "runtime/launch/trainer_json.h"
#include "runtime/live/live_progress.h"

struct trainer {
    char token[2 * SHA256_BYTES + 1]; /* constant, as the next two */
    char token_file[CONTRACT_PATH_MAX];
    char url[sizeof("http://127.0.0.1:65535" TRAINER_PATH)];
    pthread_mutex_t lock;
    struct live_progress progress; /* lock */
};

int trainer_new(const char *dir, struct trainer **ret, struct err *err)
{
    struct trainer *t = mem_zalloc(sizeof(*t));
    uint8_t bytes[SHA256_BYTES];
    int rc;

    if (!t)
        return err_set(err, -ENOMEM, "out of memory for the trainer's status");
    (void)pthread_mutex_init(&t->lock, NULL);
    live_progress_init(&t->progress);
    (void)snprintf(t->token_file, sizeof(t->token_file), "%s/trainer-token", dir);
    rc = random_bytes(bytes, sizeof(bytes));
    if (rc < 0)
        rc = err_errno(err, -rc, "cannot make a token for the trainer's status");
    hex_encode(bytes, sizeof(bytes), t->token);
    if (rc == 0)
        rc = fd_write_file(t->token_file, t->token, strlen(t->token), 0600, err);
    if (rc < 0)
        trainer_free(t);
    else
        *ret = t;
    return rc;
}

void trainer_free(struct trainer *t)
{
    if (!t)
        return;
    (void)pthread_mutex_destroy(&t->lock);
    mem_free(t);
}

/* Digests, so that the time does not depend on the bytes. */
static bool token_is(const struct trainer *t, const struct post *post)
{
    uint8_t want[SHA256_BYTES], is[SHA256_BYTES];

    sha256_digest(t->token, strlen(t->token), want);
    sha256_digest(post->bearer, post->n_bearer, is);
    return mac_equal(want, is);
}

static bool path_is(const struct post *post, const char *path)
{
    return post->n_path == strlen(path) && memcmp(post->path, path, post->n_path) == 0;
}

static const char *
trainer_take(struct trainer *t, const struct post *post, char *text, size_t size_bytes)
{
    struct trainer_report r;
    struct live_progress now;
    struct err err = ERR_INIT;
    int rc = trainer_json_read(post->body, post->n_body, &r, &err);

    (void)snprintf(text, size_bytes, "%s\n", rc < 0 ? err.text : "ok");
    if (rc < 0)
        return rc == -ENOMEM ? "503 Service Unavailable" : "400 Bad Request";
    (void)pthread_mutex_lock(&t->lock);
    trainer_progress_update(&t->progress, &r, clock_wall_us());
    now = t->progress;
    (void)pthread_mutex_unlock(&t->lock);
    log_debug("trainer status received", "step=%lld total=%lld epoch=%lld metrics=%u",
              (long long)now.step, (long long)now.total_steps, (long long)now.epoch,
              now.n_metrics);
    return "200 OK";
}

const char *trainer_answer(struct trainer *t,
                           const struct post *post,
                           bool is_local,
                           char *text,
                           size_t size_bytes)
{
    if (post->status) {
        (void)snprintf(text, size_bytes, "%s\n", post->why);
        return post->status;
    }
    if (!t || !path_is(post, TRAINER_PATH)) {
        (void)snprintf(text, size_bytes, "only %s takes a POST\n", TRAINER_PATH);
        return "404 Not Found";
    }
    if (!is_local) {
        (void)snprintf(text, size_bytes, "only for processes of this host\n");
        return "403 Forbidden";
    }
    if (!token_is(t, post)) {
        (void)snprintf(text, size_bytes,
                       "needs the token of the file KUBEFLOW_TRAINER_SERVER_TOKEN\n");
        return "401 Unauthorized";
    }
    return trainer_take(t, post, text, size_bytes);
}

bool trainer_progress_get(struct trainer *t, struct live_progress *ret)
{
    bool is_there;

    if (!t)
        return false;
    (void)pthread_mutex_lock(&t->lock);
    is_there = t->progress.updated_wall_us > 0;
    if (is_there)
        *ret = t->progress;
    (void)pthread_mutex_unlock(&t->lock);
    return is_there;
}

/* --- variables --- */

static const char *const names[TRAINER_VARS] = {
    "KUBEFLOW_TRAINER_SERVER_URL", "KUBEFLOW_TRAINER_SERVER_TOKEN",
    "KUBEFLOW_TRAINER_STATUS_URL", "KUBEFLOW_TRAINER_STATUS_TOKEN"};

void trainer_variables(struct trainer *t,
                       uint16_t port,
                       struct option_var ret[TRAINER_VARS])
{
    (void)snprintf(t->url, sizeof(t->url), "http://127.0.0.1:%u%s", port, TRAINER_PATH);
    for (size_t i = 0; i < TRAINER_VARS; i++)
        ret[i] = (struct option_var){names[i], i % 2 == 0 ? t->url : t->token_file};
}

bool trainer_is_elsewhere(char *const *env)
{
    for (; env && *env; env++)
        for (size_t i = 0; i < TRAINER_VARS; i++)
            if (strncmp(*env, names[i], strlen(names[i])) == 0
                && (*env)[strlen(names[i])] == '=')
                return true;
    return false;
}
