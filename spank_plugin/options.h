/* SPDX-License-Identifier: Apache-2.0 */
/* The value of --hvd, and the settings of one step that several values give: of
 * SLURM_HVD, of the job, of srun. Pure.
 *
 *   value = "off" | "help" | [item *("," item)]
 *   item  = key ["=" text | "=" '"' text with commas '"']
 *
 * A later value adds its keys to those of the earlier ones and replaces equal ones;
 * "off" drops all of them. */
#ifndef SPANK_PLUGIN_OPTIONS_H
#define SPANK_PLUGIN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"
#include "runtime/contract/tf_world.h"
#include "spank_plugin/comment_text.h"
#include "spank_plugin/keys.h"

#define STEP_MAX_SETTINGS 64
#define STEP_MAX_BYTES    4096 /* of all texts, and of one value */

/* The settings of one step. Zeroed: none, off. */
struct step_options {
    bool is_on, wants_help;
    uint32_t n, n_text;
    struct {
        uint16_t setting, at; /* at: offset in text */
    } v[STEP_MAX_SETTINGS];
    char text[STEP_MAX_BYTES];
};

/* Adds a value as Slurm passes it: NULL, "" and "(null)" (sbatch and salloc forward an
 * absent value so) have no keys. from: "--hvd" or what else has the value, for
 * messages. -EINVAL with an error message that names the key, the value and what is
 * allowed; *o is then unchanged. */
int step_options_add(struct step_options *o,
                     const char *from,
                     const char *arg,
                     struct err *err);
/* Sets one, in the form of step_key_check. -E2BIG. */
int step_options_set(struct step_options *o,
                     uint32_t setting,
                     const char *text,
                     struct err *err);
const char *step_options_get(const struct step_options *o, uint32_t setting);
/* Whether the keys belong together. */
int step_options_check(const struct step_options *o, struct err *err);
/* As one value, from which step_options_add makes the same settings. */
void step_options_render(const struct step_options *o, struct strbuf *out);

bool step_options_is_on(const struct step_options *o, uint32_t setting); /* "1" */
uint64_t step_options_start_ms(const struct step_options *o); /* timeout; 0: none */
/* COMMENT_FAILURE without the key. */
enum comment_mode step_options_comment(const struct step_options *o);
struct tf_roles step_options_roles(const struct step_options *o);

#endif
