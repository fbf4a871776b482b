// A user's operator as the engine calls it: so that it can say by tutti::fail() that it has failed,
// and that nothing it left behind is sent or taken for a result.
//
//   engine -> guarded function -> the user's function -> fail(): has_failed
//     the guarded function does nothing from now on
//     the fabric refuses to send (other_calls), so that nobody gets what was spoilt
//     the operation stays in flight until its communicator has failed (Liveness)
#pragma once

#include <array>
#include <cstddef>
#include <tutti/reduction.hpp>

namespace tutti::runtime {

struct UserOperator {
  Reduction reduction = {};  // as its user gave it
  bool has_failed = false;
  std::array<char, 96> text = {};  // why, if it has failed

  /// Whether an operator may fail: those of the library do not.
  static bool may_fail(const Reduction& reduction) noexcept;
  /// What the engine calls instead.  This object must stay where it is as long as it does.
  Reduction guarded() noexcept;
};

}  // namespace tutti::runtime
