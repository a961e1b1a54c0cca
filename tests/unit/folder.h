/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of a test, for files whose names it does not all know. */
#ifndef TESTS_UNIT_FOLDER_H
#define TESTS_UNIT_FOLDER_H

#include <dirent.h>

#include "tests/unit/unit.h"

/* With the files in it. */
static inline void folder_remove(const char *dir)
{
    DIR *d = opendir(dir);
    const struct dirent *entry;

    assert_non_null(d);
    while ((entry = readdir(d)) != NULL)
        if (entry->d_name[0] != '.')
            assert_int_equal(unlinkat(dirfd(d), entry->d_name, 0), 0);
    assert_int_equal(closedir(d), 0);
    assert_int_equal(rmdir(dir), 0);
}

#endif
