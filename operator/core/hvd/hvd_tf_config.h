/* SPDX-License-Identifier: Apache-2.0 */
/* TF_CONFIG, which TensorFlow's strategies read the cluster from. Pure. */
#ifndef OPERATOR_CORE_HVD_HVD_TF_CONFIG_H
#define OPERATOR_CORE_HVD_HVD_TF_CONFIG_H

#include "operator/core/hvd/hvd_names.h"

#define TF_PORT 2222

/* JSON, on one line. */
void tf_config(const struct hvd_job *job,
               const struct object_config *cfg,
               enum role role,
               uint32_t index,
               struct strbuf *out);

#endif
