// MPI as launcher and as what tutti is compared with.  No MPI header is seen through this one; a
// build without MPI has the same interface and refuses with the reason.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <tutti/exchange.hpp>
#include <tutti/reduction.hpp>

#include "microbench/subject.hpp"
#include "microbench/tutti_side.hpp"

namespace tutti::bench {

/// MPI from MPI_Init to MPI_Finalize.
class MpiSide {
 public:
  MpiSide() = default;
  MpiSide(const MpiSide&) = delete;
  MpiSide& operator=(const MpiSide&) = delete;
  virtual ~MpiSide() = default;  // collective

  virtual Exchange& exchange() noexcept = 0;
  virtual std::string library_name() const = 0;  // "Open MPI 4.1.4"

  virtual std::unique_ptr<Subject> barrier() = 0;
  /// The counterpart of make_operation(), on borrowed buffers.
  virtual std::unique_ptr<Subject> collective(Collective collective, Buffers& buffers,
                                              std::size_t bytes, const Options& options) = 0;

  /// Ends all ranks, because this one can no longer take part.
  [[noreturn]] virtual void abort(int status) noexcept = 0;
};

/// Throws Error{unsupported} in a build without MPI.
std::unique_ptr<MpiSide> start_mpi();

/// "Open MPI v4.1.4, package: ..." -> "Open MPI 4.1.4"; "MPICH Version:\t4.0.2\n..." ->
/// "MPICH 4.0.2".
std::string shortened_library_version(const std::string& version);

}  // namespace tutti::bench
