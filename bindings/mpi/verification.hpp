// TUTTI_MPI=verify: tutti does a call on memory of its own and MPI does it on the program's, and
// both have to come to the same (comparison).
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "block_signature.hpp"
#include "comparison.hpp"
#include "program_communicator.hpp"
#include "signature.hpp"

namespace tutti::interposer {

/// A call that is verified: memory for what tutti does, and what is compared then.
class Verification {
 public:
  /// The call as tutti shall do it: its result goes to memory of this object.
  Call begin(const Call& call, const ProgramCommunicator& communicator);
  BlockCall begin(const BlockCall& call, const BlockSignature& signature,
                  const ProgramCommunicator& communicator);
  /// A call that is framed; tutti brings no long blocks, and none is compared.
  BlockCall begin(const BlockCall& call, const ProgramCommunicator& communicator);

  /// A sum over the ranks says how large a difference may be.  Collective.
  void add_magnitudes(MPI_Comm communicator);

  /// Starts a nonblocking call of MPI's on the program's buffers, and its magnitudes.  Returns what
  /// MPI says of the former.
  int start_mpi(const Call& call);
  /// Whether MPI has done it; to be asked until it has.
  bool is_mpi_done() noexcept;

  /// Both have done it.
  void compare() const;

 private:
  void describe(Collective collective, MPI_Op op, MPI_Comm handle,
                const ProgramCommunicator& communicator);
  void look_at_operands(const void* source, std::int64_t count);
  /// Room for so many elements of the call's type, from the first byte of one to the last of
  /// another; where the first one is.
  std::byte* lay_out(std::vector<std::byte>& room, std::int64_t count) const;

  ComparedCall call_;
  std::vector<std::byte> own_;  // results of tutti
  std::vector<std::byte> operands_;
  std::vector<std::int64_t> counts_, displacements_;
  std::vector<double> magnitudes_;  // of the operands of this rank
  std::vector<MPI_Request> of_mpi_;
  bool has_failed_ = false;
};

/// The call as tutti shall do it.  The program's call has to go to MPI after that.  Collective.
Call verified(const Call& call, const ProgramCommunicator& communicator);
BlockCall verified(const BlockCall& call, const BlockSignature& signature,
                   const ProgramCommunicator& communicator);
BlockCall verified(const BlockCall& call, const ProgramCommunicator& communicator);
/// The call is left to MPI after all.
void forget_verified() noexcept;

}  // namespace tutti::interposer
