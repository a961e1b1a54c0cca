/* SPDX-License-Identifier: Apache-2.0 */
/* A value is checked where horovodrun and the runtime check it: by the option's row,
 * then by the variable's. Called by options.c and site.c. */
#include "spank_plugin/keys.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/parse.h"
#include "runtime/base/spelling.h"
#include "runtime/core/compress/codec.h"
#include "runtime/launch/core/option_value.h"
#include "spank_plugin/comment_text.h"

#define HELP_COLUMN 26
#define HELP_WIDTH  78
#define ARENA_BYTES 16384

static const struct step_key rows[] = {
#define ROW(name, flag, setting, value, help)                                          \
    {#name, value, help, OPT_##flag, (uint32_t)(setting), false},
    STEP_KEYS(ROW)
#undef ROW
};

static bool setting_is_knob(uint32_t setting)
{
    return setting < KNOB_COUNT;
}

static const struct knob *setting_knob(uint32_t setting)
{
    return knob_row((enum knob_id)setting);
}

/* The row with the texts that it leaves to the tables it refers to. */
static struct step_key step_key_complete(struct step_key k)
{
    if (k.flag != OPT_COUNT) {
        const struct launch_option_row *row = option_row(k.flag);
        k.value = *k.value ? k.value : row->value;
        k.help = *k.help ? k.help : row->help;
        k.is_switch = row->kind == OPTION_FLAG || row->kind == OPTION_SWITCH;
    } else if (setting_is_knob(k.setting)) {
        k.help = *k.help ? k.help : setting_knob(k.setting)->meaning;
        k.is_switch = setting_knob(k.setting)->kind == KNOB_BOOL;
        if (k.is_switch && strncmp(k.help, "1: ", 3) == 0)
            k.help += 3;
    }
    return k;
}

bool step_key_find(const char *name, struct step_key *ret)
{
    enum knob_id id;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (strcmp(rows[i].name, name) == 0) {
            *ret = step_key_complete(rows[i]);
            return true;
        }
    if (!knob_find(name, &id))
        return false;
    *ret = step_key_complete((struct step_key){.name = knob_row(id)->name,
                                               .value = "",
                                               .help = "",
                                               .flag = OPT_COUNT,
                                               .setting = id});
    return true;
}

const char *setting_name(uint32_t setting)
{
    if (setting_is_knob(setting))
        return setting_knob(setting)->name;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].setting == setting)
            return rows[i].name;
    return "";
}

bool setting_number(uint32_t setting, const char *text, uint64_t *ret)
{
    if (!setting_is_knob(setting))
        return false;
    switch (setting_knob(setting)->kind) {
    case KNOB_NUMBER:
    case KNOB_BYTES:
    case KNOB_MIB:
    case KNOB_SECONDS:
    case KNOB_MS:
        return knob_parse((enum knob_id)setting, text, ret, NULL) == 0;
    case KNOB_BOOL:
    case KNOB_DECIMAL:
    case KNOB_TEXT:
    case KNOB_LIST:
    case KNOB_CHOICE:
        break;
    }
    return false;
}

int step_key_refuse(const char *name, const char *from, struct err *err)
{
    const char *best = knob_find_nearest(name);
    unsigned least = 4;
    for (size_t i = 0; i < ARRAY_LEN(rows) && !best; i++)
        if (strncmp(rows[i].name, name, strlen(name)) == 0 && name[0])
            best = rows[i].name;
    for (size_t i = 0; i < ARRAY_LEN(rows) && least > 0 && !strchr(name, '_'); i++) {
        unsigned d =
            spelling_distance(name, strlen(name), rows[i].name, strlen(rows[i].name));
        if (d < least && d < strlen(name)) {
            least = d;
            best = rows[i].name;
        }
    }
    if (best)
        return err_set(
            err, -EINVAL,
            "%s: \"%.64s\" is not a key; the nearest is %s (--hvd=help lists "
            "all)",
            from, name, best);
    return err_set(err, -EINVAL, "%s: \"%.64s\" is not a key%s (--hvd=help lists all)",
                   from, name,
                   name[0] >= '0' && name[0] <= '9'
                       ? "; a value with commas is put in double quotes"
                       : "");
}

/* --- values --- */

static int iface_check(const char *from, const char *value, struct err *err)
{
    size_t n = strlen(value);
    if (n == 0 || n > 15 || strpbrk(value, "/ \t\n"))
        return err_set(err, -EINVAL,
                       "%s: iface: \"%.64s\" is not the name of a network interface (1 "
                       "to 15 characters, like eth0 or ib0)",
                       from, value);
    return 0;
}

static int comment_check(const char *from, const char *value, struct err *err)
{
    if (comment_mode_parse(value) < 0)
        return err_set(err, -EINVAL,
                       "%s: comment=%.64s: allowed are off, failure and progress", from,
                       value);
    return 0;
}

/* By horovodrun's row: value becomes the variable's text, in the arena. */
static int flag_check(const struct step_key *k,
                      const char *from,
                      struct arena *arena,
                      const char **value,
                      struct err *err)
{
    const struct launch_option_row *row = option_row(k->flag);
    struct option_var var = {NULL, NULL};
    char field[160];
    (void)snprintf(field, sizeof(field), "%s: %s", from, k->name); /* may be cut */
    int rc = option_value(row, field, *value, NULL, arena, value, err);
    if (rc || !setting_is_knob(k->setting))
        return rc;
    rc = option_variable(row, *value, arena, &var, err);
    if (!rc)
        *value = var.value;
    return rc;
}

/* By the runtime's row. */
static int
variable_check(uint32_t setting, const char *from, const char *value, struct err *err)
{
    uint64_t ignored;
    struct codec codec;
    int rc = knob_parse((enum knob_id)setting, value, &ignored, err);
    if (!rc && setting == KNOB_HVD_COMPRESSION)
        rc = codec_parse("HVD_COMPRESSION", value, &codec, err);
    if (!rc && setting == KNOB_HOROVOD_SECRET_KEY)
        rc = err_set(err, -EINVAL,
                     "HOROVOD_SECRET_KEY has no effect, and an argument is visible to "
                     "all users");
    if (rc)
        (void)err_prefix(err, "%s", from); /* rc is returned */
    return rc;
}

static int step_key_convert(const struct step_key *k,
                            const char *from,
                            struct arena *arena,
                            const char **value,
                            struct err *err)
{
    bool is_on = false;
    int rc = 0;
    if (k->flag != OPT_COUNT)
        rc = flag_check(k, from, arena, value, err);
    else if (k->setting == OWN_IFACE)
        rc = iface_check(from, *value, err);
    else if (k->setting == OWN_COMMENT)
        rc = comment_check(from, *value, err);
    if (!rc && setting_is_knob(k->setting))
        rc = variable_check(k->setting, from, *value, err);
    if (!rc && k->is_switch && parse_bool("", *value, &is_on, NULL) == 0)
        *value = is_on ? "1" : "0";
    return rc;
}

int step_key_check(const struct step_key *k,
                   const char *from,
                   const char *value,
                   char *ret,
                   size_t size_bytes,
                   struct err *err)
{
    struct arena arena;
    if (!value && k->is_switch)
        value = "1";
    if (!value || !*value)
        return err_set(err, -EINVAL, "%s: %s requires a value: %s=%s", from, k->name,
                       k->name, *k->value ? k->value : "VALUE");
    arena_init(&arena, ARENA_BYTES);
    int rc = step_key_convert(k, from, &arena, &value, err);
    if (!rc && strlen(value) >= size_bytes)
        rc = err_set(err, -EINVAL, "%s: %s: the value is longer than %zu bytes", from,
                     k->name, size_bytes - 1);
    if (!rc)
        memcpy(ret, value, strlen(value) + 1);
    arena_release(&arena);
    return rc;
}

/* --- help --- */

/* "fusion=MIB"; the words of a choice in lower case, as they may be written. */
static void step_key_put_name(const struct step_key *k, struct strbuf *out)
{
    strbuf_puts(out, k->name);
    if (k->is_switch)
        return;
    strbuf_printf(out, "=%s", *k->value ? k->value : "VALUE");
}

static void help_pad(size_t column, struct strbuf *out)
{
    for (; column < HELP_COLUMN; column++)
        strbuf_putc(out, ' ');
}

/* The text in lines of HELP_WIDTH; column: where the line is, before HELP_COLUMN. */
static void help_put_text(const char *text, size_t column, struct strbuf *out)
{
    bool is_first = true;
    help_pad(column, out);
    for (column = HELP_COLUMN; *text; is_first = false) {
        size_t n = strcspn(text, " ");
        if (!is_first && column + 1 + n > HELP_WIDTH) {
            strbuf_putc(out, '\n');
            help_pad(0, out);
            column = HELP_COLUMN;
        } else if (!is_first) {
            strbuf_putc(out, ' ');
            column++;
        }
        strbuf_add(out, text, n);
        column += n;
        text += n + strspn(text + n, " ");
    }
    strbuf_putc(out, '\n');
}

void step_keys_help(struct strbuf *out)
{
    strbuf_puts(
        out, "srun --hvd[=KEY[=VALUE],...] runs the tasks as one Horovod job. Keys:\n");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct step_key k = step_key_complete(rows[i]);
        size_t before = out->n;
        strbuf_puts(out, "  ");
        step_key_put_name(&k, out);
        size_t column = out->n - before;
        if (column >= HELP_COLUMN) {
            strbuf_putc(out, '\n');
            column = 0;
        }
        help_put_text(k.help, column, out);
    }
    strbuf_puts(out,
                "  NAME=VALUE              a variable of hvd-environment(7), such as\n"
                "                          HOROVOD_CYCLE_TIME=1\n"
                "\n"
                "A switch alone means 1; it may have 1, 0, yes, no, on, off, true or "
                "false.\n"
                "A value with commas is put in double quotes: "
                "--hvd='NAME=\"0,4,8\"'.\n"
                "--hvd=off switches one step off. SLURM_HVD (srun), SBATCH_HVD and\n"
                "SALLOC_HVD have values as --hvd does. The manual is spank_hvd(8).\n");
}

void step_keys_man(struct strbuf *out)
{
    strbuf_puts(out, ".Bl -tag -width Ds\n");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct step_key k = step_key_complete(rows[i]);
        strbuf_printf(out, ".It Cm %s", k.name);
        if (!k.is_switch)
            strbuf_printf(out, "= Ns Ar %s", *k.value ? k.value : "VALUE");
        strbuf_printf(out, "\n%c%s.\n", k.help[0], k.help + 1);
        if (setting_is_knob(k.setting))
            strbuf_printf(out, "Sets\n.Ev %s .\n", setting_name(k.setting));
    }
    strbuf_puts(out, ".It Ar NAME Ns = Ns Ar VALUE\n"
                     "A variable of\n.Xr hvd-environment 7\n"
                     "by its name, such as\n.Ql HOROVOD_CYCLE_TIME=1 .\n.El\n");
}
