/* SPDX-License-Identifier: Apache-2.0 */
/* The oneCCL twin of the allreduce benchmarks: measure.h over ccl::allreduce, brought
 * together by MPI. C++, because oneCCL's interface is. Built against MPICH's mpi.h and
 * run on Intel MPI, which has the same binary interface. */
#include <mpi.h>

#include <oneapi/ccl.hpp>

extern "C" {
#include "tests/bench/measure.h"
}

/* The static library in the wheel requires Intel's tracing functions, which no wheel
 * contains; NULL pointers turn tracing off. */
#define NO_TRACE(name)                                                                 \
    extern "C" void *name;                                                             \
    void *name = nullptr
NO_TRACE(__itt_domain_create_ptr__3_0);
NO_TRACE(__itt_event_create_ptr__3_0);
NO_TRACE(__itt_event_end_ptr__3_0);
NO_TRACE(__itt_event_start_ptr__3_0);
NO_TRACE(__itt_metadata_add_ptr__3_0);
NO_TRACE(__itt_string_handle_create_ptr__3_0);
NO_TRACE(__itt_task_begin_ptr__3_0);
NO_TRACE(__itt_task_end_ptr__3_0);
NO_TRACE(__itt_thread_set_name_ptr__3_0);

static void allreduce(void *ctx, float *x, size_t n)
{
    auto *comm = static_cast<ccl::communicator *>(ctx);

    ccl::allreduce(x, x, n, ccl::datatype::float32, ccl::reduction::sum, *comm).wait();
}

static void barrier(void *ctx)
{
    (void)ctx;
    MPI_Barrier(MPI_COMM_WORLD);
}

static void max(void *ctx, double *x, int n)
{
    (void)ctx;
    MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

static ccl::shared_ptr_class<ccl::kvs> meet(int rank)
{
    ccl::kvs::address_type address;
    ccl::shared_ptr_class<ccl::kvs> kvs;

    if (rank == 0) {
        kvs = ccl::create_main_kvs();
        address = kvs->get_address();
    }
    MPI_Bcast(address.data(), static_cast<int>(address.size()), MPI_BYTE, 0,
              MPI_COMM_WORLD);
    return rank == 0 ? kvs : ccl::create_kvs(address);
}

int main(int argc, char **argv)
{
    int provided, rc;
    peer_ops p = {};

    ccl::init();
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &p.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &p.size);
    {
        auto kvs = meet(p.rank);
        auto comm = ccl::create_communicator(p.size, p.rank, kvs);

        p.name = "oneccl";
        p.ctx = &comm;
        p.allreduce = allreduce;
        p.barrier = barrier;
        p.max = max;
        rc = peer_measure(&p);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return rc;
}
