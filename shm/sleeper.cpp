#include "shm/sleeper.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <string>
#include <tutti/detail/check.hpp>
#include <tutti/status.hpp>
#include <utility>

namespace tutti::shm {
namespace {

[[noreturn]] void refuse(const std::string& what, int error, const char* advice) {
  throw Error(ErrorCode::system, what + ": " + std::strerror(error) + advice, error);
}

SleepBoard& board_of(const detail::Mapping& mapping) noexcept {
  return *reinterpret_cast<SleepBoard*>(mapping.data() + SleepBoard::offset);
}
std::atomic_ref<std::uint32_t> state_of(const detail::Mapping& mapping) noexcept {
  return std::atomic_ref(board_of(mapping).state);
}
std::atomic_ref<std::uint32_t> alarms_of(const detail::Mapping& mapping) noexcept {
  return std::atomic_ref(board_of(mapping).alarms);
}

void require_board(const detail::Mapping& mapping) {
  detail::check(mapping.size() >= SleepBoard::offset + sizeof(SleepBoard),
                "offered memory has room for the word of a sleeper", mapping.size(),
                SleepBoard::offset + sizeof(SleepBoard));
}

}  // namespace

Sleeper::Sleeper(std::shared_ptr<detail::Mapping> mapping) : mapping_(std::move(mapping)) {
  require_board(*mapping_);
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0)
    refuse("the pipe by which a rank is woken (TUTTI_WAIT=block)", errno, "; check ulimit -n");
  reading_ = detail::Descriptor(ends[0]);
  writing_ = detail::Descriptor(ends[1]);
}

void Sleeper::lie_down() noexcept {
  state_of(*mapping_).exchange(SleepBoard::asleep, std::memory_order_acq_rel);
}

bool Sleeper::sleep(int other, Timeout at_most) noexcept {
  if (at_most <= Timeout::zero()) return false;
  std::array<pollfd, 2> waited{pollfd{.fd = reading_.get(), .events = POLLIN, .revents = 0},
                               pollfd{.fd = other, .events = POLLIN, .revents = 0}};
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at_most);
  const timespec time{.tv_sec = seconds.count(), .tv_nsec = (at_most - seconds).count()};
  // poll() looks at no negative descriptor.
  if (::ppoll(waited.data(), waited.size(), &time, nullptr) <= 0) return false;
  if (waited[0].revents != 0) {
    // All bytes, of which there are few: each ends one sleep.
    std::array<char, 64> bytes;
    while (::read(reading_.get(), bytes.data(), bytes.size()) ==
           static_cast<ssize_t>(bytes.size())) {
    }
  }
  return (waited[1].revents & POLLIN) != 0;
}

void Sleeper::get_up() noexcept {
  state_of(*mapping_).exchange(SleepBoard::awake, std::memory_order_acq_rel);
}

bool Sleeper::takes_alarm() noexcept {
  // Acquire: what the rank had announced before it counted is there.
  const std::uint32_t alarms = alarms_of(*mapping_).load(std::memory_order_acquire);
  return std::exchange(alarms_taken_, alarms) != alarms;
}

Waker::Waker(std::int32_t process, int descriptor, std::shared_ptr<detail::Mapping> mapping)
    : mapping_(std::move(mapping)) {
  require_board(*mapping_);
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(descriptor);
  // For reading, too: a pipe whose only reader has died would end its writer by SIGPIPE.
  writing_ = detail::Descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!writing_)
    refuse("opening the pipe by which a rank of this node is woken, " + path, errno,
           " (check ulimit -n)");
  struct stat status {};
  if (::fstat(writing_.get(), &status) != 0) refuse("fstat of " + path, errno, "");
  if (!S_ISFIFO(status.st_mode))
    refuse(path + " is another file than the pipe offered", ESTALE, "");
}

void Waker::wake() const noexcept {
  // Changes nothing, and is a change all the same in the order of changes.  The sleeper alone says
  // that it is awake: a writer that said so, and was stopped before it wrote its byte, would keep
  // all others from waking the sleeper.
  if (state_of(*mapping_).fetch_or(0, std::memory_order_acq_rel) != SleepBoard::asleep) return;
  // A full pipe is one that wakes.
  const char byte = 0;
  [[maybe_unused]] const ssize_t written = ::write(writing_.get(), &byte, sizeof byte);
}

void Waker::alarm() const noexcept {
  alarms_of(*mapping_).fetch_add(1, std::memory_order_release);  // see Sleeper::takes_alarm()
  wake();
}

std::shared_ptr<const Waker> Wakers::of(std::uint64_t nonce, std::int32_t process, int descriptor,
                                        const std::shared_ptr<detail::Mapping>& mapping) {
  if (const auto known = by_nonce_.find(nonce); known != by_nonce_.end())
    if (std::shared_ptr<const Waker> waker = known->second.lock()) return waker;
  std::erase_if(by_nonce_, [](const auto& of_one) { return of_one.second.expired(); });
  auto made = std::make_shared<const Waker>(process, descriptor, mapping);
  by_nonce_[nonce] = made;
  return made;
}

void Wakers::alarm() const noexcept {
  for (const auto& of_one : by_nonce_)
    if (const std::shared_ptr<const Waker> waker = of_one.second.lock()) waker->alarm();
}

std::size_t Wakers::count() const noexcept {
  return static_cast<std::size_t>(
      std::count_if(by_nonce_.begin(), by_nonce_.end(),
                    [](const auto& of_one) { return !of_one.second.expired(); }));
}

}  // namespace tutti::shm
