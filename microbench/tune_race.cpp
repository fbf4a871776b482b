#include "microbench/tune_race.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

#include "microbench/measure.hpp"
#include "microbench/reference.hpp"
#include "microbench/together.hpp"
#include "microbench/tune_options.hpp"
#include "microbench/tutti_side.hpp"
#include "runtime/communicator.hpp"
#include "runtime/first_call.hpp"
#include "runtime/shared_ring.hpp"
#include "tune/plan_time.hpp"

namespace tutti::bench {
namespace {

constexpr std::size_t batch_calls_max = 20'000;

Options options_of(const Cell& cell) {
  Options options;
  options.agreement = cell.agreement;
  return options;
}

plan::Picoseconds picoseconds(double nanoseconds) {
  return static_cast<plan::Picoseconds>(std::llround(nanoseconds * 1000));
}

/// A subject that is sampled: by batches that take about as long as each other, or in virtual time.
class Sampled {
 public:
  Sampled(std::unique_ptr<TuttiSubject> subject, const RaceTrack& track)
      : track_(track), subject_(std::move(subject)) {
    if (track.is_virtual) return;
    calls_ = calls_of_batch(track.batch_ns, [&](std::size_t calls) {
      return sample_batch(*subject_, calls, track.timer, track.exchange);
    });
  }

  plan::Picoseconds sample() {
    if (!track_.is_virtual)
      return picoseconds(sample_batch(*subject_, calls_, track_.timer, track_.exchange));
    // Without faults all calls take equally long.
    if (!known_ || track_.has_faults)
      known_ = picoseconds(measure_virtual(*subject_, 1, track_.exchange).batches.front());
    return *known_;
  }

 private:
  const RaceTrack& track_;
  std::unique_ptr<TuttiSubject> subject_;
  std::size_t calls_ = 1;
  std::optional<plan::Picoseconds> known_ = {};
};

/// As long as it lives, operations go by one choice.
class Only {
 public:
  Only(Communicator& communicator, const std::string& choice) : communicator_(communicator) {
    runtime::choose_only(communicator_, choice);
  }
  Only(const Only&) = delete;
  Only& operator=(const Only&) = delete;
  ~Only() { runtime::choose_only(communicator_, {}); }

 private:
  Communicator& communicator_;
};

/// Makes the operation of a cell by one choice.
std::unique_ptr<TuttiSubject> subject_of(const Cell& cell, const std::string& choice,
                                         Buffers& buffers, const RaceTrack& track) {
  const Options options = options_of(cell);
  const Only only(track.communicator, choice);
  Operation operation =
      cell.collective == Collective::barrier
          ? make_barrier(track.communicator, options)
          : make_operation(cell.collective, track.communicator, options, cell.bytes, buffers);
  return std::make_unique<TuttiSubject>(
      track.communicator, std::move(operation), track.meeting,
      is_timed_from_root(cell.collective) ? std::optional(Rank{0}) : std::nullopt);
}

std::optional<shm::ReadFor> read_for(Collective collective) {
  constexpr std::pair<Collective, shm::ReadFor> all[] = {
      {Collective::allreduce, shm::ReadFor::allreduce},
      {Collective::broadcast, shm::ReadFor::broadcast},
      {Collective::reduce, shm::ReadFor::reduce},
      {Collective::gather, shm::ReadFor::gather},
      {Collective::scatter, shm::ReadFor::scatter},
      {Collective::allgather, shm::ReadFor::allgather},
      {Collective::alltoall, shm::ReadFor::alltoall}};
  for (const auto& [one, what] : all)
    if (one == collective) return what;
  return {};
}

plan::Picoseconds median_of(std::vector<plan::Picoseconds> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

}  // namespace

std::size_t calls_of_batch(double batch_ns,
                           const std::function<double(std::size_t)>& time_of_a_call) {
  std::size_t result = 1;
  for (const std::size_t calls : {std::size_t{2}, std::size_t{16}}) {
    if (calls > 2 && calls > result) break;  // they would take longer than a batch is to take
    const double wanted = batch_ns / std::max(time_of_a_call(calls), 1.0);
    result =
        static_cast<std::size_t>(std::clamp(wanted, 1.0, static_cast<double>(batch_calls_max)));
  }
  return result;
}

tune::RaceResult run_alone(const std::function<plan::Picoseconds()>& sample,
                           const std::function<bool()>& may_go_on, bool is_exact) {
  std::vector<plan::Picoseconds> times;
  do times.push_back(sample());
  while (!is_exact && times.size() < blocks_alone && may_go_on());
  tune::RaceResult result;
  result.blocks = result.samples = static_cast<std::uint32_t>(times.size());
  result.is_noisy = !is_exact && times.size() < blocks_alone;
  result.times = {median_of(std::move(times))};
  return result;
}

void price_anew(tune::Finding& finding, const RaceTrack& track, std::size_t messages_max) {
  tune::Topology topology = track.communicator.implementation().topology();
  const bool is_here =
      finding.nodes == topology.node_count() && finding.ranks_per_node == topology.largest_node();
  tune::CollectiveRequest request = request_of(finding);
  for (const Collective one : tuned_collectives())
    if (is_here && tuned_as(one) == finding.collective) {
      tune::CollectiveRequest here =
          request_of({one, finding.bytes, finding.agreement}, track);  // all ranks take part
      if (tune::operator_class_of(here) == finding.operators) request = std::move(here);
    }
  if (track.exchange.self() != Rank{0}) return;  // which writes them
  if (!is_here) {
    std::optional<tune::Topology> there = topology_of(finding);
    if (!there) return;
    topology = *std::move(there);
  }
  topology.shares_cpus = false;  // then it would not have been raced
  price_anew(finding, request, topology, track.machine, messages_max);
}

tune::CollectiveRequest request_of(const Cell& cell, const RaceTrack& track) {
  const Communicator::Implementation& ranks = track.communicator.implementation();
  const Options options = options_of(cell);
  tune::CollectiveRequest request{.collective = tuned_as(cell.collective),
                                  .agreement = cell.agreement};
  if (is_rooted(cell.collective)) request.root = Rank{0};
  if (cell.collective == Collective::barrier) return request;
  request.element_count = cell.bytes;
  request.reduction = {.element_bytes = 1};
  if (is_reduction(cell.collective)) {
    request.reduction = reduction_for(options.op, options.dtype);
    request.element_count = cell.bytes / request.reduction.element_bytes;
  }
  if (cell.collective == Collective::allreduce) request.partners_max = ranks.partners_max;
  if (cell.collective == Collective::reduce)
    request.participant_count = track.exchange.rank_count();
  if (const auto what = read_for(cell.collective))
    request.reads_in_place = ranks.takes_single_copy(*what, cell.bytes);
  if (tune::depends_on_ring_room(request, ranks.topology(), track.machine)) {
    const auto rooms =
        gather(track.exchange, static_cast<char>(runtime::has_room_for_ring(ranks, request)));
    request.ring_room = std::find(rooms.begin(), rooms.end(), char{0}) == rooms.end()
                            ? tune::RingRoom::there
                            : tune::RingRoom::missing;
  }
  return request;
}

tune::Finding race_cell(const Cell& cell, const tune::CollectiveRequest& request,
                        const Racers& racers, const RaceTrack& track,
                        const std::function<bool()>& may_go_on,
                        const std::function<void(const std::string&)>& remark) {
  const std::uint32_t rank_count = track.exchange.rank_count();
  const Rank self = track.exchange.self();
  const Options options = options_of(cell);
  std::optional<Buffers> buffers;
  together(track.exchange, [&] {
    buffers.emplace(cell.collective == Collective::barrier
                        ? BufferBytes{}
                        : buffer_bytes(cell.collective, options, cell.bytes, self, rank_count));
  });
  // Where there is no time to prepare all of them, the first ones race alone.
  std::deque<Sampled> ready;
  std::vector<tune::Choice> raced;  // by those that are ready
  bool is_in_time = true;
  for (const tune::Choice& choice : racers.choices) {
    is_in_time = ready.empty() || may_go_on();
    if (!is_in_time) break;
    try {
      ready.emplace_back(subject_of(cell, choice.name(), *buffers, track), track);
      raced.push_back(choice);
    } catch (const Error& error) {
      const bool is_last = &choice == &racers.choices.back();
      if (track.communicator.failure().status != Status::ok || (is_last && raced.empty())) throw;
      remark(choice.name() + " does not race: " + error.what());
    }
  }

  const auto sample = [&](std::uint32_t racer) { return ready[racer].sample(); };
  tune::RaceResult result;
  if (ready.size() == 1) {
    result = run_alone([&] { return sample(0); }, may_go_on, track.is_virtual);
  } else {
    Sampled probe(std::make_unique<TuttiSubject>(track.communicator, barrier(track.communicator),
                                                 track.meeting),
                  track);
    bool has_begun = false;  // one block is needed for there to be any times
    result = tune::race(
        static_cast<std::uint32_t>(ready.size()), sample, [&] { return probe.sample(); },
        [&] { return std::exchange(has_begun, true) ? may_go_on() : true; }, {.seed = track.seed});
  }

  if (!is_in_time) result.is_noisy = true;

  return finding_of(request, track.communicator.implementation().topology(), raced, result);
}

}  // namespace tutti::bench
