/* SPDX-License-Identifier: Apache-2.0 */
/* core/record_text.c: what hvd-status prints of a job without a running step. */
#include "tests/unit/unit.h"

#include "runtime/base/mem.h"
#include "runtime/launch/core/record_text.h"

static void
expect(const struct job_record *r, const char *word, bool is_json, const char *want)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};
    struct step_word w;
    bool rc;

    strbuf_init(&out, 4096);
    assert_int_equal(step_word_parse(word, &w, NULL), 0);
    rc = record_text(r, &w, is_json, &out);
    assert_string_equal(strbuf_str(&out), want);
    assert_int_equal(rc, *want != '\0');
}

UNIT_TEST(golden)
{
    static const struct {
        const char *state, *reason, *comment, *word, *text, *json;
    } rows[] = {
        {"FAILED", "NonZeroExitCode",
         "mine | hvd 12.1: Failed: rank 4 on node3 exited with code 7", "12",
         "Slurm job 12, step 1: FAILED\nFailed: rank 4 on node3 exited with code 7\n",
         "{\"state\":\"Failed\",\"slurm\":{\"job\":12,\"step\":1,\"state\":\"FAILED\"},"
         "\"failure\":{\"rank\":4,\"node\":\"node3\",\"exitCode\":7,"
         "\"message\":\"rank 4 on node3 exited with code 7\"},"
         "\"line\":\"Failed: rank 4 on node3 exited with code 7\"}\n"},
        {"COMPLETING", "None",
         "hvd 12.0: Failed: rank 0 on a was killed by signal 9 (SIGKILL)", "12.0",
         "Slurm job 12, step 0: COMPLETING\n"
         "Failed: rank 0 on a was killed by signal 9 (SIGKILL)\n",
         "{\"state\":\"Failed\",\"slurm\":{\"job\":12,\"step\":0,\"state\":"
         "\"COMPLETING\"},"
         "\"failure\":{\"rank\":0,\"node\":\"a\",\"signal\":9,"
         "\"message\":\"rank 0 on a was killed by signal 9 (SIGKILL)\"},"
         "\"line\":\"Failed: rank 0 on a was killed by signal 9 (SIGKILL)\"}\n"},
        {"FAILED", "None", "hvd 12.0: Failed: node2: no \x1b[1mtoken", "12",
         "Slurm job 12, step 0: FAILED\nFailed: node2: no ?[1mtoken\n",
         "{\"state\":\"Failed\",\"slurm\":{\"job\":12,\"step\":0,\"state\":\"FAILED\"},"
         "\"failure\":{\"message\":\"node2: no \\u001b[1mtoken\"},"
         "\"line\":\"Failed: node2: no \\u001b[1mtoken\"}\n"},
        {"COMPLETED", "None", "hvd 12.0: Ended: 8 ranks", "12",
         "Slurm job 12, step 0: COMPLETED\nEnded: 8 ranks\n",
         "{\"state\":\"Ended\",\"slurm\":{\"job\":12,\"step\":0,\"state\":"
         "\"COMPLETED\"},"
         "\"line\":\"Ended: 8 ranks\"}\n"},
        {"PENDING", "Resources", "hvd 12.0: Failed: rank 1 on a exited with code 3",
         "12", "Slurm job 12 is PENDING: it has no ranks yet (Resources)\n",
         "{\"state\":\"Pending\",\"slurm\":{\"job\":12,\"state\":\"PENDING\","
         "\"reason\":\"Resources\"}}\n"},
        {"COMPLETED", "None", "mine", "12", "", ""},
        {"COMPLETED", "None", "", "12", "", ""},
        /* of another step, and of the job before a requeue */
        {"FAILED", "None", "hvd 12.0: Failed: x", "12.1", "", ""},
        {"FAILED", "None", "hvd 11.0: Failed: x", "12", "", ""},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct job_record r = {.job = 12, .comment = rows[i].comment};

        (void)snprintf(r.state, sizeof(r.state), "%s", rows[i].state);
        (void)snprintf(r.reason, sizeof(r.reason), "%s", rows[i].reason);
        expect(&r, rows[i].word, false, rows[i].text);
        expect(&r, rows[i].word, true, rows[i].json);
    }
}

UNIT_MAIN(NULL, NULL)
