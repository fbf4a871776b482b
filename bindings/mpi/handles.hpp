// Handles of MPI.  Open MPI's are addresses of variables of its library, which is found at run
// time; MPICH's are numbers.
#pragma once

#include <mpi.h>

#include "loaded_mpi.hpp"

// TUTTI_MPI_HANDLE(MPI_Comm, MPI_COMM_SELF, comm_self): by its name in mpi.h, and by the one in the
// library of Open MPI.
#ifdef OPEN_MPI
#define TUTTI_MPI_HANDLE(type, constant, name) \
  static_cast<type>(::tutti::interposer::variable_of_mpi("ompi_mpi_" #name))
#else
#define TUTTI_MPI_HANDLE(type, constant, name) constant
#endif

namespace tutti::interposer {

/// The ones that are used by name.
struct Handles {
  MPI_Comm world = TUTTI_MPI_HANDLE(MPI_Comm, MPI_COMM_WORLD, comm_world);
  MPI_Comm self = TUTTI_MPI_HANDLE(MPI_Comm, MPI_COMM_SELF, comm_self);
  MPI_Comm no_comm = TUTTI_MPI_HANDLE(MPI_Comm, MPI_COMM_NULL, comm_null);
  MPI_Errhandler errors_return = TUTTI_MPI_HANDLE(MPI_Errhandler, MPI_ERRORS_RETURN, errors_return);
  MPI_Datatype byte = TUTTI_MPI_HANDLE(MPI_Datatype, MPI_BYTE, byte);
  MPI_Datatype int32 = TUTTI_MPI_HANDLE(MPI_Datatype, MPI_INT, int);
  MPI_Datatype int64 = TUTTI_MPI_HANDLE(MPI_Datatype, MPI_INT64_T, int64_t);
  MPI_Datatype float64 = TUTTI_MPI_HANDLE(MPI_Datatype, MPI_DOUBLE, double);
  MPI_Datatype no_type = TUTTI_MPI_HANDLE(MPI_Datatype, MPI_DATATYPE_NULL, datatype_null);
  MPI_Info no_info = TUTTI_MPI_HANDLE(MPI_Info, MPI_INFO_NULL, info_null);
  MPI_Op bit_and = TUTTI_MPI_HANDLE(MPI_Op, MPI_BAND, op_band);
  MPI_Op min = TUTTI_MPI_HANDLE(MPI_Op, MPI_MIN, op_min);
  MPI_Op sum = TUTTI_MPI_HANDLE(MPI_Op, MPI_SUM, op_sum);
  MPI_Op no_op = TUTTI_MPI_HANDLE(MPI_Op, MPI_OP_NULL, op_null);
};

inline const Handles& handles() {
  static const Handles all;
  return all;
}

}  // namespace tutti::interposer
