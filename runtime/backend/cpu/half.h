/* SPDX-License-Identifier: Apache-2.0 */
/* The conversions of 16-bit floats are core's: compression needs them too. */
#ifndef RUNTIME_BACKEND_CPU_HALF_H
#define RUNTIME_BACKEND_CPU_HALF_H

#include "runtime/core/half.h"

#endif
