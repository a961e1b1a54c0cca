/* SPDX-License-Identifier: Apache-2.0 */
/* Setting a condition: every pair of what is there and what is set. */
#include "tests/unit/unit.h"

#include "operator/core/mpi/mpi_conditions.h"
#include "runtime/base/mem.h"
#include "runtime/base/strbuf.h"

/* "Type=True Reason updated/since", one a line. */
static void conditions_print(const struct mpi_conditions *c, struct strbuf *out)
{
    for (size_t i = 0; i < c->n; i++)
        strbuf_printf(out, "%s=%s %s %s/%s\n", c->v[i].type, c->v[i].status,
                      c->v[i].reason, c->v[i].updated, c->v[i].since);
}

/* Conditions as text: "Type=Status Reason, ..."; words hold them. */
static size_t conditions_read(const char *text, char words[4][3][16])
{
    size_t n = 0;
    int end;

    for (; n < 4
           && sscanf(text, "%15[^=]=%15s %15[^,]%n", words[n][0], words[n][1],
                     words[n][2], &end)
                  == 3;
         n++)
        text += end + strspn(text + end, ", ");
    return n;
}

/* Each condition before was set at t1, what is set is set at t2. */
static const struct {
    const char *before, *set;
    bool is_changed;
    const char *after;
} row[] = {
    {"", "Created=True C", true, "Created=True C t2/t2\n"},
    /* the same status and reason: nothing moves */
    {"Running=True R, Other=True O", "Running=True R", false,
     "Running=True R t1/t1\nOther=True O t1/t1\n"},
    /* another reason: to the end, in the same state since */
    {"Running=False R, Other=True O", "Running=False S", true,
     "Other=True O t1/t1\nRunning=False S t2/t1\n"},
    /* another status: to the end, since now */
    {"Running=True R, Other=True O", "Running=False R", true,
     "Other=True O t1/t1\nRunning=False R t2/t2\n"},
    {"Running=Unknown R", "Running=True R", true, "Running=True R t2/t2\n"},
    /* an end stops what runs, in place and with its times */
    {"Created=True C, Running=True R", "Succeeded=True S", true,
     "Created=True C t1/t1\nRunning=False R t1/t1\nSucceeded=True S t2/t2\n"},
    {"Created=True C, Running=True R", "Failed=True F", true,
     "Created=True C t1/t1\nRunning=False R t1/t1\nFailed=True F t2/t2\n"},
    {"Failed=True F", "Succeeded=True S", true,
     "Failed=False F t1/t1\nSucceeded=True S t2/t2\n"},
    {"Succeeded=True S", "Failed=True F", true,
     "Succeeded=True S t1/t1\nFailed=True F t2/t2\n"},
    {"Failed=True F", "Failed=True G", true, "Failed=True G t2/t1\n"},
    /* an end that is there already changes nothing else */
    {"Failed=True F, Running=True R", "Failed=True F", false,
     "Failed=True F t1/t1\nRunning=True R t1/t1\n"},
    /* Running and Restarting displace each other */
    {"Restarting=True X, Created=True C", "Running=True R", true,
     "Created=True C t1/t1\nRunning=True R t2/t2\n"},
    {"Running=True R, Created=True C", "Restarting=True X", true,
     "Created=True C t1/t1\nRestarting=True X t2/t2\n"},
    /* suspension leaves Running and Restarting alone */
    {"Running=True R, Restarting=True X", "Suspended=True S", true,
     "Running=True R t1/t1\nRestarting=True X t1/t1\nSuspended=True S t2/t2\n"},
    {"Suspended=True S, Running=False S", "Suspended=False R", true,
     "Running=False S t1/t1\nSuspended=False R t2/t2\n"},
    {"Created=True C", "Suspended=False R", true,
     "Created=True C t1/t1\nSuspended=False R t2/t2\n"},
};

UNIT_TEST(each_pair_of_conditions_has_its_result)
{
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct mpi_conditions c = {.n = 0};
        CLEANUP(strbuf_release) struct strbuf out;
        char before[4][3][16], set[4][3][16];
        size_t n = conditions_read(row[i].before, before);

        for (; c.n < n; c.n++)
            c.v[c.n] = (struct mpi_condition){.type = before[c.n][0],
                                              .status = before[c.n][1],
                                              .reason = before[c.n][2],
                                              .message = "m",
                                              .updated = "t1",
                                              .since = "t1"};
        strbuf_init(&out, 4096);
        assert_int_equal(conditions_read(row[i].set, set), 1);
        assert_int_equal(mpi_conditions_set(&c, set[0][0],
                                            strcmp(set[0][1], "True") == 0, set[0][2],
                                            "n", "t2"),
                         row[i].is_changed);
        conditions_print(&c, &out);
        if (strcmp(strbuf_str(&out), row[i].after) != 0)
            fail_msg("row %zu gives\n%swanted\n%s", i, strbuf_str(&out), row[i].after);
    }
}

/* The message alone is no change. */
UNIT_TEST(message_alone_is_kept)
{
    struct mpi_conditions c = {.n = 0};

    assert_true(mpi_conditions_set(&c, "Failed", true, "R", "first", "t1"));
    assert_false(mpi_conditions_set(&c, "Failed", true, "R", "second", "t2"));
    assert_string_equal(mpi_conditions_find(&c, "Failed")->message, "first");
    assert_true(mpi_conditions_is_true(&c, "Failed"));
    assert_false(mpi_conditions_is_true(&c, "Succeeded"));
}

UNIT_TEST(stored_conditions_are_loaded)
{
    struct mpi_conditions c = {.n = 0}, again;
    CLEANUP(arena_release) struct arena a;
    struct build b = {.arena = &a};
    struct node *status, *list;

    arena_init(&a, 1u << 20);
    mpi_conditions_set(&c, "Created", true, "C", "m1", "t1");
    mpi_conditions_set(&c, "Running", false, "R", "m2", "t2");
    mpi_conditions_set(&c, "Other", false, "O", "m3",
                       ""); /* "" is no time to the API */
    status = node_object(&b);
    list = mpi_conditions_node(&b, &c);
    node_add_str(&b, list, "no condition"); /* dropped */
    node_set(&b, status, "conditions", list);
    mpi_conditions_load(&again, status);
    assert_int_equal(again.n, 3);
    assert_null(node_get(node_item(list, 2), "lastUpdateTime"));
    assert_null(node_get(node_item(list, 2), "lastTransitionTime"));
    list = mpi_conditions_node(&b, &again);
    assert_true(node_equal(list, mpi_conditions_node(&b, &c)));
    mpi_conditions_load(&again, NULL);
    assert_int_equal(again.n, 0);
}

UNIT_TEST(more_than_fit_are_dropped)
{
    static char type[MPI_MAX_CONDITIONS + 4][8];
    struct mpi_conditions c = {.n = 0};

    for (size_t i = 0; i < ARRAY_LEN(type); i++) {
        (void)snprintf(type[i], sizeof(type[i]), "T%zu", i);
        mpi_conditions_set(&c, type[i], true, "R", "", "t");
        assert_string_equal(c.v[c.n - 1].type, type[i]);
    }
    assert_int_equal(c.n, MPI_MAX_CONDITIONS);
}

UNIT_MAIN(NULL, NULL)
