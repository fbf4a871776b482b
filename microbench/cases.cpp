#include "microbench/cases.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "microbench/reference.hpp"
#include "microbench/together.hpp"

namespace tutti::bench {
namespace {

ContextOptions context_options(const Options& options, const bench::Way& way) {
  ContextOptions context = context_options_of(options);
  context.single_copy_bytes = way.single_copy_bytes;
  context.tuning = way.tuning;
  context.tuning_file = way.tuning_file;
  context.check = options.check_level;
  context.notify = options.notify;
  return context;
}

/// Makes a context whose calls are traced, if the way says so.
std::unique_ptr<Context> make_context(const Options& options, const bench::Way& way) {
  if (way.trace_file.empty()) return std::make_unique<Context>(context_options(options, way));
  ::setenv("TUTTI_TRACE", way.trace_file.c_str(), 1);
  auto context = std::make_unique<Context>(context_options(options, way));
  ::unsetenv("TUTTI_TRACE");
  return context;
}

}  // namespace

Cases::Cases(const Options& options, const Launch& launch, const Placement& placement,
             const Timer& timer)
    : options_(options), launch_(launch), placement_(placement), timer_(timer) {
  std::vector<Collective> collectives;
  for (const Collective collective : options_.collectives)
    if (is_possible(collective)) collectives.push_back(collective);
  if (options_.rotates_root && launch_.exchange.rank_count() != 2)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--rotate-root needs exactly 2 ranks, this run has {}: start 2, or "
                            "leave it out",
                            launch_.exchange.rank_count()));
  for (const bench::Way& given : options_.ways) {
    Way& way = ways_.emplace_back();
    together(launch_.exchange, [&] { way.context = make_context(options_, given); });
    way.communicator = std::make_unique<Communicator>(*way.context, launch_.exchange);
    way.meeting = std::make_unique<Operation>(barrier(*way.communicator));
    if (options_.ways.size() > 1) way.given = &given;
    way.in_node_memory = given.in_node_memory;
    way.has_barriers =
        options_.ways.size() > 1 &&
        std::any_of(options_.ways.begin(), options_.ways.end(), [](const bench::Way& one) {
          return one.tuning.has_value() || !one.trace_file.empty();
        });
  }
  for (const Collective collective : collectives) add(collective);
}

/// Whether this run can measure a collective.  If not, "all" leaves it out; asked for by name, it
/// throws.
bool Cases::is_possible(Collective collective) const {
  if (is_timed_from_root(collective) && !placement_.one_machine) {
    if (options_.all) return false;
    throw Error(ErrorCode::unsupported,
                fmt::format("{} is timed from one rank's start to the last one's end, by a clock "
                            "that several machines do not share: start all ranks on one, or leave "
                            "it out",
                            name_of(collective)));
  }
  if (!is_probe(collective)) return true;
  const std::uint32_t ranks = launch_.exchange.rank_count();
  const bool needs_memory = is_memory_probe(collective);
  if (ranks == 2 && (!needs_memory || placement_.one_machine)) return true;
  if (options_.all) return false;
  if (ranks != 2)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} needs exactly 2 ranks, this run has {}: start 2, or leave it out",
                            name_of(collective), ranks));
  throw Error(ErrorCode::unsupported,
              fmt::format("{} needs both ranks on one machine: start them there, or leave it out",
                          name_of(collective)));
}

void Cases::add(Collective collective) {
  const Rank self = launch_.exchange.self();
  switch (collective) {
    case Collective::floor:
      add_probe(collective, floor_probe(probe_memory().floor, self));
      break;
    case Collective::oneway:
      add_probe(collective, oneway_probe(probe_memory().oneway, self));
      break;
    case Collective::memcpy:
      for (const std::size_t bytes : options_.bytes) {
        cases_.push_back({.collective = collective,
                          .bytes = bytes,
                          .buffers = std::make_shared<Buffers>(BufferBytes{bytes, bytes})});
        Case& made = cases_.back();
        made.subject = memcpy_probe(made.buffers->source_bytes(), made.buffers->target_bytes(),
                                    *ways_.front().meeting);
      }
      break;
    case Collective::wimm:
      add_probe(collective, wimm_probe(launch_.exchange, context().device_name()));
      break;
    case Collective::barrier:
      for (Way& way : ways_) {
        // It is the same for all ways of copying.
        if (&way != &ways_.front() && !way.has_barriers) continue;
        add_tutti(way, {.collective = collective, .way = way.has_barriers ? way.given : nullptr},
                  make_barrier(*way.communicator, options_));
        if (options_.against_mpi && &way == &ways_.front())
          cases_.back().mpi = launch_.mpi->barrier();
      }
      break;
    case Collective::allreduce:
    case Collective::broadcast:
    case Collective::reduce:
    case Collective::reduce_scatter:
    case Collective::allgather:
    case Collective::allgatherv:
    case Collective::alltoall:
    case Collective::alltoallv:
    case Collective::gather:
    case Collective::gatherv:
    case Collective::scatter:
    case Collective::scatterv:
    case Collective::scan:
    case Collective::exscan:
      for (const std::size_t bytes : options_.bytes)
        for (Way& way : ways_) add_with_payload(way, collective, bytes);
      break;
  }
}

void Cases::add_probe(Collective collective, std::unique_ptr<Subject> probe) {
  cases_.push_back({.collective = collective, .bytes = 8, .subject = std::move(probe)});
}

void Cases::add_tutti(Way& way, Case&& made, Operation&& operation) {
  const std::optional<Rank> root =
      is_timed_from_root(made.collective)
          ? std::optional(is_rooted(made.collective) ? options_.root : Rank{0})
          : std::nullopt;
  auto subject =
      std::make_unique<TuttiSubject>(*way.communicator, std::move(operation), *way.meeting, root);
  made.tutti = subject.get();
  if (options_.overlap && !root) made.overlap = std::make_unique<Overlap>(*made.tutti, timer_);
  made.subject = std::move(subject);
  cases_.push_back(std::move(made));
}

/// Makes a row of two ranks whose root changes after each call.
void Cases::rotate_root(Way& way, Case& made) {
  Options other = options_;
  other.root = Rank{1 - index_of(options_.root)};
  made.subject = std::make_unique<TakingTurns>(
      std::move(made.subject),
      std::make_unique<TuttiSubject>(
          *way.communicator,
          make_operation(made.collective, *way.communicator, other, made.bytes, *made.buffers),
          *way.meeting));
  if (made.mpi)
    made.mpi = std::make_unique<TakingTurns>(
        std::move(made.mpi),
        launch_.mpi->collective(made.collective, *made.buffers, made.bytes, other));
}

/// The buffers of a row.  Rows that differ in their way alone share them: which pages the system
/// happens to give changes the time of large payloads by up to a factor of two.
std::shared_ptr<Buffers> Cases::make_buffers(const Way& way, Collective collective,
                                             std::size_t bytes) {
  const bool in_segments = options_.in_segments || way.in_node_memory;
  if (!in_segments && !cases_.empty()) {
    const Case& before = cases_.back();
    const bool is_same = before.collective == collective && before.bytes == bytes;
    if (is_same && before.buffers->segments.empty()) return before.buffers;
  }
  const BufferBytes room = buffer_bytes(collective, options_, bytes, launch_.exchange.self(),
                                        launch_.exchange.rank_count());
  if (!in_segments) return std::make_shared<Buffers>(room);
  Buffers::Scopes scopes;
  if (way.in_node_memory)  // a broadcast has one buffer, the source
    (collective == Collective::broadcast ? scopes.source : scopes.target) = Scope::node;
  return std::make_shared<Buffers>(room, *way.communicator, scopes);
}

void Cases::add_with_payload(Way& way, Collective collective, std::size_t bytes) {
  std::shared_ptr<Buffers> buffers = make_buffers(way, collective, bytes);
  const Reference reference({.type = options_.dtype,
                             .op = options_.op,
                             .rank_count = launch_.exchange.rank_count(),
                             .seed = options_.seed});
  reference.contribution(index_of(launch_.exchange.self()), 0, buffers->source_bytes());
  Operation operation = make_operation(collective, *way.communicator, options_, bytes, *buffers);
  add_tutti(
      way,
      {.collective = collective, .bytes = bytes, .way = way.given, .buffers = std::move(buffers)},
      std::move(operation));
  Case& made = cases_.back();
  if (options_.against_mpi && &way == &ways_.front())
    made.mpi = launch_.mpi->collective(collective, *made.buffers, bytes, options_);
  if (options_.rotates_root && is_rooted(collective)) rotate_root(way, made);
}

ProbeMemory& Cases::probe_memory() {
  if (!probe_mapping_) probe_mapping_ = probe_memory_between(launch_.exchange, placement_);
  return *reinterpret_cast<ProbeMemory*>(probe_mapping_.data());
}

}  // namespace tutti::bench
