/* SPDX-License-Identifier: Apache-2.0 */
/* Entry point of horovodrun and perseusrun; everything is in horovodrun.c. */
#include "runtime/launch/horovodrun.h"

#include <unistd.h>

int main(int argc, char **argv)
{
    return horovodrun_main(argc, argv, environ);
}
