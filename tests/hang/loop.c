/* SPDX-License-Identifier: Apache-2.0 */
/* An endless loop in C, for Python ranks (loop.so). */
__attribute__((visibility("default"))) void spin(void);

void spin(void)
{
    for (volatile unsigned long n = 0;; n++)
        ;
}
