#include "runtime/first_call.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/operation.hpp"
#include "runtime/tuning_append.hpp"
#include "tune/beside.hpp"
#include "tune/candidates.hpp"
#include "tune/choose.hpp"
#include "tune/names.hpp"
#include "tune/plan_time.hpp"
#include "verbs/soft/soft_clock.hpp"
#include "verbs/soft/virtual_time.hpp"

namespace tutti::runtime {
namespace {

namespace soft = verbs::soft;
using plan::Picoseconds;

constexpr Picoseconds picoseconds_per_ns = 1000;
/// In real time another schedule has to be so much faster than the model's: a 32nd.
constexpr Picoseconds margin_share = 32;
/// How long blocks of tried operations are waited for until their peers have read them.
constexpr Timeout reading_time = std::chrono::milliseconds(10);
constexpr Timeout reading_time_without_room = std::chrono::milliseconds(1000);
constexpr Picoseconds time_max = Picoseconds{first_call_time_max.count()} * picoseconds_per_ns;
/// A schedule that is timed has as many calls at least: two at first, two to see how long one
/// takes, and two in each batch, which begins with one that does not count.
constexpr Picoseconds first_call_calls_min = 4 + 2 * first_call_batches;
/// A finding names so many of those that the winner was compared with.
constexpr std::size_t finding_others_max = 7;

/// Zeros, of which only what is touched takes memory.
class Zeros {
 public:
  explicit Zeros(std::size_t bytes) : memory_(std::calloc(std::max<std::size_t>(bytes, 1), 1)) {
    if (!memory_) throw std::bad_alloc();
  }
  void* data() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
};

/// Everything that a choice depends on besides what a communicator has, as a key.
std::string key_of(const tune::CollectiveRequest& asked) {
  const Reduction& reduction = asked.reduction;
  std::string key = tune::name_of(asked.collective);
  for (const std::uint64_t number :
       {std::uint64_t{asked.element_count}, std::uint64_t{reduction.element_bytes},
        static_cast<std::uint64_t>(reduction.built_in),
        static_cast<std::uint64_t>(reduction.element_type),
        static_cast<std::uint64_t>(asked.agreement), std::uint64_t{index_of(asked.root)},
        std::uint64_t{asked.participant_count}, std::uint64_t{asked.has_equal_blocks ? 1u : 0u},
        static_cast<std::uint64_t>(asked.ring_room), std::uint64_t{asked.reads_in_place ? 1u : 0u}})
    key += " " + std::to_string(number);
  for (const std::size_t bytes : asked.block_bytes) key += "," + std::to_string(bytes);
  return key;
}

bool is_timeable(const Communicator::Implementation& communicator, const OperationRequest& request,
                 const Completed& completed) {
  const tune::CollectiveRequest& asked = completed.asked;
  const Reduction& reduction = asked.reduction;
  if (asked.zero_copy || asked.shares_target) return false;  // other memory would be no substitute
  if (asked.is_asked_for() || asked.across != Across::automatic || asked.tree != Tree::automatic ||
      !asked.only.empty())
    return false;
  if (reduction.combine != nullptr && reduction.built_in == BuiltIn::none) return false;
  if (communicator.tuning->knowledge.bits == tune::TuningBits::keep &&
      reduction.combine != nullptr && tune::order_shows_in_bits(reduction))
    return false;
  // Layouts of blocks that only one rank knows could take any amount of memory.
  const bool has_blocks = !completed.blocks.of_rank.empty();
  if (has_blocks && !request.row.empty() && asked.collective != tune::Collective::reduce_scatter)
    return false;
  const std::size_t blocks = has_blocks ? completed.blocks.of_rank.size() : 1;
  return asked.bytes() <= first_call_bytes_max / blocks;
}

/// What an operation takes of source and target.
std::array<std::size_t, 2> extents_of(const Completed& completed) {
  std::array<std::size_t, 2> ends = {completed.asked.bytes(), completed.asked.bytes()};
  for (const engine::Part& part : completed.blocks.of_rank) {
    ends[0] = std::max(ends[0], part.source.offset + part.source.bytes);
    ends[1] = std::max(ends[1], part.target.offset + part.target.bytes);
  }
  return ends;
}

/// By its price, all calls that a schedule needs at least take less than there is time for.
bool is_worth_timing(const tune::Choice& choice) {
  return choice.cost() <= time_max / first_call_calls_min;
}

/// The choice without first calls, other candidates of the tuner, and the first of all these that
/// has a vector with 1 to 7 messages in each round, as far as prices let them be worth timing;
/// alike on all ranks.
std::vector<tune::Choice> candidates_to_time(const tune::CollectiveRequest& asked,
                                             const Communicator::Implementation& communicator) {
  const tune::Topology topology = communicator.topology();
  const tune::Knowledge& knowledge = communicator.tuning->knowledge;
  std::vector<tune::Choice> choices =
      tune::candidates(asked, topology, knowledge, first_call_candidates_max);
  std::vector<tune::Choice> uniform;
  for (std::size_t i = 0; i < choices.size() && uniform.empty(); ++i)
    uniform = tune::with_uniform_vectors(choices[i], asked, topology, knowledge);
  choices.insert(choices.end(), uniform.begin(), uniform.end());
  if (!is_worth_timing(choices.front())) return {choices.front()};
  std::set<std::string> names;  // equal schedules are timed once: noise would decide
  std::erase_if(choices, [&](const tune::Choice& choice) {
    return !is_worth_timing(choice) || !names.insert(name_when_trimmed(choice)).second;
  });
  return choices;
}

bool is_virtual(const Communicator::Implementation& communicator) {
  return communicator.context.clock.is_simulated();
}

/// What a call by a choice takes.
struct Timed {
  const tune::Choice* choice;
  Picoseconds time;
};

/// What one rank has measured.
struct Report {
  std::array<Picoseconds, first_call_batches> times = {};  // of a call, in each batch
  Picoseconds spent = 0;                                   // since the first call was begun
};

class FirstCalls {
 public:
  FirstCalls(Communicator::Implementation& communicator, const OperationRequest& request)
      : communicator_(communicator),
        user_(request),
        trial_(request),
        begin_(communicator.context.clock.now()) {
    trial_.complete = [this](std::span<const std::uint64_t> rows) { return complete(rows); };
  }
  FirstCalls(const FirstCalls&) = delete;
  FirstCalls& operator=(const FirstCalls&) = delete;

  std::unique_ptr<Operation::Implementation> make() {
    auto operation = set_up_or_by_price(trial_);
    if (!trial_.is_trial) return operation;  // it is the user's already
    const tune::CollectiveRequest asked = operation->asked;
    const std::vector<tune::Choice> candidates = candidates_to_time(asked, communicator_);
    std::optional<Picoseconds> first_time, best_time;
    std::size_t best = 0;
    std::vector<Timed> timed;
    if (candidates.size() == 1) give_up(std::exchange(operation, nullptr));  // nothing to compare
    for (std::size_t i = 0; i < candidates.size() && candidates.size() > 1; ++i) {
      if (i > 0) {  // the first one is made already
        if (!has_time_for(1 + kept_for_first())) break;
        operation = make_trial(candidates[i].name());
      }
      if (!operation) continue;  // refused on all ranks: for example, it does not fit the arena
      const Picoseconds before = spent_by_slowest_;
      const std::optional<Picoseconds> time =
          time_of(*operation, candidates.size() - i + kept_for_first());
      give_up(std::exchange(operation, nullptr));
      quickest_trial_ = std::min(quickest_trial_, spent_by_slowest_ - before);
      if (!time) break;
      timed.push_back({&candidates[i], *time});
      if (i == 0) first_time = time;
      if (!best_time || (*time < *best_time && is_faster(*time, *first_time))) {
        best_time = time;
        best = i;
      }
    }
    if (best > 0 && !is_virtual(communicator_) && !is_confirmed(candidates, timed, *best_time)) {
      best = 0;
      best_time = timed.front().time;
    }
    if (!timed.empty()) first_time = timed.front().time;
    wait_for_readers(reading_time);
    OperationRequest final = user_;
    if (best > 0) final.only = candidates[best].name();
    final.chosen_by =
        words(timed.size(), candidates.front().name(), final.only, first_time, best_time);
    final.chosen_by += append(asked, std::move(timed), candidates[best]);
    communicator_.first_calls[key_] = {final.only, final.chosen_by};
    return set_up_or_by_price(final);
  }

 private:
  /// Sets up the user's operation.  If there is no room for the choice of first calls, now that
  /// others are there, it goes by price.
  std::unique_ptr<Operation::Implementation> set_up_or_by_price(const OperationRequest& request) {
    try {
      return set_up(communicator_, request);
    } catch (const NoRoomForChoice&) {
      if (communicator_.failed()) throw;
    }
    wait_for_readers(reading_time_without_room);
    OperationRequest by_price = user_;
    by_price.chosen_by = "first call: there was no room for " +
                         (request.only.empty() ? "it after the trials" : request.only) +
                         ", so prices decide";
    return set_up(communicator_, by_price);
  }

  /// Completes what the user asks for, and decides what becomes of it; alike on all ranks.
  Completed complete(std::span<const std::uint64_t> rows) {
    Completed completed = user_.complete ? user_.complete(rows) : Completed{user_.asked};
    if (trial_.is_trial) return completed;  // not the first one
    if (!is_timeable(communicator_, user_, completed)) return completed;
    key_ = key_of(completed.asked);
    if (const auto known = communicator_.first_calls.find(key_);
        known != communicator_.first_calls.end()) {
      trial_.only = known->second.choice;
      trial_.chosen_by = known->second.words;
      return completed;
    }
    const auto [source_bytes, target_bytes] = extents_of(completed);
    source_.emplace(source_bytes);
    const bool is_in_place = user_.source == user_.target;
    if (!is_in_place) target_.emplace(target_bytes);
    trial_.source = source_->data();
    trial_.target = is_in_place ? source_->data() : target_->data();
    trial_.is_trial = true;
    return completed;
  }

  /// Whether a schedule is faster by more than the times of a few calls scatter.
  bool is_faster(Picoseconds time, Picoseconds first_time) const {
    return time + (is_virtual(communicator_) ? 0 : first_time / margin_share) < first_time;
  }

  /// Whether there is time for more trials, if each takes as long as the quickest one did.  All
  /// ranks know both times, so they agree.
  bool has_time_for(std::size_t trials) const {
    return spent_by_slowest_ + static_cast<Picoseconds>(trials) * quickest_trial_ <= time_max;
  }

  /// For how many trials time is kept, so that is_confirmed() can time the first schedule again.
  std::size_t kept_for_first() const { return is_virtual(communicator_) ? 0 : 1; }

  /// The first schedule was timed before all others, perhaps while the machine did something else
  /// as well.  It is timed again, and another one replaces it only if that is faster then, too.
  /// The result is the same on all ranks.
  bool is_confirmed(const std::vector<tune::Choice>& candidates, std::vector<Timed>& timed,
                    Picoseconds best_time) {
    if (!has_time_for(1)) return false;
    std::unique_ptr<Operation::Implementation> again = make_trial(candidates.front().name());
    if (!again) return false;
    const std::optional<Picoseconds> time = time_of(*again, 1);
    give_up(std::move(again));
    if (!time) return false;
    Picoseconds& first_time = timed.front().time;
    first_time = std::min(first_time, *time);
    return is_faster(best_time, first_time);
  }

  std::unique_ptr<Operation::Implementation> make_trial(const std::string& name) {
    trial_.only = name;
    try {
      return set_up(communicator_, trial_);
    } catch (const Error&) {
      if (communicator_.failed()) throw;
      return nullptr;
    }
  }

  void call(Operation::Implementation& operation) {
    Status status = operation.start();
    if (status == Status::ok) status = operation.wait(communicator_.context.settings.setup_timeout);
    if (status == Status::ok) return;
    if (status == Status::timed_out) {
      const std::string missing = operation.describe();
      // Messages in flight cannot be taken back.
      communicator_.fail_all({Incident::Kind::aborted, communicator_.exchange.self()},
                             "a first call did not end in time", &operation);
      throw Error(ErrorCode::timed_out, "a first call (TUTTI_TUNING=first_call): " + missing);
    }
    throw Error(ErrorCode::peer_failed,
                std::string("a first call (TUTTI_TUNING=first_call) has failed: ") +
                    communicator_.failure.text);
  }

  /// What `count` calls take, each, after one that lets all ranks begin at about the same time.
  Picoseconds batch(Operation::Implementation& operation, std::uint32_t count) {
    if (is_virtual(communicator_)) return virtual_call(operation);
    call(operation);
    const Timeout begin = communicator_.context.clock.now();
    for (std::uint32_t i = 0; i < count; ++i) call(operation);
    return (communicator_.context.clock.now() - begin).count() * picoseconds_per_ns / count;
  }

  /// All ranks begin at one instant.
  Picoseconds virtual_call(Operation::Implementation& operation) {
    soft::enter_virtual_time();
    Picoseconds taken = 0;
    try {
      call(operation);
      taken = soft::VirtualTime::joined()->now();
    } catch (...) {
      soft::leave_virtual_time();
      throw;
    }
    soft::leave_virtual_time();
    spent_virtually_ += taken;
    return taken;
  }

  /// The slowest rank in each respect, on all ranks.
  Report slowest(const Report& mine) {
    SetUpCall step{CallKind::operation, "first call"};
    std::vector<Report> all(communicator_.exchange.rank_count());
    communicator_.gather(step, std::as_bytes(std::span(&mine, 1)),
                         std::as_writable_bytes(std::span(all)));
    Report most;
    for (const Report& one : all) {
      for (std::size_t i = 0; i < most.times.size(); ++i)
        most.times[i] = std::max(most.times[i], one.times[i]);
      most.spent = std::max(most.spent, one.spent);
    }
    return most;
  }

  Picoseconds spent() {
    if (is_virtual(communicator_)) return spent_virtually_;
    return (communicator_.context.clock.now() - begin_).count() * picoseconds_per_ns;
  }

  /// The least of the batches, of the slowest rank; nothing: there is no time left.
  std::optional<Picoseconds> time_of(Operation::Implementation& operation, std::size_t left) {
    // Connections have to be used once before time is virtual.
    for (int i = 0; i < 2; ++i) call(operation);
    Report mine;
    mine.times[0] = batch(operation, 1);
    mine.spent = spent();
    const Report warm = slowest(mine);
    const Picoseconds share = (time_max - warm.spent) / static_cast<Picoseconds>(left);
    spent_by_slowest_ = warm.spent;
    const Picoseconds one = std::max<Picoseconds>(warm.times[0], 1);
    // Each batch has one call more.
    const auto calls =
        std::min<Picoseconds>(share / (one * first_call_batches) - 1, first_call_calls_per_batch);
    if (calls < 1) return {};
    for (Picoseconds& time : mine.times) time = batch(operation, static_cast<std::uint32_t>(calls));
    mine.spent = spent();
    const Report report = slowest(mine);
    spent_by_slowest_ = report.spent;
    return *std::min_element(report.times.begin(), report.times.end());
  }

  void give_up(std::unique_ptr<Operation::Implementation> operation) {
    communicator_.retire(std::move(operation));
  }

  /// All ranks have ended their calls, so that the last credits are on their way.
  void wait_for_readers(Timeout time) {
    Context::Implementation& context = communicator_.context;
    const Deadline deadline = Deadline::after(time, context.clock.now());
    while (!communicator_.retired.empty() && !deadline.passed(context.clock.now())) {
      context.progress();
      communicator_.reap();
      sched_yield();
    }
  }

  /// Appends what was found to the tuning file, if that is asked for.  Returns what became of it;
  /// nothing on other ranks than the first.
  std::string append(const tune::CollectiveRequest& asked, std::vector<Timed> timed,
                     const tune::Choice& best) {
    const Context::Implementation& context = communicator_.context;
    if (!context.settings.tuning_appends || communicator_.exchange.self() != Rank{0} ||
        timed.size() < 2)
      return {};
    // A finding says nothing of blocks of several lengths, or of those who take part.
    if (!asked.block_bytes.empty() || !asked.has_equal_blocks || asked.participant_count > 0)
      return {};
    const tune::Topology topology = communicator_.topology();
    tune::Finding finding{.collective = asked.collective,
                          .bytes = asked.bytes(),
                          .nodes = topology.node_count(),
                          .ranks_per_node = topology.largest_node(),
                          .agreement = asked.agreement,
                          .operators = tune::operator_class_of(asked)};
    // The fastest of the others, as a file has room for few.
    std::stable_sort(timed.begin(), timed.end(),
                     [](const Timed& left, const Timed& right) { return left.time < right.time; });
    for (const Timed& one : timed) {
      const bool is_best = one.choice == &best;
      if (!is_best && finding.others.size() == finding_others_max) continue;
      tune::Timing timing{one.choice->name(), std::max<Picoseconds>(one.time, 1),
                          one.choice->expected(tune::messages_followed_max)};
      if (is_best)
        finding.winner = std::move(timing);
      else
        finding.others.push_back(std::move(timing));
    }
    if (finding.winner.choice.empty()) return {};  // what goes by price could not be timed
    finding.is_noisy = !is_virtual(communicator_) && is_close(finding);
    try {
      return "; " + append_finding(file_to_append_to(context.found_table),
                                   fingerprint_of(context.fabric.port(), context.settings),
                                   communicator_.tuning->knowledge.priced(), std::move(finding));
    } catch (const std::exception& error) {  // the operation is made all the same, on all ranks
      return std::string("; not appended: ") + error.what();
    }
  }

  static std::string words(std::size_t timed, const std::string& first, const std::string& best,
                           std::optional<Picoseconds> first_time,
                           std::optional<Picoseconds> best_time) {
    if (!first_time || timed < 2)
      return "first call: there was no time to compare schedules, or no other one";
    const auto text = [](Picoseconds time) {
      return tune::in_thousands(time / picoseconds_per_ns, "us");
    };
    std::string line = "first call: of " + std::to_string(timed) + " schedules that were timed, ";
    if (best.empty()) return line + "none is faster than " + first + ", " + text(*first_time);
    return line + best + " is the fastest, " + text(*best_time) + "; " + first +
           ", by price: " + text(*first_time);
  }

  Communicator::Implementation& communicator_;
  const OperationRequest& user_;
  OperationRequest trial_;
  Timeout begin_;
  Picoseconds spent_virtually_ = 0;
  Picoseconds spent_by_slowest_ = 0;  // on all ranks
  Picoseconds quickest_trial_ = time_max;
  std::string key_;
  std::optional<Zeros> source_, target_;
};

}  // namespace

bool is_close(const tune::Finding& finding) {
  const Picoseconds margin = finding.winner.measured / margin_share;
  return std::any_of(finding.others.begin(), finding.others.end(), [&](const tune::Timing& one) {
    return one.measured <= finding.winner.measured + margin;
  });
}

void choose_only(Communicator& communicator, std::string name) {
  communicator.implementation().only = std::move(name);
}

bool may_be_timed(const Communicator::Implementation& communicator,
                  const OperationRequest& request) {
  if (communicator.tuning->mode != TuningMode::first_call || communicator.shares_cpus ||
      communicator.exchange.rank_count() < 2 || !communicator.only.empty() || request.plan_of ||
      !request.members.empty() || request.asked.collective == tune::Collective::allreduce_ssp)
    return false;
  if (!is_virtual(communicator)) return true;
  // All ranks of the simulation have to take part.
  const soft::VirtualTime* const time = soft::VirtualTime::joined();
  return time != nullptr && time->rank_count() == communicator.exchange.rank_count() &&
         !time->is_entered() && !communicator.context.settings.emulated_fabric.empty();
}

std::unique_ptr<Operation::Implementation> make_by_first_call(
    Communicator::Implementation& communicator, const OperationRequest& request) {
  return FirstCalls(communicator, request).make();
}

}  // namespace tutti::runtime
