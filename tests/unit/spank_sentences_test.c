/* SPDX-License-Identifier: Apache-2.0 */
/* sentences.c: what srun prints of what its tasks have sent. */
#include "tests/unit/unit.h"

#include "runtime/base/mem.h"
#include "spank_plugin/sentences.h"

#define PRINTED_MAX 8192
static void note_sentence(void *arg, const char *sentence)
{
    char *printed = arg;
    size_t n = strlen(printed);
    (void)snprintf(printed + n, PRINTED_MAX - n, "%s\n", sentence);
}

static const char *print_all(const char *const *texts, uint32_t n)
{
    static char printed[PRINTED_MAX];
    uint8_t *all[64];
    uint32_t sizes[64];
    assert_true(n <= ARRAY_LEN(all));
    for (uint32_t i = 0; i < n; i++) {
        sizes[i] = (uint32_t)strlen(texts[i]);
        all[i] = malloc(sizes[i]); /* not terminated: ASan sees a read behind it */
        memcpy(all[i], texts[i], sizes[i]);
    }
    printed[0] = '\0';
    sentences_print(all, sizes, n, note_sentence, printed);
    for (uint32_t i = 0; i < n; i++)
        free(all[i]);
    return printed;
}

UNIT_TEST(each_sentence_is_printed_once)
{
    static const struct {
        const char *sent[8], *want;
    } rows[] = {
        {{"", "", ""}, ""},
        {{"", "n1: old", "n1: old", ""}, "n1: old\n"},
        {{"n1: old", "n2: old", "n1: old", "n2: old"}, "n1, n2: old\n"},
        {{"n1: old", "n1: new", "n2: old"}, "n1, n2: old\nn1: new\n"},
        {{"n1: x", "n2: x", "n3: x", "n4: x", "n5: x", "n4: x"},
         "n1, n2, n3 and 2 more nodes: x\n"},
        /* of no node */
        {{"n1 and n2 cannot: why", "", "n1 and n2 cannot: why"},
         "n1 and n2 cannot: why\n"},
        {{"old", "n1: old"}, "n1: old\n"},
        {{": old", ": "}, ": old\n: \n"},
        {{"n1: ", "n2: "}, "n1, n2: \n"},
        {{"n1:", "x"}, "n1:\nx\n"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint32_t n = 0;
        while (n < 8 && rows[i].sent[n])
            n++;
        assert_string_equal(print_all(rows[i].sent, n), rows[i].want);
    }
}

UNIT_TEST(lines_and_their_number_are_bounded)
{
    static char text[64][2000];
    const char *texts[64];
    uint32_t n_lines = 0;
    for (uint32_t i = 0; i < 64; i++) {
        memset(text[i], 'a' + (int)(i / 6), sizeof(text[i]) - 1);
        memset(text[i], 'n', 500);
        text[i][i % 6] = 'm'; /* six nodes with long names */
        memcpy(text[i] + 500, ": ", 2);
        texts[i] = text[i];
    }
    for (const char *p = print_all(texts, 64); *p; p = strchr(p, '\n') + 1, n_lines++) {
        assert_true(strcspn(p, "\n") < 1024);
        assert_non_null(strstr(p, " and 3 more nodes: "));
    }
    assert_int_equal(n_lines, SENTENCES_MAX);
}

UNIT_MAIN(NULL, NULL)
