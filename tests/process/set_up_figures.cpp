// set_up_figures RANKS tree|star|all: makes one operation of as many forked ranks, which meet over
// TCP and are nodes of their own, runs it, and prints what its set-up took.
//   tree  an allreduce of 8 bytes by default
//   star  a broadcast of 8 bytes, which rank 0 sends to every other rank
//   all   an alltoall of blocks of 256 bytes, in which every rank sends to every other
// Exit status 0 if all is well, and if what rank 0 relays for each rank of a star does not grow.
// The figures are in docs/memory_and_connections.md.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <tutti/tutti.hpp>
#include <vector>

#include "bootstrap/tcp_exchange.hpp"
#include "runtime/context.hpp"
#include "support/jobs.hpp"
#include "support/process_memory.hpp"

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

/// What rank 0 has relayed so far, of which no part is still on its way.
std::uint64_t relayed(tutti::Exchange& exchange) {
  const tutti::bootstrap::Relayed sum =
      dynamic_cast<tutti::bootstrap::TcpExchange&>(exchange).relayed();
  return sum.received + sum.sent;
}

constexpr std::size_t block = 32;  // numbers

struct Buffers {
  std::vector<std::uint64_t> source, target;
};

tutti::Operation make(tutti::Communicator& communicator, std::string_view what, Buffers& buffers) {
  using tutti::sum;
  const std::uint32_t ranks = communicator.rank_count();
  const std::size_t count = what == "all" ? block * std::size_t{ranks} : 1;
  buffers.source.assign(count, index_of(communicator.rank()) + 1);
  buffers.target.assign(count, 0);
  if (what == "all")
    return tutti::alltoall<std::uint64_t>(
        communicator, std::span<const std::uint64_t>(buffers.source), std::span(buffers.target));
  if (what == "star")
    return tutti::broadcast(communicator, {.buffer = buffers.target.data(),
                                           .bytes = 8,
                                           .root = tutti::Rank{0},
                                           .tree = tutti::Tree::knomial});
  return tutti::allreduce<std::uint64_t>(
      communicator, std::span<const std::uint64_t>(buffers.source), std::span(buffers.target), sum);
}

bool is_right(std::string_view what, const Buffers& buffers, std::uint64_t ranks) {
  if (what == "star") return buffers.target[0] == 77;
  if (what == "tree") return buffers.target[0] == ranks * (ranks + 1) / 2;
  for (std::size_t i = 0; i < buffers.target.size(); ++i)
    if (buffers.target[i] != i / block + 1) return false;
  return true;
}

/// `local` is another exchange of the same ranks, over which nothing is relayed.
int run(tutti::Exchange& exchange, tutti::Exchange& local, std::string_view what) {
  const std::uint32_t ranks = exchange.rank_count(), self = index_of(exchange.self());
  tutti::ContextOptions options;
  options.device = "soft0";
  options.arena_bytes = (512u << 10) + (what == "all" ? 4096 * std::size_t{ranks} : 0);
  options.ranks_per_node = {1};
  options.setup_timeout = 300s;
  if (what == "star") options.per_round = {ranks - 1};
  const Clock::time_point begin = Clock::now();
  tutti::Context context(options);
  tutti::Communicator communicator(context, exchange);
  exchange.barrier(300s);
  const double communicator_ms = milliseconds_since(begin);
  const tutti::test::ProcessMemory before = tutti::test::ProcessMemory::now();
  const std::uint64_t relayed_before = self == 0 ? relayed(exchange) : 0;
  local.barrier(300s);  // nobody sends anything of the operation before that was read
  const Clock::time_point middle = Clock::now();
  Buffers buffers;
  tutti::Operation operation = make(communicator, what, buffers);
  const double operation_ms = milliseconds_since(middle);
  const std::uint64_t relayed_bytes = self == 0 ? relayed(exchange) - relayed_before : 0;
  const tutti::test::ProcessMemory after = tutti::test::ProcessMemory::now();
  if (what == "star" && self == 0) buffers.target[0] = 77;
  if (operation.start() != tutti::Status::ok || operation.wait(300s) != tutti::Status::ok) return 1;
  if (!is_right(what, buffers, ranks)) return 2;
  const Clock::time_point then = Clock::now();
  Buffers others;
  tutti::Operation next = make(communicator, what, others);
  const double next_ms = milliseconds_since(then);
  const tutti::test::ProcessMemory last = tutti::test::ProcessMemory::now();
  exchange.barrier(300s);
  if (self != 0) return 0;
  std::printf("%u ranks, %s (%s)\n", ranks, std::string(what).c_str(),
              operation.algorithm().c_str());
  std::printf("  context and communicator    %10.1f ms\n", communicator_ms);
  std::printf("  operation with connections  %10.1f ms\n", operation_ms);
  std::printf("  the same once more          %10.1f ms\n", next_ms);
  std::printf("  queue pairs of rank 0       %10u\n",
              context.implementation().fabric.connections().count());
  std::printf("  memory of rank 0            %10.1f KiB own, %.1f KiB shared\n",
              static_cast<double>(last.anonymous) / 1024, static_cast<double>(last.shared) / 1024);
  std::printf("  the operation took          %10.1f KiB own, %.1f KiB shared\n",
              static_cast<double>(after.anonymous - before.anonymous) / 1024,
              static_cast<double>(after.shared - before.shared) / 1024);
  std::printf("  relayed for each rank       %10.1f bytes\n",
              static_cast<double>(relayed_bytes) / ranks);
  std::fflush(stdout);
  // Two cards and verdicts of 512 bytes, some frames, and a letter from and to each of as many
  // partners as a rank has in the mean, which here are fewer than two.
  if (what == "star" && relayed_bytes > 2500 * std::uint64_t{ranks}) {
    std::fprintf(stderr, "rank 0 relays too much\n");
    return 3;
  }
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const long ranks = count == 3 ? std::strtol(words[1], nullptr, 10) : 0;
  const std::string_view what = count == 3 ? words[2] : "";
  if (ranks < 2 || ranks > 8192 || (what != "tree" && what != "star" && what != "all")) {
    std::fprintf(stderr, "usage: set_up_figures RANKS tree|star|all, with 2 to 8192 ranks\n");
    return 2;
  }
  // A rank has a descriptor for every rank that it sends to, and rank 0 relays.
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
  }
  const std::uint16_t port = tutti::test::free_port();
  const auto rank_count = static_cast<std::uint32_t>(ranks);
  const auto results = tutti::run_local({.rank_count = rank_count}, [&](tutti::Exchange& local) {
    const auto exchange = tutti::tcp_exchange({.rank = local.self(),
                                               .rank_count = rank_count,
                                               .rendezvous = "127.0.0.1:" + std::to_string(port),
                                               .secret = "of these figures",
                                               .timeout = 300s});
    return run(*exchange, local, what);
  });
  for (std::uint32_t rank = 0; rank < rank_count; ++rank)
    if (results[rank].exit_status != 0 || results[rank].signal != 0) {
      std::fprintf(stderr, "rank %u: exit status %d, signal %d\n", rank, results[rank].exit_status,
                   results[rank].signal);
      return 1;
    }
  return 0;
}
