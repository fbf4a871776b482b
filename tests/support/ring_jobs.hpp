// Ranks of nodes that run Algorithm::shared_ring: their contexts, numbers, and what they see
// together.
#pragma once

#include <sys/mman.h>
#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

#include "support/device.hpp"

namespace tutti::test {

using Shape = std::vector<std::uint32_t>;  // ranks of each node

inline Context context_of(const Exchange& exchange, const Shape& shape,
                          std::size_t arena_bytes = 4u << 20,
                          std::optional<SharedNotifications> shared_notifications = {},
                          std::size_t chunk_bytes = 0) {
  ContextOptions options = on_test_device(exchange);
  options.arena_bytes = arena_bytes;
  options.ranks_per_node = shape;
  options.shared_notifications = shared_notifications;
  if (chunk_bytes > 0) options.chunk_bytes = chunk_bytes;
  return Context(options);
}

inline std::uint32_t ranks_of(const Shape& shape) {
  std::uint32_t ranks = 0;
  for (const std::uint32_t node : shape) ranks += node;
  return ranks;
}

inline std::string text_of(const Shape& shape) {
  std::string text = "nodes of";
  for (const std::uint32_t node : shape) text += " " + std::to_string(node);
  return text;
}

template <class T>
AllreduceArguments arguments_of(const std::vector<T>& source, std::vector<T>& target,
                                BuiltIn which = BuiltIn::sum) {
  return {.source = source.data(),
          .target = target.data(),
          .element_count = source.size(),
          .reduction = built_in_reduction(which, element_type_of<T>()),
          .algorithm = Algorithm::shared_ring};
}

inline bool run_once(Operation& operation) {
  return operation.start() == Status::ok && operation.wait(std::chrono::seconds(30)) == Status::ok;
}

/// Small numbers, of which sums are exact.  They repeat themselves, and so do results.
constexpr std::size_t period = 50;
template <class T>
T value_of(std::uint32_t rank, std::uint64_t call, std::size_t i) {
  return static_cast<T>((rank * 7 + call * 3 + i) % period);
}

template <class T>
bool is_right(const std::vector<T>& target, std::uint32_t ranks, std::uint64_t call,
              BuiltIn which) {
  T expected[period];
  for (std::size_t i = 0; i < period; ++i) {
    expected[i] = value_of<T>(0, call, i);
    for (std::uint32_t rank = 1; rank < ranks; ++rank) {
      const T other = value_of<T>(rank, call, i);
      expected[i] = which == BuiltIn::sum   ? static_cast<T>(expected[i] + other)
                    : which == BuiltIn::max ? std::max(expected[i], other)
                                            : std::min(expected[i], other);
    }
  }
  const T* const got = target.data();
  const std::size_t count = target.size();
  for (std::size_t i = 0; i < count; ++i)
    if (got[i] != expected[i % period]) return false;
  return true;
}

/// What forked ranks see together.
struct Board {
  static constexpr std::size_t repetitions_max = 40;
  std::atomic<std::uint32_t> arrived{0};
  std::atomic<std::int32_t> process[16];
  std::atomic<std::uint32_t> done{0};
  std::atomic<std::uint32_t> still_stopped{0};
  std::atomic<std::int64_t> with_stop_ns[repetitions_max], without_ns[repetitions_max];

  void barrier(std::uint32_t ranks, std::uint32_t& passed) {
    ++passed;
    ++arrived;
    while (arrived.load() < passed * ranks)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
};

struct Unmap {
  void operator()(Board* board) const { ::munmap(board, sizeof *board); }
};
inline std::unique_ptr<Board, Unmap> shared_board() {
  void* const memory =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return std::unique_ptr<Board, Unmap>(new (memory) Board);
}

inline bool is_stopped(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');
  return name_end != std::string::npos && text.size() > name_end + 2 && text[name_end + 2] == 'T';
}

inline bool tells(const std::string& text, std::initializer_list<const char*> words) {
  const bool all = std::all_of(words.begin(), words.end(), [&](const char* word) {
    return text.find(word) != std::string::npos;
  });
  if (!all) std::fprintf(stderr, "does not tell: %s\n", text.c_str());
  return all;
}

}  // namespace tutti::test
