#include "shm/copy_costs.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cstring>
#include <limits>
#include <tutti/detail/bulk_copy.hpp>
#include <vector>

#include "shm/peer_memory.hpp"

namespace tutti::shm {
namespace {

using Clock = std::chrono::steady_clock;

/// What a step is about; steps take turns in this order.
enum class Part : std::uint8_t { word, page, chunk, exchange_put, exchange_get };
constexpr std::uint64_t parts = 5;

constexpr std::size_t bytes_of(Part part) noexcept {
  return part == Part::word ? 0 : part == Part::page ? costs_page_bytes : costs_chunk_bytes;
}

constexpr std::uint64_t rounds_max = 12;  // of each way
/// Fewer rounds give no result: the first ones bring pages and code into the caches.
constexpr std::uint64_t rounds_min = 3;
constexpr std::uint64_t steps_max = 0xff00;  // counts rounds that count and rounds that do not
constexpr std::uint64_t over = 0xffff;       // not a step: the rank is done
constexpr unsigned looks_per_turn = 256;     // takes about as long as a chunk
constexpr double none = std::numeric_limits<double>::infinity();

double nanoseconds_since(Clock::time_point begin) noexcept {
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

template <class T>
void store(T& into, T value, std::memory_order order = std::memory_order_relaxed) noexcept {
  std::atomic_ref(into).store(value, order);
}
template <class T>
T load(const T& at, std::memory_order order = std::memory_order_relaxed) noexcept {
  return std::atomic_ref(const_cast<T&>(at)).load(order);  // nothing is written
}

void lower(double& least, double one) noexcept {
  least = std::min(least, one);
}

enum class Seen : std::uint8_t { step, end, timeout };

/// Waits until the other rank's step is at least `expected`, until it is done, or until `end`.
Seen await(const CopyBoard& theirs, std::uint64_t id, std::uint64_t expected,
           Clock::time_point end) noexcept {
  for (;;) {
    for (unsigned looks = 0; looks < looks_per_turn; ++looks) {
      const std::uint64_t step = load(theirs.step, std::memory_order_acquire) - id;
      if (step == over) return Seen::end;
      if (step >= expected && step < over) return Seen::step;
    }
    if (Clock::now() >= end) return Seen::timeout;
    sched_yield();
  }
}

bool read_costs(CopyCosts& costs, std::int32_t process, std::uint64_t readable,
                const std::vector<std::byte>& own, std::vector<std::byte>& into,
                Clock::time_point end) {
  for (std::uint64_t round = 0; round < rounds_max; ++round) {
    if (round >= rounds_min && Clock::now() >= end) break;
    for (auto [bytes, least] : {std::pair{std::size_t{8}, &costs.read_call},
                                std::pair{costs_page_bytes, &costs.read_page},
                                std::pair{costs_chunk_bytes, &costs.read_chunk}}) {
      const Clock::time_point begin = Clock::now();
      if (read_peer_memory(process, readable, into.data(), bytes) != 0) return false;
      lower(*least, nanoseconds_since(begin));
    }
    const Clock::time_point begin = Clock::now();
    std::memcpy(into.data(), own.data(), costs_chunk_bytes);
    lower(costs.own_chunk, nanoseconds_since(begin));
  }
  return true;
}

/// How chunks are put.  `laps` puts into all blocks at once and counts for nothing: it brings the
/// lines of a ring to where they are when an operation comes round.  `words` puts none.
enum class Way : std::uint8_t { plain, streaming, ring, laps, words };
constexpr std::size_t ways_that_count = 3;
/// Until both ranks have gone round so often, a put takes up to three times as long as later
/// (docs/performance.md, "Reading in place").
constexpr unsigned laps_of_ring = 2;

constexpr Part part_of(std::uint64_t step, Way way) noexcept {
  return way == Way::words ? Part::word : static_cast<Part>((step - 1) % parts);  // from 1
}

/// What a chunk costs in one way.
struct ChunkCosts {
  double put = none;
  double get = none;
  double exchange = none;
};

/// Copies into a rank's own blocks.
class Put {
 public:
  Put(std::span<std::byte> blocks, CopyBoard& board) : blocks_(blocks), board_(board) {
    store(board_.blocks, std::uint64_t{block_count()});
  }

  /// The caller announces the step afterwards.
  void operator()(const std::byte* own, Part part, Way way) noexcept {
    const std::size_t bytes = bytes_of(part);
    if (way == Way::ring && bytes == costs_chunk_bytes) at_ += costs_chunk_bytes;
    if (at_ + costs_chunk_bytes > blocks_.size() || way == Way::laps) at_ = 0;
    std::byte* const block = blocks_.data() + at_;
    store(board_.block, reinterpret_cast<std::uint64_t>(block));
    if (way == Way::streaming && bytes == costs_chunk_bytes)
      streaming_(block, own, bytes);
    else if (way == Way::laps && part == Part::exchange_put)
      for (std::size_t i = 0; i < block_count(); ++i)
        std::memcpy(block + i * costs_chunk_bytes, own, bytes);
    else if (bytes > 0)
      std::memcpy(block, own, bytes);
  }
  std::size_t block_count() const noexcept { return blocks_.size() / costs_chunk_bytes; }

 private:
  std::span<std::byte> blocks_;
  CopyBoard& board_;
  std::size_t at_ = 0;
  detail::BulkCopy streaming_{detail::Stores::streaming};
};

/// Copies what the other rank has put.
void get(const CopyProbe& probe, Part part, Way way, std::vector<std::byte>& into) {
  const std::uint64_t first = load(probe.theirs->block);
  const bool gets_all = way == Way::laps && part == Part::exchange_get;
  const std::uint64_t count = gets_all ? load(probe.theirs->blocks) : 1;
  for (std::uint64_t i = 0; i < count; ++i)
    std::memcpy(into.data(), probe.their_block_at(first + i * costs_chunk_bytes), bytes_of(part));
}

/// The leader's steps.  Each goes to the partner, which answers it.  The rounds of one way come one
/// after the other: if the ways took turns, each would find the lines where another one left them.
class Leader {
 public:
  explicit Leader(const CopyProbe& probe)
      : probe_(probe),
        end_(Clock::now() + probe.patience),
        last_begin_(end_ - probe.patience / 4),
        own_(costs_chunk_bytes, std::byte{1}),
        into_(costs_chunk_bytes),
        put_(probe.blocks, *probe.mine) {}

  /// All tries with the partner.  False: too few of them count.
  bool runs() {
    const bool enough = tries(Way::plain) && tries(Way::streaming);
    const bool have_rings = put_.block_count() > 1 && load(probe_.theirs->blocks) > 1;
    if (enough && have_rings && !(goes_round() && tries(Way::ring))) costs_of(Way::ring) = {};
    say(over);
    const ChunkCosts& chunk = *std::min_element(
        of_way_.begin(), of_way_.end(), [](const ChunkCosts& left, const ChunkCosts& right) {
          return left.put + left.get < right.put + right.get;
        });
    costs_.put_chunk = chunk.put;
    costs_.get_chunk = chunk.get;
    costs_.exchange_chunk = chunk.exchange;
    costs_.word = there_and_back_ / 2;
    return enough;
  }

  /// Tries with the partner in which nothing is copied.  False: too few of them count.
  bool runs_words() {
    take(Way::words);
    std::uint64_t counted = 0;
    for (std::uint64_t tried = 0; tried < 2 * rounds_max && may_go_on(); ++tried) {
      is_apart_ = true;
      double put = 0, get = 0;
      if (!hands_over(Part::word, put, get) || !is_apart_) continue;
      lower(there_and_back_, answered_ns_);
      ++counted;
    }
    say(over);
    costs_.word = there_and_back_ / 2;
    costs_.is_word_alone = true;
    return counted >= rounds_min;
  }

  /// Reads a process's memory, as large as a block.  False: it cannot be read.
  bool reads(std::int32_t process, std::uint64_t readable) {
    // Ranks that are threads share their memory, and the memory at `readable` may be in use.
    if (process == ::getpid()) readable = reinterpret_cast<std::uint64_t>(own_.data());
    return read_costs(costs_, process, readable, own_, into_, end_);
  }

  const CopyCosts& costs() const noexcept { return costs_; }
  /// Whether the partner reads nothing any more, once runs() has returned.
  bool blocks_are_free() const noexcept { return is_answered_ || partner_is_done_; }

 private:
  ChunkCosts& costs_of(Way way) noexcept { return of_way_[static_cast<std::size_t>(way)]; }
  bool may_go_on() const noexcept {
    return is_answered_ && step_ + parts < steps_max && Clock::now() < last_begin_;
  }
  void say(std::uint64_t step) noexcept {
    store(probe_.mine->step, probe_.id + step, std::memory_order_release);
  }
  /// Waits for the partner's answer.  False: it does not answer any more.
  bool await_answer(std::uint64_t step) noexcept {
    const Seen seen = await(*probe_.theirs, probe_.id, step, end_);
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
    std::uint64_t counted = 0;
    while (counted < rounds_max && may_go_on())
      if (round(costs_of(way))) ++counted;
    return counted >= rounds_min;
  }

  /// Lowers the costs.  False: it does not count, as a rank had no CPU of its own.
  bool round(ChunkCosts& chunk) {
    is_apart_ = true;
    double word_put = 0, word_get = 0, put_page = 0, get_page = 0;
    ChunkCosts now;
    if (!hands_over(Part::word, word_put, word_get)) return false;
    const double there_and_back = answered_ns_;
    if (!hands_over(Part::page, put_page, get_page) || !hands_over(Part::chunk, now.put, now.get) ||
        !exchanges(now.exchange) || !is_apart_)
      return false;
    lower(there_and_back_, there_and_back);
    lower(costs_.put_page, put_page);
    lower(costs_.get_page, get_page);
    lower(chunk.put, now.put);
    lower(chunk.get, now.get);
    lower(chunk.exchange, now.exchange);
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
    say(++step_);
    assert(part_of(step_, way_) == Part::exchange_put);
    const Clock::time_point begin = Clock::now();
    puts(Part::exchange_put);
    say(++step_);
    if (!await_answer(step_ - 1)) return false;
    get(probe_, Part::exchange_get, way_, into_);
    taken_ns = nanoseconds_since(begin);
    return await_answer(step_);
  }

  void puts(Part part) noexcept {
    cpu_ = ::sched_getcpu();
    put_(own_.data(), part, way_);
  }

  const CopyProbe& probe_;
  const Clock::time_point end_, last_begin_;  // of a round
  std::vector<std::byte> own_, into_;
  Put put_;
  CopyCosts costs_{none, none, none, none, none, none, none, none, none, none};
  std::array<ChunkCosts, ways_that_count> of_way_;
  Way way_ = Way::plain;
  double there_and_back_ = none;
  double answered_ns_ = 0;  // from the last hand-over to its answer
  std::uint64_t step_ = 0;  // the last one that the partner was told
  int cpu_ = -1;            // of this rank as the step began
  bool is_apart_ = true;    // in this round, the ranks run on different CPUs
  bool is_answered_ = true;
  bool partner_is_done_ = false;
};

}  // namespace

CopyOutcome measure_copies_as_leader(const CopyProbe& probe, std::int32_t process,
                                     std::uint64_t readable) {
  assert((probe.id & over) == 0);
  assert(probe.mine != nullptr);
  if (probe.blocks.empty()) {
    store(probe.mine->step, probe.id + over, std::memory_order_release);
    return {};
  }
  Leader leader(probe);
  const bool enough = probe.copies ? leader.runs() : leader.runs_words();
  CopyOutcome outcome{.blocks_are_free = leader.blocks_are_free()};
  if (enough && (!probe.copies || leader.reads(process, readable))) outcome.costs = leader.costs();
  return outcome;
}

bool leader_begins(const CopyProbe& probe) noexcept {
  return await(*probe.theirs, probe.id, 1, Clock::now() + probe.patience) == Seen::step;
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
  std::vector<std::byte> own(costs_chunk_bytes, std::byte{1});
  Put put(probe.blocks, *probe.mine);
  for (std::uint64_t step = 1;; ++step) {
    const Seen seen = await(*probe.theirs, probe.id, step, end);
    if (seen != Seen::step) {
      say(over);  // from now on it reads nothing of the leader's
      return {.blocks_are_free = seen == Seen::end};
    }
    const auto way = static_cast<Way>(load(probe.theirs->way));
    const Part part = part_of(step, way);
    const Clock::time_point begin = Clock::now();
    if (part == Part::exchange_put)
      put(own.data(), part, way);
    else
      get(probe, part, way, own);
    store(probe.mine->get_ns, static_cast<std::uint64_t>(nanoseconds_since(begin)));
    store(probe.mine->cpu, static_cast<std::uint64_t>(::sched_getcpu()));
    say(step);
  }
}

}  // namespace tutti::shm
