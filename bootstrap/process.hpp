// Whether a process of this host has ended.  An id alone does not name a process, because it is
// given out again: a process is known by its id and by when it started, and watched by a pidfd
// (pidfd_open, Linux 5.3), which stays with the process that it was opened for.
//
//   running, sleeping, stopped, traced      has not ended
//   zombie (nobody has waited for it yet)   has ended
//   id is gone, or belongs to another one   has ended
//   cannot be found out                     has not ended
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <tutti/detail/descriptor.hpp>
#include <type_traits>
#include <utility>

namespace tutti::bootstrap {

/// Names a process to others that see the same process ids (share_process_ids()); a plain value
/// that allgather can carry.
struct ProcessCard {
  std::int64_t id = 0;
  std::uint64_t started = 0;          // in clock ticks after the boot; 0: not known
  std::uint64_t clock_namespace = 0;  // where this was read; others shift the time of the boot
};
static_assert(sizeof(ProcessCard) == 24 && std::is_trivially_copyable_v<ProcessCard>);

/// The calling process.  Members that cannot be read stay zero.
ProcessCard this_process() noexcept;

/// Watches one process of this host.  One thread at a time.
class ProcessWatch {
 public:
  enum class By : std::uint8_t {
    descriptor,  // where there is one; else by its start
    start,       // three system calls a look
  };
  explicit ProcessWatch(const ProcessCard& process, By by = By::descriptor) noexcept;

  /// A pidfd, which can be read when the process has ended; -1: none.
  int descriptor() const noexcept { return descriptor_.get(); }
  /// Looks, unless it is known already.  Never blocks.
  bool has_ended() noexcept;

 private:
  bool is_gone_slow() const noexcept;

  ProcessCard process_;
  detail::Descriptor descriptor_;
  bool has_ended_ = false;
};

/// The watches of a context, one for each process, which its communicators share.  One thread at a
/// time.
class ProcessWatches {
 public:
  /// So many processes are watched by a descriptor, and further ones without.  A process may have
  /// 1024 descriptors as a rule.
  static constexpr std::size_t descriptors_max = 64;

  /// Throws std::bad_alloc.
  std::shared_ptr<ProcessWatch> of(const ProcessCard& process);

 private:
  std::map<std::pair<std::int64_t, std::uint64_t>, std::weak_ptr<ProcessWatch>> watches_;
};

}  // namespace tutti::bootstrap
