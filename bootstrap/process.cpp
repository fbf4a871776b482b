#include "bootstrap/process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <optional>
#include <string_view>

namespace tutti::bootstrap {
namespace {

/// What /proc/PID/stat says of a process.
struct Stat {
  char state = 0;
  long threads = 0;
  std::uint64_t started = 0;
};

/// Nothing where it cannot be read.
std::optional<Stat> stat_of(std::int64_t process) noexcept {
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/%lld/stat", static_cast<long long>(process));
  const detail::Descriptor file(::open(path.data(), O_RDONLY | O_CLOEXEC));
  std::array<char, 1024> text{};
  const ssize_t bytes = file ? ::read(file.get(), text.data(), text.size()) : 0;
  std::string_view rest(text.data(), bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  // Behind the name, which may hold anything, are the state (proc(5) counts it as the third word),
  // the number of threads (20) and the start (22).
  const std::size_t name_end = rest.rfind(')');
  if (name_end == std::string_view::npos) return std::nullopt;
  rest.remove_prefix(name_end + 1);
  Stat stat;
  for (int word = 3; word <= 22; ++word) {
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    const std::string_view value = rest.substr(0, rest.find(' '));
    if (value.empty()) return std::nullopt;
    const char* const end = value.data() + value.size();
    if (word == 3) stat.state = value.front();
    if (word == 20) (void)std::from_chars(value.data(), end, stat.threads);
    if (word == 22) (void)std::from_chars(value.data(), end, stat.started);
    rest.remove_prefix(value.size());
  }
  return stat;
}

std::uint64_t clock_namespace() noexcept {
  struct stat status {};
  return ::stat("/proc/self/ns/time", &status) == 0 ? status.st_ino : 0;
}

/// Whether that process started at another time than the one that the card names.
bool is_another(const Stat& found, const ProcessCard& card) noexcept {
  return card.started != 0 && found.started != card.started &&
         card.clock_namespace == clock_namespace();
}

}  // namespace

ProcessCard this_process() noexcept {
  ProcessCard card{.id = ::getpid(), .clock_namespace = clock_namespace()};
  if (const auto stat = stat_of(card.id)) card.started = stat->started;
  return card;
}

ProcessWatch::ProcessWatch(const ProcessCard& process, By by) noexcept : process_(process) {
  if (by == By::descriptor) {
    descriptor_ = detail::Descriptor(
        static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(process.id), 0)));
    has_ended_ = !descriptor_ && errno == ESRCH;
  }
  // The id may have been given to another process before the descriptor was opened.
  if (const auto stat = stat_of(process.id); stat && is_another(*stat, process)) has_ended_ = true;
  if (has_ended_) descriptor_ = detail::Descriptor();
}

bool ProcessWatch::has_ended() noexcept {
  if (has_ended_) return true;
  if (descriptor_) {
    pollfd process{.fd = descriptor_.get(), .events = POLLIN, .revents = 0};
    has_ended_ = ::poll(&process, 1, 0) == 1 && (process.revents & POLLIN) != 0;
  } else {
    has_ended_ = is_gone_slow();
  }
  return has_ended_;
}

bool ProcessWatch::is_gone_slow() const noexcept {
  if (process_.id <= 0) return false;  // not known; other numbers stand for groups of processes
  if (::kill(static_cast<pid_t>(process_.id), 0) != 0 && errno == ESRCH) return true;
  const auto stat = stat_of(process_.id);
  if (!stat) return false;
  // While other threads run, a first thread that has ended is a zombie, too.
  const bool is_zombie = (stat->state == 'Z' || stat->state == 'X') && stat->threads <= 1;
  return is_zombie || is_another(*stat, process_);
}

std::shared_ptr<ProcessWatch> ProcessWatches::of(const ProcessCard& process) {
  std::erase_if(watches_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<ProcessWatch>& known = watches_[{process.id, process.started}];
  if (std::shared_ptr<ProcessWatch> watch = known.lock()) return watch;
  const bool has_room = watches_.size() <= descriptors_max;
  auto watch = std::make_shared<ProcessWatch>(
      process, has_room ? ProcessWatch::By::descriptor : ProcessWatch::By::start);
  known = watch;
  return watch;
}

}  // namespace tutti::bootstrap
