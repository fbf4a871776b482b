// The complete error vocabulary.  Three kinds, three mechanisms: a programmer's error aborts
// (detail/check.hpp), a set-up failure throws Error, a run-time outcome is a Status whose detail
// is kept in a Failure.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "tutti/export.hpp"
#include "tutti/types.hpp"

namespace tutti {

/// Outcome of a data-path call.  0: done as asked.  > 0: unfinished, call again.  < 0: failed for
/// good.
enum class [[nodiscard]] Status : std::int32_t{
    ok = 0,
    in_progress = 1,        // nothing is wrong; the operation is still in flight
    timed_out = 2,          // the deadline passed; STILL in flight, waiting may resume
    peer_failed = -1,       // a peer is gone; only report, shrink and destruction are left
    transport_failed = -2,  // a work completion carried an error; same consequence
    aborted = -3,           // a rank gave up (abort(), set-up, transport), or in a forked child
};

/// Lower-case name of a status, as in this header.
constexpr const char* name_of(Status status) noexcept {
  switch (status) {
    case Status::ok:
      return "ok";
    case Status::in_progress:
      return "in_progress";
    case Status::timed_out:
      return "timed_out";
    case Status::peer_failed:
      return "peer_failed";
    case Status::transport_failed:
      return "transport_failed";
    case Status::aborted:
      return "aborted";
  }
  return "invalid status";
}

/// The first thing that went wrong on a communicator; sticky.
struct Failure {
  Status status = Status::ok;
  Rank peer = no_rank;            // the rank that failed, no_rank where that is unknown
  std::uint32_t operation = 0;    // id of the operation that met it, in order of creation
  std::uint64_t sequence = 0;     // which start() of that operation, counted from 1
  std::uint32_t round = 0;        // round of its plan, counted from 0
  std::uint32_t completion = 0;   // ibv_wc_status of the completion, 0 if there was none
  std::int32_t system_errno = 0;  // of the refused call, 0 if there was none
  char text[256] = {};            // one line for people
};

enum class ErrorCode : std::uint8_t {
  invalid_argument,  // the caller's value cannot work anywhere
  mismatch,          // ranks disagree about something that must be equal
  unsupported,       // valid, but this build or device does not offer it
  limit_exceeded,    // a limit of the device or of the arena
  no_device,         // no usable device, port or GID
  timed_out,         // a set-up step passed its deadline
  peer_failed,       // a peer died or refused during set-up
  system,            // a system or verbs call was refused
};

/// Thrown by constructors and factories, never by the data path.  what() is one line that names the
/// value, what was expected and what to do.
class TUTTI_EXPORT Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& text, int system_errno = 0)
      : std::runtime_error(text), code_(code), system_errno_(system_errno) {}

  ErrorCode code() const noexcept { return code_; }
  int system_errno() const noexcept { return system_errno_; }

 private:
  ErrorCode code_;
  int system_errno_;
};

}  // namespace tutti
