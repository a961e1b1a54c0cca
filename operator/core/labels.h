/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of labels and annotations. */
#ifndef OPERATOR_CORE_LABELS_H
#define OPERATOR_CORE_LABELS_H

/* Pods of HorovodJobs; the job name also on an MPIJob's launcher Job. */
#define LABEL_PREFIX             "ringmaster.dev/"
#define LABEL_JOB_NAME           LABEL_PREFIX "job-name"
#define LABEL_JOB_ROLE           LABEL_PREFIX "job-role"
#define LABEL_REPLICA_INDEX      LABEL_PREFIX "replica-index"
#define LABEL_GENERATION         LABEL_PREFIX "generation"
#define ANNOTATION_WORLD         LABEL_PREFIX "world"    /* "<generation> <workers>" */
#define FINALIZER_TRACKING       LABEL_PREFIX "tracking" /* hvd_crew.h */

/* Pods of MPIJobs, as mpi-operator writes them. */
#define MPI_LABEL_OPERATOR_NAME  "training.kubeflow.org/operator-name"
#define MPI_LABEL_JOB_NAME       "training.kubeflow.org/job-name"
#define MPI_LABEL_JOB_ROLE       "training.kubeflow.org/job-role"
#define MPI_LABEL_REPLICA_INDEX  "training.kubeflow.org/replica-index"
#define MPI_OPERATOR_NAME        "mpi-operator"

#define LABEL_KUEUE_QUEUE        "kueue.x-k8s.io/queue-name"
#define LABEL_KUEUE_JOB_UID      "kueue.x-k8s.io/job-uid" /* of a Workload */
#define ANNOTATION_VOLCANO_QUEUE "scheduling.volcano.sh/queue-name"

#endif
