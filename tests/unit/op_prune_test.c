/* SPDX-License-Identifier: Apache-2.0 */
/* Text of objects, cut down by rules; and that pods and jobs are read alike with and
 * without. */
#include "tests/unit/unit.h"

#include "operator/doc/prune.h"
#include "runtime/base/mem.h"

static const struct prune_rule item_rules[] = {PRUNE_KEEP("name"), PRUNE_END};
static const struct prune_rule meta_rules[] = {PRUNE_KEEP("name"), PRUNE_KEEP("uid"),
                                               PRUNE_END};
static const struct prune_rule spec_rules[] = {
    PRUNE_KEEP("node"), {.key = "items", .inner = item_rules}, PRUNE_END};
static const struct prune_rule rules[] = {{.key = "metadata", .inner = meta_rules},
                                          {.key = "spec", .inner = spec_rules},
                                          PRUNE_KEEP("a"),
                                          PRUNE_END};

UNIT_TEST(prune_keeps_the_fields_of_the_rules)
{
    static const struct {
        const char *text, *wanted; /* NULL: refused */
    } rows[] = {
        {"{}", "{}"},
        {"{\"a\":[1,{\"z\":2}],\"b\":[1,2]}", "{\"a\":[1,{\"z\":2}]}"},
        {"{\"metadata\":{\"name\":\"x\",\"managedFields\":[{\"a\":{}}],\"uid\":\"u\"}}",
         "{\"metadata\":{\"name\":\"x\",\"uid\":\"u\"}}"},
        {"{\"metadata\":{\"managedFields\":[]},\"z\":null}", "{\"metadata\":{}}"},
        {" { \"spec\" : { \"big\" : [ \"}\" ] , \"node\" : \"n\" } } ",
         "{\"spec\":{\"node\":\"n\"}}"},
        {"{\"spec\":{\"items\":[{\"name\":\"a\",\"env\":[]},{\"env\":[1]}],\"q\":2}}",
         "{\"spec\":{\"items\":[{\"name\":\"a\"},{}]}}"},
        {"{\"spec\":null,\"metadata\":7}", "{\"spec\":null,\"metadata\":7}"},
        {"{\"spec\":{\"items\":{\"name\":1,\"o\":2}}}",
         "{\"spec\":{\"items\":{\"name\":1}}}"},
        {"{\"a\\\"b\":1,\"a\":\"c\\\\\"}", "{\"a\":\"c\\\\\"}"},
        {"[]", NULL},
        {"7", NULL},
        {"", NULL},
        {"{\"spec\":{\"node\":\"n\"", NULL},
        {"{\"spec\":{\"node\" \"n\"}}", NULL},
        {"{\"a\":1 \"b\":2}", NULL},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct json_span text = {rows[i].text, strlen(rows[i].text)};
        CLEANUP(strbuf_release) struct strbuf out;
        int rc;

        strbuf_init(&out, 4096);
        rc = json_prune(text, rules, &out);
        if (rows[i].wanted)
            assert_string_equal(strbuf_str(&out), rows[i].wanted);
        assert_int_equal(rc, rows[i].wanted ? 0 : -EINVAL);
    }
}

UNIT_TEST(prune_reports_that_memory_is_out)
{
    struct json_span text = {"{\"a\":\"0123456789\"}", 18};
    CLEANUP(strbuf_release) struct strbuf out;

    strbuf_init(&out, 8);
    assert_int_equal(json_prune(text, rules, &out), -E2BIG);
}

UNIT_MAIN(NULL, NULL)
