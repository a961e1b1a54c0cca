/* SPDX-License-Identifier: Apache-2.0 */
/* Calendar arithmetic on the proleptic Gregorian calendar (days from 0000-03-01, so
 * that leap days end a year). base/clock has the formatter for logs; this one parses,
 * and stays pure. */
#include "operator/core/timestamp.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define DAY_S 86400u

static uint64_t days_from_date(uint32_t y, uint32_t m, uint32_t d)
{
    uint32_t era_y = m <= 2 ? y - 1 : y;
    uint32_t era = era_y / 400, in_era = era_y % 400;
    uint32_t in_year = (153 * (m > 2 ? m - 3 : m + 9) + 2) / 5 + d - 1;

    return (uint64_t)era * 146097u + in_era * 365u + in_era / 4 - in_era / 100 + in_year
           - 719468u;
}

static void date_from_days(uint64_t days, uint32_t *y, uint32_t *m, uint32_t *d)
{
    uint64_t z = days + 719468u;
    uint32_t era = (uint32_t)(z / 146097u), in_era = (uint32_t)(z % 146097u);
    uint32_t year = (in_era - in_era / 1460 + in_era / 36524 - in_era / 146096) / 365;
    uint32_t in_year = in_era - (365 * year + year / 4 - year / 100);
    uint32_t month = (5 * in_year + 2) / 153;

    *d = in_year - (153 * month + 2) / 5 + 1;
    *m = month < 10 ? month + 3 : month - 9;
    *y = year + era * 400 + (*m <= 2);
}

static int digits(const char *s, unsigned n, uint32_t *ret)
{
    uint32_t v = 0;

    for (unsigned i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9')
            return -EINVAL;
        v = v * 10 + (uint32_t)(s[i] - '0');
    }
    *ret = v;
    return 0;
}

/* ".123456Z" or "Z" -> microseconds. */
static int fraction(const char *s, uint32_t *ret_us)
{
    uint32_t us = 0, n = 0;

    if (*s == '.') {
        for (s++; *s >= '0' && *s <= '9'; s++, n++) {
            if (n < 6)
                us = us * 10 + (uint32_t)(*s - '0');
        }
        if (n == 0 || n > 9)
            return -EINVAL;
        for (; n < 6; n++)
            us *= 10;
    }
    if (strcmp(s, "Z") != 0)
        return -EINVAL;
    *ret_us = us;
    return 0;
}

int timestamp_parse_us(const char *s, uint64_t *ret_wall_us)
{
    uint32_t y, mo, d, h, mi, sec, us;
    uint64_t total;

    if (strlen(s) < 20 || s[4] != '-' || s[7] != '-' || s[10] != 'T' || s[13] != ':'
        || s[16] != ':')
        return -EINVAL;
    if (digits(s, 4, &y) < 0 || digits(s + 5, 2, &mo) < 0 || digits(s + 8, 2, &d) < 0
        || digits(s + 11, 2, &h) < 0 || digits(s + 14, 2, &mi) < 0
        || digits(s + 17, 2, &sec) < 0 || fraction(s + 19, &us) < 0)
        return -EINVAL;
    if (y < 1970 || mo < 1 || mo > 12 || d < 1 || d > 31 || h > 23 || mi > 59
        || sec > 60)
        return -EINVAL;
    total = days_from_date(y, mo, d) * DAY_S + h * 3600u + mi * 60u + sec;
    *ret_wall_us = total * 1000000u + us;
    return 0;
}

char *timestamp_format_s(uint64_t wall_s, char ret[TIMESTAMP_SIZE])
{
    uint32_t y, m, d, in_day = (uint32_t)(wall_s % DAY_S);

    date_from_days(wall_s / DAY_S, &y, &m, &d);
    (void)snprintf(ret, TIMESTAMP_SIZE, "%04u-%02u-%02uT%02u:%02u:%02uZ", y % 10000, m,
                   d, in_day / 3600, in_day / 60 % 60, in_day % 60);
    return ret;
}

char *timestamp_format_us(uint64_t wall_us, char ret[TIMESTAMP_SIZE])
{
    char whole[TIMESTAMP_SIZE];

    timestamp_format_s(wall_us / 1000000u, whole);
    whole[19] = '\0';
    (void)snprintf(ret, TIMESTAMP_SIZE, "%.19s.%06uZ", whole,
                   (unsigned)(wall_us % 1000000u));
    return ret;
}
