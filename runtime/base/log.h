/* SPDX-License-Identifier: Apache-2.0 */
/* One event a line: a constant message and key=value pairs.
 *     log_warn("worker lost", "job=%s rank=%u cause=\"%s\"", job, rank, err.text);
 * Goes to stderr as "2026-11-21T11:22:33.123Z W ringmaster[rank 0]: worker lost job=a/b
 * rank=3" or, after log_set_json(true), as one JSON object a line, with ts, level, msg
 * and a member for each pair. The sink, level and tag are the mutable globals of log.c;
 * set them once at start. base/, contract/ and core/ never log. */
#ifndef RUNTIME_BASE_LOG_H
#define RUNTIME_BASE_LOG_H

#include <stdbool.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

void log_set_level(enum log_level min);
/* trace/debug/info/warning/error/fatal in any case -> level; -EINVAL otherwise. */
int log_level_parse(const char *s, enum log_level *ret);
void log_set_json(bool on);
void log_set_time(bool on); /* false: text lines begin with the level */
void log_set_tag(const char *program,
                 const char *detail); /* copied; detail may be NULL */
/* true: a line that cannot be written at once (the pipe is full) is dropped, and the
 * number of dropped lines is logged later. false: the write blocks. */
void log_set_lossy(bool on);
bool log_enabled(enum log_level level);
void log_event(enum log_level level, const char *msg, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Writes text to stderr as it is, at every level: output that the user has asked for. */
void log_print(const char *text);

#define log_debug(msg, ...) log_event(LOG_DEBUG, msg, __VA_ARGS__)
#define log_info(msg, ...)  log_event(LOG_INFO, msg, __VA_ARGS__)
#define log_warn(msg, ...)  log_event(LOG_WARN, msg, __VA_ARGS__)
#define log_error(msg, ...) log_event(LOG_ERROR, msg, __VA_ARGS__)

#endif
