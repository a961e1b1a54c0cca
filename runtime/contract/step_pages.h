/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of a Slurm step on each of its nodes, in which its ranks keep their pages
 * (stats_page.h):
 *
 *   /dev/shm/hvd_step.JOB.STEP.NODE.PID/task.RANK   "PID SIZE FOLDER\n"
 *
 * The user of the step owns it. PID in the name is slurmstepd's. Each task writes its file
 * before its program starts: its process, the size of the job, and where its page will be
 * (HVD_STATS_DIR: this folder, or the user's own). spank_hvd.so makes and removes it;
 * hvd-status reads it. */
#ifndef RUNTIME_CONTRACT_STEP_PAGES_H
#define RUNTIME_CONTRACT_STEP_PAGES_H

#define STEP_PAGES_PARENT "/dev/shm"
#define STEP_PAGES_PREFIX "hvd_step."
#define STEP_TASK_PREFIX  "task."
#define STEP_PAGES_PATH   STEP_PAGES_PARENT "/" STEP_PAGES_PREFIX

#endif
