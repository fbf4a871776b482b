#include "runtime/segment.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <tutti/detail/check.hpp>
#include <utility>

#include "runtime/card.hpp"
#include "runtime/operation.hpp"
#include "runtime/operation_memory.hpp"
#include "tune/hierarchy.hpp"

namespace tutti {

Segment::Implementation::Implementation(Context::Implementation& owner, std::size_t wanted)
    : context(owner), bytes(wanted) {
  verbs::Arena& arena = context.fabric.arena();
  context.segments.reserve(context.segments.size() + 1);
  memory = wanted <= arena.size() ? runtime::allocate_block(context, wanted) : nullptr;
  if (memory == nullptr)
    throw Error(ErrorCode::limit_exceeded,
                "allocate: a segment of " + std::to_string(bytes) +
                    " bytes: the largest gap of the arena is " +
                    std::to_string(arena.largest_gap()) + " of " + std::to_string(arena.size()) +
                    ": raise TUTTI_ARENA_BYTES, or destroy segments and operations");
  at_owner = reinterpret_cast<std::uint64_t>(memory);
  context.segments.push_back(this);
}

Segment::Implementation::Implementation(Context::Implementation& user, std::size_t wanted,
                                        std::byte* here, std::uint64_t memory_there,
                                        std::shared_ptr<detail::Mapping> owner)
    : context(user),
      bytes(wanted),
      memory(here),
      at_owner(memory_there),
      mapping(std::move(owner)) {
  context.segments.push_back(this);
}

Segment::Implementation::~Implementation() {
  detail::check(users == 0, "operations are destroyed before the segments they use", users);
  std::erase(context.segments, this);
  if (mapping == nullptr && !may_be_written) context.fabric.arena().release(memory);
}

namespace runtime {

Segment::Implementation* segment_with(const Context::Implementation& context, const void* buffer,
                                      std::size_t bytes) noexcept {
  const auto* const begin = static_cast<const std::byte*>(buffer);
  for (Segment::Implementation* const one : context.segments) {
    const std::byte* const end = one->memory + one->bytes;
    if (begin >= one->memory && begin <= end && bytes <= static_cast<std::size_t>(end - begin))
      return one;
  }
  return nullptr;
}

Segment::Implementation* registered_segment_with(const Context::Implementation& context,
                                                 const void* buffer, std::size_t bytes) noexcept {
  Segment::Implementation* const segment = segment_with(context, buffer, bytes);
  return segment != nullptr && segment->mapping == nullptr ? segment : nullptr;
}

std::uint64_t place_in_node(const Context::Implementation& context, const void* buffer,
                            std::size_t bytes) noexcept {
  const Segment::Implementation* const segment = segment_with(context, buffer, bytes);
  if (segment == nullptr || segment->scope != Scope::node) return 0;
  // Processes that were forked may have their arenas at one address; its upper bits are free.
  return (segment->owning_process * 0x9e3779b97f4a7c15u >> 48 << 48 ^ segment->at_owner) +
         static_cast<std::uint64_t>(static_cast<const std::byte*>(buffer) - segment->memory);
}

bool may_be_zero_copy(const Communicator::Implementation& ranks,
                      const tune::CollectiveRequest& asked) {
  return (ranks.has_segments || ranks.context.settings.register_buffers) &&
         tune::may_be_zero_copy(asked, ranks.topology());
}

std::uint64_t registration_of(const Context::Implementation& context, const void* buffer,
                              std::size_t bytes) noexcept {
  const bool is_mapped = registered_segment_with(context, buffer, bytes) != nullptr;
  const Registration how = is_mapped                           ? Registration::in_segment
                           : context.settings.register_buffers ? Registration::when_made
                                                               : Registration::none;
  return static_cast<std::uint64_t>(how);
}

bool allow_zero_copy(const Communicator::Implementation& ranks,
                     std::span<const std::uint64_t> registrations) {
  const bool reads_all = !ranks.topology().has_shared_nodes() || ranks.neighbours.reads_peers;
  const auto least =
      static_cast<std::uint64_t>(reads_all ? Registration::when_made : Registration::in_segment);
  return std::all_of(registrations.begin(), registrations.end(),
                     [&](std::uint64_t one) { return one >= least; });
}

bool is_one_buffer_a_node(const BuffersOfRanks& what, std::span<const Node> node_of,
                          std::span<const std::uint64_t> place_of_rank) {
  detail::check(node_of.size() == place_of_rank.size(), "every rank has a node and a buffer",
                node_of.size(), place_of_rank.size());
  using Ranks = std::pair<std::size_t, std::size_t>;
  std::optional<Ranks> shared, apart;
  const auto text = [](const Ranks& ranks) {
    return "ranks " + std::to_string(ranks.first) + " and " + std::to_string(ranks.second);
  };
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::invalid_argument,
                std::string(what.collective) + ": the " + what.name + " of " + why);
  };
  for (std::size_t rank = 0; rank < node_of.size(); ++rank)
    for (std::size_t other = 0; other < rank; ++other) {
      if (node_of[rank] != node_of[other]) continue;
      const std::uint64_t here = place_of_rank[rank], there = place_of_rank[other];
      const bool is_shared = here != 0 && here == there;
      if (std::optional<Ranks>& first = is_shared ? shared : apart; !first)
        first = Ranks(other, rank);
      const std::uint64_t distance = here > there ? here - there : there - here;
      if (here != 0 && there != 0 && !is_shared && distance < what.bytes)
        refuse(text({other, rank}) + ", of " + std::to_string(what.bytes) +
               " bytes each, overlap: they begin " + std::to_string(distance) +
               " bytes apart in the memory of their node; let all ranks of a node share one, or "
               "none");
    }
  if (shared && apart)
    refuse(text(*shared) + " are one memory (a segment of their node), those of " + text(*apart) +
           ", of one node, too, are not; let all ranks of a node share one, or none");
  return shared.has_value();
}

}  // namespace runtime

Segment::Segment(std::unique_ptr<Implementation> made) noexcept
    : implementation_(std::move(made)) {}
Segment::Segment(Segment&&) noexcept = default;
Segment& Segment::operator=(Segment&& other) noexcept {
  Segment taken(std::move(other));
  std::swap(implementation_, taken.implementation_);
  return *this;
}
Segment::~Segment() {
  if (implementation_) runtime::destroy_own(implementation_, implementation_->context.mark);
}

std::byte* Segment::data() const noexcept {
  return implementation_->memory;
}

std::size_t Segment::size() const noexcept {
  return implementation_->bytes;
}

namespace {

const char* name_of(Scope scope) noexcept {
  return scope == Scope::node ? "Scope::node" : "Scope::rank";
}

/// What a rank tells the others of a segment.
struct SegmentCard {
  runtime::Verdict verdict;
  std::uint64_t bytes = 0;
  std::uint64_t address = 0;
  Scope scope = Scope::rank;
};

/// Else one rank's private memory would be another rank's share of the node's.
void require_one_scope(std::span<const SegmentCard> all) {
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank].scope != all[0].scope)
      throw Error(ErrorCode::mismatch,
                  std::string("allocate: rank 0 asks for ") + name_of(all[0].scope) + ", rank " +
                      std::to_string(rank) + " for " + name_of(all[rank].scope) +
                      "; ask for the same on all ranks");
}

}  // namespace

Segment Communicator::allocate(std::size_t bytes, Scope scope) {
  return runtime::allocate(*this, bytes, scope, std::nullopt);
}

Segment runtime::allocate(Communicator& communicator, std::size_t bytes, Scope scope,
                          std::optional<Error> error) {
  Communicator::Implementation& ranks = communicator.implementation();
  ranks.require_usable();
  ranks.reap();
  const std::vector<Node>& node_of = ranks.neighbours.nodes.node;
  const std::size_t self = index_of(communicator.rank());
  const auto first_of_node = [&](std::size_t one) {
    return static_cast<std::size_t>(std::find(node_of.begin(), node_of.end(), node_of[one]) -
                                    node_of.begin());
  };
  const std::size_t owner = scope == Scope::node ? first_of_node(self) : self;

  std::unique_ptr<Segment::Implementation> made;
  SegmentCard card{.verdict = {}, .bytes = bytes, .scope = scope};
  try {
    if (owner == self && !error) {
      made = std::make_unique<Segment::Implementation>(ranks.context, bytes);
      card.address = made->at_owner;
    }
  } catch (const Error& refused) {
    error = refused;
  } catch (const std::exception& thrown) {
    error = Error(ErrorCode::system, thrown.what());
  }
  card.verdict = runtime::Verdict::of(error);
  std::vector<SegmentCard> all(communicator.rank_count());
  SetUpCall call{CallKind::allocate, "allocate"};
  ranks.gather(call, std::as_bytes(std::span(&card, 1)), std::as_writable_bytes(std::span(all)));
  runtime::agree<SegmentCard>(error, all);
  require_one_scope(all);
  for (std::size_t one = 0; one < all.size() && scope == Scope::node; ++one)
    if (const std::size_t first = first_of_node(one); all[one].bytes != all[first].bytes)
      throw Error(ErrorCode::mismatch, "allocate: rank " + std::to_string(one) + " asks for " +
                                           std::to_string(all[one].bytes) + " bytes, rank " +
                                           std::to_string(first) + " of its node for " +
                                           std::to_string(all[first].bytes) +
                                           "; ask for the same, or use Scope::rank");
  if (owner != self) {
    const runtime::NeighbourMapping& neighbour = ranks.neighbours.mappings[owner];
    const std::uint64_t there = all[owner].address;
    made = std::make_unique<Segment::Implementation>(
        ranks.context, bytes, neighbour.prepared(there, bytes), there, neighbour.mapping);
  }
  made->scope = scope;
  made->owning_process = ranks.process_of[owner];
  ranks.has_segments = true;
  ranks.has_node_segments = ranks.has_node_segments || scope == Scope::node;
  return Segment(std::move(made));
}

}  // namespace tutti
