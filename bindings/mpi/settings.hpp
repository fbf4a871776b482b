// What the environment says of the interposer (docs/settings.md, "Unmodified MPI programs").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tutti::interposer {

enum class Mode : std::uint8_t {
  off,     // every call passes
  on,      // calls are taken where that can be done
  verify,  // as on, and MPI does each taken call as well; results are compared
  report,  // every call passes, and is counted and timed
};

struct Settings {
  Mode mode = Mode::on;
  /// So many calls of one kind on one communicator pass before an operation is made for it.
  std::uint32_t after = 3;
  /// Calls of more bytes pass.
  std::size_t bytes_max = std::size_t{1} << 20;
  /// So many communicators of a process are adopted at the same time.
  std::uint32_t communicators_max = 64;
  /// A table at the end; verify and report have one in any case.
  bool table = false;
};

const char* name_of(Mode mode) noexcept;  // "off"

/// What the environment says by TUTTI_MPI, TUTTI_MPI_AFTER and so on.  Throws
/// Error{invalid_argument} with the name, the value and what was expected.
Settings settings_of_environment();

}  // namespace tutti::interposer
