#include "shm/copy_costs.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>

#include "shm/copy_side.hpp"

namespace tutti::shm {
namespace {

using namespace probing;

/// The first rounds of each way bring pages and code into the caches, so there are more rounds than
/// have to agree.
constexpr std::uint64_t rounds_min = 6;
constexpr std::uint64_t rounds_max = 96;
/// After rounds_max / 3 rounds, a way to put chunks ends once it has taken 1 / share_of_way of the
/// probe's time: the other ways and the long payloads need time, too.
constexpr unsigned share_of_way = 8;
/// Long payloads disturb each other more, so their times agree later.  Most probes need four rounds
/// of them.
constexpr std::uint64_t large_rounds_max = 120;
constexpr std::uint64_t words_min = 3;
constexpr std::uint64_t words_max = 25;
static_assert(words_max % parts == 0, "a round of parts begins behind the words");
constexpr std::uint64_t steps_max = 0xff00;
constexpr double none = std::numeric_limits<double>::infinity();

void lower(double& least, double one) noexcept {
  least = std::min(least, one);
}

/// Returns what the system says of its CPUs; 0 if it says nothing.
double second_cache_bytes() noexcept {
#if defined(_SC_LEVEL2_CACHE_SIZE)
  return static_cast<double>(std::max(0L, ::sysconf(_SC_LEVEL2_CACHE_SIZE)));
#else
  return 0;
#endif
}

constexpr std::size_t ways_to_put = 3;
/// Until both ranks have gone round so often, a put takes up to three times as long as later
/// (docs/performance.md, "Reading in place").
constexpr unsigned laps_of_ring = 2;

constexpr Way pieces_put(Way way) noexcept {
  return static_cast<Way>(static_cast<std::size_t>(Way::pieces_plain) +
                          static_cast<std::size_t>(way));
}

/// What a chunk costs in one way.
struct ChunkCosts {
  LeastTime put, get, exchange;

  double sum() const noexcept { return put.figure() + get.figure(); }
  bool is_agreed(double spread_max) const noexcept {
    return put.is_agreed(spread_max) && get.is_agreed(spread_max) && exchange.is_agreed(spread_max);
  }
};

/// The leader's steps.  Each goes to the partner, which answers it.  The rounds of one way come one
/// after the other: if the ways took turns, each would find the lines where another one left them.
class Leader {
 public:
  explicit Leader(const CopyProbe& probe)
      : probe_(probe),
        end_(Clock::now() + probe.patience),
        last_begin_(end_ - probe.patience / 4),
        word_max_(std::chrono::duration<double, std::nano>(probe.word_max).count()),
        side_(probe, end_) {}

  /// Makes all tries with the partner.  Returns nothing if none counts, and the cost of a word
  /// alone if too few of them count or agree, or if a rank cannot read the other one's memory.
  std::optional<CopyCosts> runs() {
    // A word that nothing is copied before takes less time than one between copies, also where
    // other programs run.  The first words count where there is no time for the others.
    static_cast<void>(words_that_count());
    const bool enough = runs_chunks() && runs_alone() && runs_at_once();
    if (enough) static_cast<void>(words_that_count());
    say(over);
    if (there_and_back_ == none) return std::nullopt;
    costs_.word = there_and_back_ / 2;
    costs_.is_word_alone = !enough || !is_agreed_;
    costs_.second_cache_bytes = second_cache_bytes();
    return costs_;
  }

  /// Makes tries in which nothing is copied.  Returns nothing if too few of them count.
  std::optional<CopyCosts> runs_words() {
    const std::uint64_t counted = words_that_count();
    say(over);
    if (counted < words_min) return std::nullopt;
    return CopyCosts{.word = there_and_back_ / 2, .is_word_alone = true};
  }

  /// Whether the partner reads nothing any more, once everything has run.
  bool blocks_are_free() const noexcept { return is_answered_ || partner_is_done_; }

 private:
  /// Measures chunks in each of the ways to put them.  False: too few rounds count.
  bool runs_chunks() {
    if (!tries(Way::plain) || !tries(Way::streaming)) return false;
    const bool have_rings = side_.block_count() > 1 && load(probe_.theirs->blocks) > 1;
    if (have_rings && !(goes_round() && tries(Way::ring))) is_agreed_ = false;
    // Only the cheapest way is used, so the figures of the others need not agree.
    for (std::size_t way = 1; way < ways_to_put; ++way)
      if (of_way_[way].sum() < costs_of(best_).sum()) best_ = static_cast<Way>(way);
    const ChunkCosts& chunk = costs_of(best_);
    costs_.put_chunk = figure_of(chunk.put);
    costs_.get_chunk = figure_of(chunk.get);
    costs_.exchange_chunk = figure_of(chunk.exchange);
    return true;
  }

  std::uint64_t words_that_count() {
    take(Way::words);
    std::uint64_t counted = 0;
    for (std::uint64_t tried = 0; tried < words_max && may_go_on(); ++tried) {
      is_apart_ = true;
      double put = 0, get = 0;
      if (!hands_over(Part::word, put, get) || !is_apart_ || answered_ns_ / 2 > word_max_) continue;
      lower(there_and_back_, answered_ns_);
      ++counted;
    }
    return counted;
  }

  /// Measures what this rank does alone, while the partner waits.  False: memory cannot be read.
  bool runs_alone() {
    LeastTime read_chunk;
    for (std::uint64_t round = 0; round < rounds_max && may_go_on(); ++round) {
      if (round >= rounds_min && read_chunk.is_agreed(probe_.spread_max)) break;
      const auto takes = [&](const auto& what) {
        const Clock::time_point begin = Clock::now();
        what();
        return nanoseconds_since(begin);
      };
      bool can_read = true;
      const auto reads = [&](std::size_t bytes) {
        return takes([&] { can_read = can_read && side_.reads(bytes); });
      };
      lower(costs_.read_call, reads(8));
      lower(costs_.read_page, reads(costs_page_bytes));
      read_chunk.add(reads(costs_chunk_bytes));
      lower(costs_.own_chunk, takes([&] { side_.copies_own_chunk(); }));
      if (!can_read) return false;
    }
    costs_.read_chunk = figure_of(read_chunk);
    return true;
  }

  /// Measures what both ranks do at the same time, except copies of chunks, which runs_chunks()
  /// measures.  False: memory cannot be read, or the partner is gone.
  bool runs_at_once() {
    LeastTime read_chunk, read_large, copied, copied_in_ring;
    if (!times(Way::read_chunk, rounds_max, read_chunk)) return false;
    costs_.read_chunk_at_once = figure_of(read_chunk);
    if (!side_.can_be_large()) return true;
    // Where other programs run, a way may have been the fastest for a chunk by chance, so the ring
    // is tried, too.
    if (!times(pieces_put(best_), large_rounds_max, copied) ||
        (best_ != Way::ring && !times(Way::pieces_ring, large_rounds_max, copied_in_ring)) ||
        !times(Way::read_large, large_rounds_max, read_large))
      return false;
    costs_.exchange_large =
        figure_of(copied.figure() <= copied_in_ring.figure() ? copied : copied_in_ring);
    costs_.read_large_at_once = figure_of(read_large);
    return true;
  }

  /// Repeats a step of both ranks until its times agree.  False: memory cannot be read, or the
  /// partner is gone.
  bool times(Way way, std::uint64_t rounds, LeastTime& time) {
    for (std::uint64_t round = 0;
         round < rounds && !time.is_agreed(probe_.spread_max) && may_go_on(); ++round) {
      is_apart_ = true;
      double written_ns = 0, taken_ns = 0;
      if (way != Way::read_chunk && !both_do(Way::write_large, written_ns)) return false;
      if (!both_do(way, taken_ns)) return false;
      if (is_apart_) time.add(taken_ns);
    }
    return true;
  }

  bool both_do(Way way, double& taken_ns) {
    take(way);
    const Clock::time_point begin = Clock::now();
    cpu_ = ::sched_getcpu();
    say(++step_);
    const bool is_done = side_.does(way);
    if (!await_answer(step_)) return false;
    taken_ns = nanoseconds_since(begin);
    return is_done && load(probe_.theirs->get_ns) != cannot_do;
  }

  /// Returns the figure, and remembers if its tries have not agreed.
  double figure_of(const LeastTime& time) noexcept {
    is_agreed_ = is_agreed_ && time.is_agreed(probe_.spread_max);
    return time.figure();
  }

  ChunkCosts& costs_of(Way way) noexcept { return of_way_[static_cast<std::size_t>(way)]; }
  bool may_go_on() const noexcept {
    return is_answered_ && step_ + parts < steps_max && Clock::now() < last_begin_;
  }
  void say(std::uint64_t step) noexcept {
    store(probe_.mine->step, probe_.id + step, std::memory_order_release);
  }
  /// Waits for the partner's answer.  False: it does not answer any more.
  bool await_answer(std::uint64_t step) noexcept {
    const Seen seen = await_step(*probe_.theirs, probe_.id, step, end_);
    partner_is_done_ = seen == Seen::end;
    is_answered_ = seen == Seen::step;
    if (!is_answered_) return false;
    const auto their_cpu = static_cast<int>(load(probe_.theirs->cpu));
    if (their_cpu == cpu_ || their_cpu == ::sched_getcpu()) is_apart_ = false;
    return true;
  }

  void take(Way way) noexcept {
    way_ = way;
    store(probe_.mine->way, static_cast<std::uint64_t>(way));  // for the partner
  }

  /// False: there was no time for it.
  bool goes_round() {
    take(Way::laps);
    ChunkCosts none_that_count;
    for (unsigned lap = 0; lap < laps_of_ring && may_go_on(); ++lap) round(none_that_count);
    return may_go_on();
  }

  /// False: too few rounds count.
  bool tries(Way way) {
    take(way);
    ChunkCosts& chunk = costs_of(way);
    // Ranks that share a CPU at first may be moved to different ones later, so rounds that do not
    // count cost no more than time.
    std::uint64_t counted = 0;
    const Clock::time_point end = Clock::now() + probe_.patience / share_of_way;
    while (counted < rounds_max && may_go_on()) {
      if (counted >= rounds_min && chunk.is_agreed(probe_.spread_max)) return true;
      if (counted >= rounds_max / 3 && Clock::now() >= end) break;
      if (round(chunk)) ++counted;
    }
    return counted >= rounds_min;
  }

  /// Makes a round, and adds its times to the costs.  False: it does not count, because a rank had
  /// no CPU of its own.
  bool round(ChunkCosts& chunk) {
    is_apart_ = true;
    double word_put = 0, word_get = 0, put_page = 0, get_page = 0, put = 0, get = 0, exchange = 0;
    if (!hands_over(Part::word, word_put, word_get)) return false;
    const double there_and_back = answered_ns_;
    if (!hands_over(Part::page, put_page, get_page) || !hands_over(Part::chunk, put, get) ||
        !exchanges(exchange) || !is_apart_ || there_and_back / 2 > word_max_)
      return false;
    lower(there_and_back_, there_and_back);
    lower(costs_.put_page, put_page);
    lower(costs_.get_page, get_page);
    chunk.put.add(put);
    chunk.get.add(get);
    chunk.exchange.add(exchange);
    return true;
  }

  /// Puts, and lets the partner get.  False: the partner has not answered.
  bool hands_over(Part part, double& put_ns, double& get_ns) {
    const Clock::time_point begin = Clock::now();
    puts(part);
    put_ns = nanoseconds_since(begin);
    const Clock::time_point announced = Clock::now();
    say(++step_);
    assert(part_of(step_, way_) == part);
    if (!await_answer(step_)) return false;
    answered_ns_ = nanoseconds_since(announced);
    get_ns = static_cast<double>(load(probe_.theirs->get_ns));
    return true;
  }

  /// Both put at the same time, and then get what the other one has put.
  bool exchanges(double& taken_ns) {
    const Clock::time_point begin = Clock::now();
    say(++step_);
    assert(part_of(step_, way_) == Part::exchange_put);
    puts(Part::exchange_put);
    say(++step_);
    if (!await_answer(step_ - 1)) return false;
    side_.get(Part::exchange_get, way_);
    taken_ns = nanoseconds_since(begin);
    return await_answer(step_);
  }

  void puts(Part part) noexcept {
    cpu_ = ::sched_getcpu();
    side_.put(part, way_);
  }

  const CopyProbe& probe_;
  const Clock::time_point end_, last_begin_;  // of a round
  const double word_max_;
  Side side_;
  CopyCosts costs_{
      .read_call = none, .read_page = none, .put_page = none, .get_page = none, .own_chunk = none};
  std::array<ChunkCosts, ways_to_put> of_way_;
  Way best_ = Way::plain;
  Way way_ = Way::plain;
  double there_and_back_ = none;
  double answered_ns_ = 0;  // from the last hand-over to its answer
  std::uint64_t step_ = 0;  // the last one that the partner was told
  int cpu_ = -1;            // of this rank as the step began
  bool is_apart_ = true;    // in this round, the ranks run on different CPUs
  bool is_agreed_ = true;   // tries have agreed so far
  bool is_answered_ = true;
  bool partner_is_done_ = false;
};

}  // namespace

CopyOutcome measure_copies_as_leader(const CopyProbe& probe) {
  assert((probe.id & over) == 0);
  assert(probe.mine != nullptr);
  if (probe.blocks.empty()) {
    store(probe.mine->step, probe.id + over, std::memory_order_release);
    return {};
  }
  Leader leader(probe);
  CopyOutcome outcome{.costs = probe.copies ? leader.runs() : leader.runs_words()};
  outcome.blocks_are_free = leader.blocks_are_free();
  return outcome;
}

bool leader_begins(const CopyProbe& probe) noexcept {
  return await_step(*probe.theirs, probe.id, 1, Clock::now() + probe.patience) == Seen::step;
}

CopyOutcome measure_copies_as_partner(const CopyProbe& probe) {
  assert((probe.id & over) == 0);
  assert(probe.theirs != nullptr);
  const auto say = [&](std::uint64_t step) {
    store(probe.mine->step, probe.id + step, std::memory_order_release);
  };
  if (probe.blocks.empty()) {
    say(over);
    return {};
  }
  const Clock::time_point end = Clock::now() + probe.patience;
  Side side(probe, end);
  for (std::uint64_t step = 1;; ++step) {
    const Seen seen = await_step(*probe.theirs, probe.id, step, end);
    if (seen != Seen::step) {
      say(over);  // from now on it reads nothing of the leader's
      return {.blocks_are_free = seen == Seen::end};
    }
    const auto way = static_cast<Way>(load(probe.theirs->way));
    const Part part = part_of(step, way);
    bool is_done = true;
    const Clock::time_point begin = Clock::now();
    if (is_at_once(way))
      is_done = side.does(way);
    else if (part == Part::exchange_put)
      side.put(part, way);
    else
      side.get(part, way);
    store(probe.mine->get_ns,
          is_done ? static_cast<std::uint64_t>(nanoseconds_since(begin)) : cannot_do);
    store(probe.mine->cpu, static_cast<std::uint64_t>(::sched_getcpu()));
    say(step);
  }
}

}  // namespace tutti::shm
