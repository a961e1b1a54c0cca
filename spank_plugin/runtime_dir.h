/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime that plugstack.conf's dir= names: a folder with python/ and bin/. */
#ifndef SPANK_PLUGIN_RUNTIME_DIR_H
#define SPANK_PLUGIN_RUNTIME_DIR_H

#include "spank_plugin/site.h"

/* There is none, and plugstack.conf requires none: the user provides the package. */
bool runtime_dir_is_absent(const struct plugin_config *cfg);
/* It has a Python package of this plugin's version. -ENOENT, -EINVAL and others, with
 * dir=, path and versions in the message. */
int runtime_dir_check(const struct plugin_config *cfg, struct err *err);

#endif
