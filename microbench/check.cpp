#include "microbench/check.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <tutti/detail/clock.hpp>
#include <tutti/detail/hash.hpp>

#include "microbench/reference.hpp"
#include "microbench/together.hpp"

namespace tutti::bench {
namespace {

/// Fills what a call has to write, or must leave alone.
constexpr std::byte untouched{0xa5};

/// Random waits before calls, different on every rank, the same for the same seed.
class Delays {
 public:
  Delays(const CheckPlan& plan, Rank self)
      : most_us_(plan.delay_us), random_(plan.seed * 1000003 + index_of(self)) {}

  void wait() {
    if (most_us_ == 0) return;
    const Timeout end = detail::MonotonicClock::read() +
                        std::chrono::microseconds(random_() % (std::uint64_t{most_us_} + 1));
    // Yields, so that ranks which share a CPU wait at the same time and not after each other.
    while (detail::MonotonicClock::read() < end) sched_yield();
  }

 private:
  std::uint32_t most_us_;
  std::mt19937_64 random_;
};

/// A rank's first mismatch, as it is exchanged.
struct Finding {
  std::uint64_t call = UINT64_MAX;  // none
  char text[248] = {};
};

/// Returns, on every rank, the finding of the earliest call, and of these that of the lowest rank.
CheckOutcome earliest(Exchange& exchange, const Finding& mine) {
  const std::vector<Finding> all = gather(exchange, mine);
  const auto first = std::min_element(
      all.begin(), all.end(),
      [](const Finding& one, const Finding& other) { return one.call < other.call; });
  if (first->call == UINT64_MAX) return {.correct = true, .what = {}};
  return {.correct = false, .what = first->text};
}

Finding finding(std::uint64_t call, const std::string& text) {
  Finding found{.call = call};
  std::strncpy(found.text, text.c_str(), sizeof found.text - 1);
  return found;
}

/// A call that is prepared: where it reads, and where its result will be.
struct Prepared {
  const std::byte* source;
  std::span<std::byte> result;
  const char* how = "";  // for errors
};

/// Makes the calls and compares each result with what is expected.  `prepare(call)` fills the
/// buffers; `expect(call, expected)` fills in what the call has to write.
template <class Prepare, class Expect>
Finding first_mismatch(const std::string& name, TuttiSubject& subject, Rank self,
                       const Reference& reference, const CheckPlan& plan, Prepare prepare,
                       Expect expect) {
  Delays delays(plan, self);
  Finding found;
  for (std::uint64_t call = 0; call < plan.calls; ++call) {
    const Prepared made = prepare(call);
    std::vector<std::byte> expected(made.result.size(), untouched);
    delays.wait();
    subject.run_on(made.source, made.result.data());
    expect(call, std::span(expected));
    const auto element = reference.first_difference(made.result, expected);
    if (element && found.call == UINT64_MAX)
      found = finding(call, fmt::format("{}{}: rank {}, call {}, element {}: got {}, expected {}",
                                        name, made.how, index_of(self), call, *element,
                                        reference.text_of(made.result, *element),
                                        reference.text_of(expected, *element)));
  }
  return found;
}

std::uint64_t hash_of(std::span<const std::byte> bytes) {
  detail::Hash hash;
  for (const std::byte byte : bytes) hash.add(static_cast<std::uint64_t>(byte));
  return hash.value();
}

/// Calls with inputs that round: the bits of every rank's result, compared by their hash.
Finding check_identical(TuttiSubject& subject, Buffers& buffers, Exchange& exchange,
                        const Reference& reference, std::size_t calls) {
  const std::uint32_t self = index_of(exchange.self());
  const auto source = buffers.source_bytes();
  const auto target = buffers.target_bytes();
  std::vector<std::uint64_t> mine(calls);
  for (std::size_t call = 0; call < calls; ++call) {
    const bool in_place = call % 4 == 3;
    reference.contribution_that_rounds(self, call, in_place ? target : source);
    subject.run_on(in_place ? buffers.target.data() : buffers.source.data(), buffers.target.data());
    mine[call] = hash_of(target);
  }
  std::vector<std::uint64_t> all(calls * exchange.rank_count());
  exchange.allgather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)),
                     setup_timeout);
  for (std::size_t call = 0; call < calls; ++call)
    for (std::size_t rank = 1; rank < exchange.rank_count(); ++rank)
      if (all[rank * calls + call] != all[call])
        return finding(call, fmt::format("allreduce of {} bytes, inputs that round, call {}: the "
                                         "bits of rank {} differ from those of rank 0; expected: "
                                         "identical",
                                         source.size(), call, rank));
  return {};
}

struct Visit {
  std::int64_t entered_ns = 0;
  std::int64_t left_ns = 0;
};

/// The first call of `visits`, [rank][call], that some rank left before another had entered.
std::optional<Finding> first_early_leave(std::span<const Visit> visits, std::size_t rank_count,
                                         std::uint64_t first_call) {
  const std::size_t calls = visits.size() / rank_count;
  for (std::size_t call = 0; call < calls; ++call) {
    std::size_t last_in = 0;
    std::size_t first_out = 0;
    for (std::size_t rank = 1; rank < rank_count; ++rank) {
      const Visit& visit = visits[rank * calls + call];
      if (visit.entered_ns > visits[last_in * calls + call].entered_ns) last_in = rank;
      if (visit.left_ns < visits[first_out * calls + call].left_ns) first_out = rank;
    }
    const std::int64_t early_ns =
        visits[last_in * calls + call].entered_ns - visits[first_out * calls + call].left_ns;
    if (early_ns > 0)
      return finding(first_call + call,
                     fmt::format("barrier: call {}: rank {} left {} ns before rank {} entered; "
                                 "expected: after",
                                 first_call + call, first_out, early_ns, last_in));
  }
  return {};
}

}  // namespace

CheckOutcome check_payload(Collective collective, std::size_t payload_bytes, TuttiSubject& subject,
                           Buffers& buffers, const Options& options, Exchange& exchange,
                           const CheckPlan& plan) {
  const std::uint32_t self = index_of(exchange.self());
  const std::uint32_t rank_count = exchange.rank_count();
  const std::uint32_t root = index_of(options.root);
  const std::vector<std::size_t> sizes =
      block_sizes(collective, options, payload_bytes, rank_count);
  const Reference reference(
      {.type = options.dtype, .op = options.op, .rank_count = rank_count, .seed = plan.seed});
  const auto source = buffers.source_bytes();
  const auto target = buffers.target_bytes();
  const bool broadcasts = collective == Collective::broadcast;
  const bool swaps = has_blocks_in_source(collective) && has_blocks_in_target(collective);
  const auto block_of = [&](std::span<std::byte> buffer, std::uint32_t rank) {
    const std::size_t before = std::accumulate(sizes.begin(), sizes.begin() + rank, std::size_t{0});
    return buffer.subspan(before, sizes[rank]);
  };
  const auto give = [&](std::uint64_t call, std::span<std::byte> into) {
    if (!has_blocks_in_source(collective)) return reference.contribution(self, call, into);
    for (std::uint32_t to = 0; to < rank_count; ++to)
      reference.contribution(swaps ? self * rank_count + to : to, call, block_of(into, to));
  };
  const auto prepare = [&](std::uint64_t call) -> Prepared {
    const bool in_place = collective == Collective::allreduce && call % 4 == 3;
    const auto from = in_place ? target : source, result = broadcasts ? source : target;
    std::fill(result.begin(), result.end(), untouched);
    if (!broadcasts || self == root) give(call, from);
    return {from.data(), result, in_place ? " in place" : ""};
  };
  const auto expect_share = [&](std::uint64_t call, std::span<std::byte> expected) {
    const std::size_t bytes = element_bytes(options.dtype);
    const std::vector<std::size_t> counts =
        reduce_scatter_counts(source.size() / bytes, rank_count);
    const auto before = std::accumulate(counts.begin(), counts.begin() + self, std::size_t{0});
    std::vector<std::byte> whole(source.size());
    reference.expected(call, whole);
    std::copy_n(whole.begin() + static_cast<std::ptrdiff_t>(before * bytes), counts[self] * bytes,
                expected.begin());
  };
  const auto expect = [&](std::uint64_t call, std::span<std::byte> expected) {
    if (broadcasts) return reference.contribution(root, call, expected);
    if (collective == Collective::scatter || collective == Collective::scatterv)
      return reference.contribution(self, call, expected);
    if (is_rooted(collective) && self != root) return;  // no result belongs here
    if (collective == Collective::reduce_scatter) return expect_share(call, expected);
    if (collective == Collective::scan) return reference.expected_of(self + 1, call, expected);
    if (collective == Collective::exscan && self == 0) return;
    if (collective == Collective::exscan) return reference.expected_of(self, call, expected);
    if (is_reduction(collective)) return reference.expected(call, expected);
    for (std::uint32_t from = 0; from < rank_count; ++from)
      reference.contribution(swaps ? from * rank_count + self : from, call,
                             block_of(expected, from));
  };
  Finding found =
      first_mismatch(fmt::format("{} of {} bytes{}", name_of(collective), source.size(),
                                 is_rooted(collective) ? fmt::format(", root {}", root) : ""),
                     subject, exchange.self(), reference, plan, prepare, expect);
  constexpr std::size_t rounding_calls_max = 1000;
  if (collective == Collective::allreduce && options.agreement == Agreement::identical &&
      reference.can_round()) {
    const Finding bits = check_identical(subject, buffers, exchange, reference,
                                         std::min(plan.calls, rounding_calls_max));
    if (found.call == UINT64_MAX) found = bits;
  }
  give(0, source);
  return earliest(exchange, found);
}

CheckOutcome check_barrier(TuttiSubject& subject, Exchange& exchange, const Placement& placement,
                           const CheckPlan& plan) {
  if (!placement.one_machine)
    return {.correct = {}, .what = "ranks on several machines share no clock to check barriers by"};
  constexpr std::size_t chunk_calls = 500;
  const std::size_t rank_count = exchange.rank_count();
  Delays delays(plan, exchange.self());
  std::vector<Visit> all;
  Finding found;
  for (std::size_t first = 0; first < plan.calls; first += chunk_calls) {
    std::vector<Visit> mine(std::min(chunk_calls, plan.calls - first));
    for (Visit& visit : mine) {
      delays.wait();
      visit.entered_ns = detail::MonotonicClock::read().count();
      subject.run(1);
      visit.left_ns = detail::MonotonicClock::read().count();
    }
    all.resize(mine.size() * rank_count);
    exchange.allgather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)),
                       setup_timeout);
    const auto early = first_early_leave(all, rank_count, first);
    if (early && found.call == UINT64_MAX) found = *early;
  }
  return earliest(exchange, found);
}

}  // namespace tutti::bench
