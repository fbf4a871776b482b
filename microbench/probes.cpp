#include "microbench/probes.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <tutti/detail/copy.hpp>

#include "microbench/together.hpp"

namespace tutti::bench {
namespace {

/// Release on one side, acquire on the other: the word is the message.  Sequences only grow, and a
/// rank may be one call ahead by the time the other looks, hence "at least".
void publish(SharedLines::Line& mine, std::uint64_t sequence) {
  std::atomic_ref(mine.word).store(sequence, std::memory_order_release);
}
void await(const char* probe, SharedLines::Line& theirs, std::uint64_t sequence) {
  spin_until(probe, [&] {
    return std::atomic_ref(theirs.word).load(std::memory_order_acquire) >= sequence;
  });
}

class Floor final : public Subject {
 public:
  Floor(SharedLines::Line& mine, SharedLines::Line& theirs) : mine_(mine), theirs_(theirs) {}
  void run(std::size_t calls) override {
    for (; calls > 0; --calls) {
      publish(mine_, ++sequence_);
      await("floor", theirs_, sequence_);
    }
  }
  void synchronise() override { run(1); }

 private:
  SharedLines::Line& mine_;
  SharedLines::Line& theirs_;
  std::uint64_t sequence_ = 0;
};

class Oneway final : public Subject {
 public:
  Oneway(SharedLines::Line& mine, SharedLines::Line& theirs, bool first)
      : mine_(mine), theirs_(theirs), first_(first) {}
  void run(std::size_t calls) override {
    for (; calls > 0; --calls) {
      ++sequence_;
      if (first_) publish(mine_, sequence_);
      await("oneway", theirs_, sequence_);
      if (!first_) publish(mine_, sequence_);
    }
  }
  void synchronise() override { run(1); }
  double hand_overs_per_call() const noexcept override { return 2; }

 private:
  SharedLines::Line& mine_;
  SharedLines::Line& theirs_;
  bool first_;
  std::uint64_t sequence_ = 0;
};

class Copies final : public Subject {
 public:
  Copies(std::span<const std::byte> from, std::span<std::byte> into, Operation& meeting)
      : from_(from), into_(into), meeting_(meeting) {}
  void run(std::size_t calls) override {
    for (; calls > 0; --calls) {
      detail::copy_memory(into_.data(), from_.data(), from_.size());
      std::atomic_signal_fence(std::memory_order_seq_cst);  // every copy is made
    }
  }
  void synchronise() override {
    if (meeting_.start() != Status::ok || meeting_.wait(call_timeout) != Status::ok)
      throw RunFailed("memcpy: " + meeting_.describe());
  }

 private:
  std::span<const std::byte> from_;
  std::span<std::byte> into_;
  Operation& meeting_;
};

[[noreturn]] void throw_system(const std::string& what) {
  const int error = errno;
  throw Error(ErrorCode::system, fmt::format("{}: {}", what, std::strerror(error)), error);
}

}  // namespace

detail::Mapping probe_memory_between(Exchange& exchange, const Placement& placement) {
  detail::Descriptor memory;
  together(exchange, [&] {
    if (exchange.self() != Rank{0}) return;
    memory = detail::Descriptor(::memfd_create("tutti-bench-probes", MFD_CLOEXEC));
    if (!memory || ::ftruncate(memory.get(), sizeof(ProbeMemory)) != 0)
      throw_system("memory for the probes");
  });
  const int number = gather(exchange, memory.get())[0];
  detail::Mapping mapping;
  together(exchange, [&] {
    if (exchange.self() != Rank{0}) {
      const std::string path = fmt::format("/proc/{}/fd/{}", placement.ranks[0].pid, number);
      memory = detail::Descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC));
      if (!memory)
        throw_system("floor and oneway need memory that both ranks map; opening " + path);
    }
    mapping = detail::Mapping(
        ::mmap(nullptr, sizeof(ProbeMemory), PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0),
        sizeof(ProbeMemory));
    // Zeroed by the kernel, which is how the words begin.
    if (!mapping) throw_system("mapping the probes' shared memory");
  });
  return mapping;
}

std::unique_ptr<Subject> floor_probe(SharedLines& lines, Rank self) {
  return std::make_unique<Floor>(lines.of[index_of(self)], lines.of[1 - index_of(self)]);
}

std::unique_ptr<Subject> oneway_probe(SharedLines& lines, Rank self) {
  return std::make_unique<Oneway>(lines.of[index_of(self)], lines.of[1 - index_of(self)],
                                  self == Rank{0});
}

std::unique_ptr<Subject> memcpy_probe(std::span<const std::byte> from, std::span<std::byte> into,
                                      Operation& meeting) {
  return std::make_unique<Copies>(from, into, meeting);
}

}  // namespace tutti::bench
