/* SPDX-License-Identifier: Apache-2.0 */
/* Calendar arithmetic on the proleptic Gregorian calendar (days from 0000-03-01, so
 * that leap days end a year). base/clock has the formatter for logs; this one parses,
 * and stays pure. */
#include "operator/core/timestamp.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
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

static uint32_t timestamp_read_digits(const char *s, unsigned n)
{
    uint32_t v = 0;

    for (unsigned i = 0; i < n; i++)
        v = v * 10 + (uint32_t)(s[i] - '0');
    return v;
}

/* ".123456Z" or "Z" -> microseconds. */
static int timestamp_read_fraction(const char *s, uint32_t *ret_us)
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

struct date {
    uint32_t y, mo, d, h, mi, s, us;
};

static bool timestamp_is_shaped(const char *s)
{
    static const char shape[] = "dddd-dd-ddTdd:dd:dd";

    for (size_t i = 0; i < sizeof(shape) - 1; i++) {
        bool is_digit = s[i] >= '0' && s[i] <= '9';

        if (shape[i] == 'd' ? !is_digit : s[i] != shape[i])
            return false;
    }
    return true;
}

static bool timestamp_is_in_range(const struct date *t)
{
    return t->y >= 1970 && t->mo >= 1 && t->mo <= 12 && t->d >= 1 && t->d <= 31
           && t->h <= 23 && t->mi <= 59 && t->s <= 60;
}

int timestamp_parse_us(const char *s, uint64_t *ret_wall_us)
{
    struct date t;
    uint64_t total;

    if (!timestamp_is_shaped(s))
        return -EINVAL;
    t.y = timestamp_read_digits(s, 4);
    t.mo = timestamp_read_digits(s + 5, 2);
    t.d = timestamp_read_digits(s + 8, 2);
    t.h = timestamp_read_digits(s + 11, 2);
    t.mi = timestamp_read_digits(s + 14, 2);
    t.s = timestamp_read_digits(s + 17, 2);
    if (timestamp_read_fraction(s + 19, &t.us) < 0 || !timestamp_is_in_range(&t))
        return -EINVAL;
    total = days_from_date(t.y, t.mo, t.d) * DAY_S + t.h * 3600u + t.mi * 60u + t.s;
    *ret_wall_us = total * 1000000u + t.us;
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

bool wall_wait_is_over(uint64_t now_s, uint64_t at_s, uint64_t longest_s)
{
    return now_s >= at_s || at_s - now_s > longest_s + CLOCKS_APART_S;
}
