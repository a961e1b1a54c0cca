/* SPDX-License-Identifier: Apache-2.0 */
/* A card: the line of another rank on the launcher's channel. */
#include <errno.h>

#include "runtime/bootstrap/pmi_line.h"
#include "runtime/contract/card.h"
#include "tests/fuzz/fuzz.h"

FUZZ_TARGET(card)
{
    char *line = fuzz_text(data, n);
    char value[CARD_MAX_BYTES + 1], again[CARD_MAX_BYTES + 1];
    struct err err = ERR_INIT;
    struct card a, b;

    (void)pmi_number(line, "rc", 0);
    int rc =
        pmi_is(line, "get_result") && pmi_value(line, "value", value, sizeof(value))
            ? card_parse(value, 3, &a, &err)
            : -ENOENT;

    free(line);
    if (rc) {
        MUST(rc == -ENOENT || (rc == -EPROTO && err.text[0]));
        return 0;
    }
    MUST(!strpbrk(value, " \n"));
    MUST(card_format(&a, again, sizeof(again), &err) == 0);
    MUST(card_parse(again, 3, &b, &err) == 0);
    MUST(memcmp(&a, &b, sizeof(a)) == 0);
    return 0;
}
