// Collectives of blocks: where the blocks lie, whether they may, and which plan moves them.
#include <tutti/block_collectives.hpp>

#include <algorithm>
#include <cassert>
#include <limits>
#include <numeric>
#include <string>
#include <tutti/detail/hash.hpp>

#include "plan/allreduce/chunked_fold.hpp"
#include "plan/blocks/blocks.hpp"
#include "runtime/communicator.hpp"
#include "runtime/make_operation.hpp"
#include "runtime/segment.hpp"
#include "runtime/shared_ring.hpp"
#include "shm/single_copy_rule.hpp"
#include "tune/choose.hpp"

namespace tutti {
namespace {

using engine::Part, engine::Range;

/// What ranks of a node may read its blocks for.
shm::ReadFor read_for(tune::Collective collective) {
  if (collective == tune::Collective::gather) return shm::ReadFor::gather;
  if (collective == tune::Collective::scatter) return shm::ReadFor::scatter;
  if (collective == tune::Collective::alltoall) return shm::ReadFor::alltoall;
  assert(collective == tune::Collective::allgather);
  return shm::ReadFor::allgather;
}

constexpr std::size_t bytes_max = std::numeric_limits<std::size_t>::max() / 4;

[[noreturn]] void refuse_blocks(const char* collective, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, std::string(collective) + ": " + why);
}

std::string block_text(std::size_t rank) {
  return "block " + std::to_string(rank);
}

/// The blocks of a buffer; `whose` says which, in errors.
std::vector<Range> ranges_of(const char* collective, const char* whose, const BlockLayout& layout,
                             std::uint32_t rank_count) {
  if (layout.bytes.size() != rank_count)
    refuse_blocks(collective, std::to_string(layout.bytes.size()) + " block sizes of the " + whose +
                                  "; expected one for each of the " + std::to_string(rank_count) +
                                  " ranks");
  if (!layout.offsets.empty() && layout.offsets.size() != rank_count)
    refuse_blocks(collective, std::to_string(layout.offsets.size()) + " offsets of the " + whose +
                                  "; expected none or one for each of the " +
                                  std::to_string(rank_count) + " ranks");
  std::vector<Range> ranges;
  std::size_t next = 0;
  for (std::size_t rank = 0; rank < rank_count; ++rank) {
    const std::size_t offset = layout.offsets.empty() ? next : layout.offsets[rank];
    if (layout.bytes[rank] > bytes_max || offset > bytes_max)
      refuse_blocks(collective, block_text(rank) + " of the " + whose + ", " +
                                    std::to_string(layout.bytes[rank]) + " bytes at " +
                                    std::to_string(offset) + ", does not fit into memory");
    ranges.push_back({offset, layout.bytes[rank]});
    next = offset + layout.bytes[rank];
  }
  return ranges;
}

std::vector<Range> equal_ranges(const char* collective, std::size_t bytes,
                                std::uint32_t rank_count) {
  if (bytes > bytes_max / rank_count)
    refuse_blocks(collective, std::to_string(rank_count) + " blocks of " + std::to_string(bytes) +
                                  " bytes do not fit into memory");
  std::vector<Range> ranges;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) ranges.push_back({rank * bytes, bytes});
  return ranges;
}

/// Blocks that are written may not overlap.
void require_apart(const char* collective, const std::vector<Range>& target) {
  std::vector<std::size_t> order(target.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::erase_if(order, [&](std::size_t rank) { return target[rank].bytes == 0; });
  std::sort(order.begin(), order.end(), [&](std::size_t left, std::size_t right) {
    return target[left].offset < target[right].offset;
  });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const Range& before = target[order[i - 1]];
    if (before.offset + before.bytes > target[order[i]].offset)
      refuse_blocks(collective, "the blocks of ranks " + std::to_string(order[i - 1]) + " and " +
                                    std::to_string(order[i]) + " overlap in the target");
  }
}

struct Buffers {
  const char* collective;
  const void* source;
  const void* target;
};

/// Whether the block of the source and that of the target are the same memory.  Throws if they
/// overlap in another way, or if a buffer is missing.  Blocks of ranks that do not matter here are
/// empty.
bool is_in_place(const Buffers& given, const std::vector<Part>& blocks, CheckLevel level) {
  const auto address = [](const void* buffer, const Range& range) {
    return reinterpret_cast<std::uintptr_t>(buffer) + range.offset;
  };
  std::vector<std::size_t> order;  // of the blocks of the target, by address
  for (std::size_t rank = 0; rank < blocks.size(); ++rank) {
    if (blocks[rank].target.bytes > 0) order.push_back(rank);
    if (level != CheckLevel::off && ((blocks[rank].source.bytes > 0 && given.source == nullptr) ||
                                     (blocks[rank].target.bytes > 0 && given.target == nullptr)))
      refuse_blocks(given.collective, "source or target is null");
  }
  std::sort(order.begin(), order.end(), [&](std::size_t left, std::size_t right) {
    return blocks[left].target.offset < blocks[right].target.offset;
  });
  bool in_place = false;
  for (std::size_t rank = 0; rank < blocks.size(); ++rank) {
    const Range& source = blocks[rank].source;
    if (source.bytes == 0) continue;
    const std::uintptr_t begin = address(given.source, source);
    // The first block that ends behind the begin.
    for (auto at = std::partition_point(order.begin(), order.end(),
                                        [&](std::size_t other) {
                                          const Range& target = blocks[other].target;
                                          return address(given.target, target) + target.bytes <=
                                                 begin;
                                        });
         at != order.end() && address(given.target, blocks[*at].target) < begin + source.bytes;
         ++at) {
      const Range& target = blocks[*at].target;
      if (*at != rank || address(given.target, target) != begin || target.bytes != source.bytes)
        refuse_blocks(given.collective, block_text(rank) + " of the source overlaps " +
                                            block_text(*at) +
                                            " of the target; they may be the same block, or apart");
      in_place = true;
    }
  }
  return in_place;
}

/// The blocks of a rank that sends its own and gets those of all.
std::vector<Part> gathered(const std::vector<Range>& target, std::size_t self) {
  std::vector<Part> blocks(target.size());
  for (std::size_t rank = 0; rank < blocks.size(); ++rank) blocks[rank].target = target[rank];
  blocks[self].source = {0, target[self].bytes};
  return blocks;
}

/// The blocks of a rank that has one for each and gets its own.
std::vector<Part> scattered(const std::vector<Range>& source, std::size_t self) {
  std::vector<Part> blocks(source.size());
  for (std::size_t rank = 0; rank < blocks.size(); ++rank) blocks[rank].source = source[rank];
  blocks[self].target = {0, source[self].bytes};
  return blocks;
}

/// The blocks of a rank that has only one, which it sends or gets.
std::vector<Part> only(std::size_t rank_count, std::size_t self, const Part& own) {
  std::vector<Part> blocks(rank_count);
  blocks[self] = own;
  return blocks;
}

std::size_t longest_of(const std::vector<Range>& ranges) {
  std::size_t longest = 0;
  for (const Range& range : ranges) longest = std::max(longest, range.bytes);
  return longest;
}

std::size_t longest_of(std::span<const std::uint64_t> row) {
  return row.empty() ? 0 : *std::max_element(row.begin(), row.end());
}

/// What every rank says of its own block has to be what this one says of it.
void require_told(const char* collective, const std::vector<Range>& expected,
                  std::span<const std::uint64_t> told, std::size_t self) {
  for (std::size_t rank = 0; rank < expected.size(); ++rank)
    if (told[rank] != expected[rank].bytes)
      throw Error(ErrorCode::mismatch,
                  std::string(collective) + ": rank " + std::to_string(rank) + " has a block of " +
                      std::to_string(told[rank]) + " bytes, which rank " + std::to_string(self) +
                      " takes to have " + std::to_string(expected[rank].bytes));
}

void require_root(const char* collective, Rank root, std::uint32_t rank_count) {
  if (index_of(root) >= rank_count)
    refuse_blocks(collective, "root " + std::to_string(index_of(root)) +
                                  ": expected a rank, 0 .. " + std::to_string(rank_count - 1));
}

/// The collective that is being made, on this rank.
class Making {
 public:
  /// What the collective knows of blocks.
  struct LaidOut {
    std::vector<Part> of_rank;
    std::size_t longest_bytes;                // of all ranks
    std::vector<std::size_t> passing = {};    // bytes of each block, if others' may pass through
                                              // this rank; else empty
    std::vector<std::size_t> differing = {};  // bytes of each block of an allgatherv; else empty
  };

  Making(Communicator& communicator, const char* collective, tune::Collective chooses_as,
         const void* source, void* target, std::size_t bytes, Rank root = no_rank)
      : communicator_(communicator),
        request_{.collective = collective,
                 .asked = {.collective = chooses_as,
                           .element_count = bytes,
                           .reduction = {.element_bytes = 1},
                           .root = root,
                           .per_round_by_default = settings().per_round},
                 .source = source,
                 .target = target} {}

  std::uint32_t count() const { return communicator_.rank_count(); }
  std::size_t self() const { return index_of(communicator_.rank()); }
  bool is_root() const { return communicator_.rank() == request_.asked.root; }
  const char* name() const { return request_.collective; }
  std::vector<std::uint64_t>& row() { return request_.row; }

  /// Has to be called after all that adds to the row, except the next two functions.  Blocks may be
  /// written where they belong in the targets, which have a block of each rank.
  void may_be_zero_copy() {
    tells_registration_ = runtime::may_be_zero_copy(communicator_.implementation(), request_.asked);
    if (tells_registration_)
      request_.row.push_back(runtime::registration_of(communicator_.implementation().context,
                                                      request_.target,
                                                      count() * request_.asked.element_count));
  }

  /// Has to be called after all that adds to the row, except may_take_ring().  The ranks of a node
  /// may have one target, whose blocks lie in it as `target` says.
  void may_share_target(const BlockLayout& target) {
    if (!communicator_.implementation().has_node_segments) return;
    tells_target_ = true;
    std::size_t end = 0, next = 0;
    detail::Hash hash;
    for (std::size_t rank = 0; rank < target.bytes.size(); ++rank) {
      const std::size_t offset = rank < target.offsets.size() ? target.offsets[rank] : next;
      next = offset + target.bytes[rank];  // what overflows is refused later
      end = std::max(end, next);
      if (target.bytes[rank] > 0) hash.add(offset);
    }
    const Context::Implementation& context = communicator_.implementation().context;
    request_.row.push_back(end > 0 ? runtime::place_in_node(context, request_.target, end) : 0);
    request_.row.push_back(hash.value());
  }

  /// By name, blocks may go along the ring of the nodes.
  void go_by(Algorithm algorithm) { request_.asked.algorithm = algorithm; }

  /// Has to be called last.  Blocks may go along the ring unasked if each rank tells that it has
  /// room.  `block_bytes` are lengths that differ; they need not be valid yet.
  void may_take_ring(std::span<const std::size_t> block_bytes = {}) {
    Communicator::Implementation& ranks = communicator_.implementation();
    tune::CollectiveRequest sized = request_.asked;
    sized.block_bytes.assign(block_bytes.begin(), block_bytes.end());
    if (!request_.row.empty()) {
      const bool is_usable = block_bytes.empty() || block_bytes.size() == count();
      tells_room_ = runtime::tell_ring_room(communicator_, sized, is_usable, request_.row);
    } else if (tune::depends_on_ring_room(sized, ranks.topology(), ranks.tuning->knowledge)) {
      tells_room_ = tells_room_alone_ =
          runtime::tell_ring_room(communicator_, sized, true, request_.row);
    }
  }

  /// `lay_out(rows)` gives a LaidOut.  Blocks that are `swapped` are copied in place.
  template <class LayOut>
  Operation operator()(bool swapped, LayOut&& lay_out) {
    request_.complete = [&](std::span<const std::uint64_t> rows) -> runtime::Completed {
      if (!plan::is_block_exchange(count()))
        throw Error(ErrorCode::unsupported, std::string(name()) + ": " + std::to_string(count()) +
                                                " ranks are more than there are slots for");
      const Rank root = request_.asked.root;
      if (root != no_rank) require_root(name(), root, count());
      std::vector<std::uint64_t> own_rows(rows.begin(), rows.end());
      const tune::RingRoom room =
          tells_room_ ? runtime::split_off_ring_room(own_rows, communicator_.implementation())
                      : tune::RingRoom::not_told;
      const bool shares_target = tells_target_ && split_off_targets(own_rows);
      const bool is_zero_copy = tells_registration_ && split_off_registrations(own_rows);
      LaidOut blocks = lay_out(own_rows);
      const bool in_place =
          is_in_place({name(), request_.source, request_.target}, blocks.of_rank, settings().check);
      for (std::size_t rank = 0; rank < blocks.passing.size(); ++rank)
        if (Part& block = blocks.of_rank[rank]; block.source.bytes + block.target.bytes == 0)
          block.target.bytes = blocks.passing[rank];  // it never gets there
      tune::CollectiveRequest asked = request_.asked;
      asked.element_count = blocks.longest_bytes;
      asked.block_bytes = std::move(blocks.differing);
      asked.has_equal_blocks = request_.row.empty() || tells_room_alone_;
      asked.ring_room = room;
      asked.shares_target = shares_target;
      asked.zero_copy = is_zero_copy && !shares_target;
      asked.reads_in_place =
          !(swapped && in_place) && communicator_.implementation().takes_single_copy(
                                        read_for(request_.asked.collective), blocks.longest_bytes);
      return {std::move(asked), {std::move(blocks.of_rank), blocks.longest_bytes}};
    };
    return runtime::make_operation(communicator_, request_);
  }

 private:
  const runtime::ContextSettings& settings() const {
    return communicator_.implementation().context.settings;
  }

  /// Takes what may_share_target() has added out of the rows of all ranks.  Returns whether the
  /// ranks of each node have one target.
  bool split_off_targets(std::vector<std::uint64_t>& rows) const {
    const std::vector<std::uint64_t> layouts = runtime::split_off_last(rows, count());
    const std::vector<std::uint64_t> places = runtime::split_off_last(rows, count());
    const std::vector<Node> node_of = communicator_.implementation().topology().node_of;
    if (!runtime::is_one_buffer_a_node({name(), "targets"}, node_of, places)) return false;
    for (std::size_t rank = 0; rank < count(); ++rank)
      for (std::size_t other = 0; other < rank; ++other)
        if (node_of[rank] == node_of[other] && layouts[rank] != layouts[other])
          refuse_blocks(name(), "ranks " + std::to_string(other) + " and " + std::to_string(rank) +
                                    ", of one node, have one target (a segment of their node), "
                                    "and give its blocks different offsets; give the same");
    return true;
  }

  /// Removes the last number of each row, which may_be_zero_copy() added.  To be called after
  /// split_off_targets().  Returns whether the targets of all ranks allow zero copy.
  bool split_off_registrations(std::vector<std::uint64_t>& rows) const {
    return runtime::allow_zero_copy(communicator_.implementation(),
                                    runtime::split_off_last(rows, count()));
  }

  Communicator& communicator_;
  runtime::OperationRequest request_;
  bool tells_registration_ = false;  // in the row, before what tells of the target
  bool tells_target_ = false;        // in the row, behind the registration
  bool tells_room_ = false;          // at the end of the row
  bool tells_room_alone_ = false;    // the row has nothing else
};

}  // namespace

void detail::check_blocks(Communicator& communicator, const char* collective, std::size_t there,
                          std::size_t each, std::size_t count) {
  if (there == each * count) return;
  const std::string why = "a buffer of " + std::to_string(there) + " elements for " +
                          std::to_string(count) + " blocks of " + std::to_string(each) +
                          "; expected " + std::to_string(each * count);
  refuse(communicator, collective, why.c_str());
}

BlockLayout detail::block_layout(Communicator& communicator, const char* collective,
                                 std::size_t element_bytes, std::size_t there,
                                 std::span<const std::size_t> counts,
                                 std::span<const std::size_t> offsets) {
  BlockLayout layout;
  std::size_t next = 0;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    const std::size_t offset = rank < offsets.size() ? offsets[rank] : next;
    if (counts[rank] > there || offset > there - counts[rank]) {
      const std::string why = block_text(rank) + ", " + std::to_string(counts[rank]) +
                              " elements at " + std::to_string(offset) + ", leaves a buffer of " +
                              std::to_string(there) + " elements";
      refuse(communicator, collective, why.c_str());
    }
    layout.bytes.push_back(counts[rank] * element_bytes);
    next = offset + counts[rank];
  }
  for (const std::size_t offset : offsets) layout.offsets.push_back(offset * element_bytes);
  return layout;
}

Operation allgather(Communicator& communicator, const AllgatherArguments& arguments) {
  Making make(communicator, "allgather", tune::Collective::allgather, arguments.source,
              arguments.target, arguments.bytes);
  make.may_be_zero_copy();
  make.may_share_target({std::vector(make.count(), arguments.bytes)});
  make.go_by(arguments.algorithm);
  make.may_take_ring();
  return make(false, [&](std::span<const std::uint64_t>) -> Making::LaidOut {
    return {gathered(equal_ranges(make.name(), arguments.bytes, make.count()), make.self()),
            arguments.bytes};
  });
}

Operation allgatherv(Communicator& communicator, const AllgathervArguments& arguments) {
  Making make(communicator, "allgatherv", tune::Collective::allgather, arguments.source,
              arguments.target, 0);
  const std::vector<std::size_t>& bytes = arguments.blocks.bytes;
  make.row() = {make.self() < bytes.size() ? bytes[make.self()] : 0};
  make.may_share_target(arguments.blocks);
  make.go_by(arguments.algorithm);
  make.may_take_ring(bytes);
  return make(false, [&](std::span<const std::uint64_t> rows) -> Making::LaidOut {
    const std::vector<Range> target =
        ranges_of(make.name(), "target", arguments.blocks, make.count());
    require_apart(make.name(), target);
    require_told(make.name(), target, rows, make.self());
    return {gathered(target, make.self()), longest_of(target), {}, bytes};
  });
}

Operation alltoall(Communicator& communicator, const AlltoallArguments& arguments) {
  Making make(communicator, "alltoall", tune::Collective::alltoall, arguments.source,
              arguments.target, arguments.bytes);
  return make(true, [&](std::span<const std::uint64_t>) -> Making::LaidOut {
    std::vector<Part> blocks;
    for (const Range& range : equal_ranges(make.name(), arguments.bytes, make.count()))
      blocks.push_back({.source = range, .target = range});
    return {std::move(blocks), arguments.bytes};
  });
}

Operation alltoallv(Communicator& communicator, const AlltoallvArguments& arguments) {
  Making make(communicator, "alltoallv", tune::Collective::alltoall, arguments.source,
              arguments.target, 0);
  const std::vector<std::size_t>& sent = arguments.source_blocks.bytes;
  make.row().assign(sent.begin(), sent.end());
  make.row().resize(make.count());
  return make(true, [&](std::span<const std::uint64_t> rows) -> Making::LaidOut {
    const std::vector<Range> source =
        ranges_of(make.name(), "source", arguments.source_blocks, make.count());
    const std::vector<Range> target =
        ranges_of(make.name(), "target", arguments.target_blocks, make.count());
    require_apart(make.name(), target);
    std::vector<std::uint64_t> told;  // what each rank sends to this one
    std::vector<Part> blocks;
    for (std::size_t rank = 0; rank < make.count(); ++rank) {
      told.push_back(rows[rank * make.count() + make.self()]);
      blocks.push_back({.source = source[rank], .target = target[rank]});
    }
    require_told(make.name(), target, told, make.self());
    return {std::move(blocks), longest_of(rows)};
  });
}

Operation gather(Communicator& communicator, const GatherArguments& arguments) {
  Making make(communicator, "gather", tune::Collective::gather, arguments.source, arguments.target,
              arguments.bytes, arguments.root);
  return make(false, [&](std::span<const std::uint64_t>) -> Making::LaidOut {
    const std::vector<Range> target = equal_ranges(make.name(), arguments.bytes, make.count());
    return {make.is_root() ? gathered(target, make.self())
                           : only(make.count(), make.self(), {.source = {0, arguments.bytes}}),
            arguments.bytes, std::vector(make.count(), arguments.bytes)};
  });
}

Operation gatherv(Communicator& communicator, const GathervArguments& arguments) {
  Making make(communicator, "gatherv", tune::Collective::gather, arguments.source, arguments.target,
              0, arguments.root);
  make.row() = {arguments.bytes};
  return make(false, [&](std::span<const std::uint64_t> rows) -> Making::LaidOut {
    const std::vector<std::size_t> all(rows.begin(), rows.end());
    if (!make.is_root())
      return {only(make.count(), make.self(), {.source = {0, arguments.bytes}}), longest_of(rows),
              all};
    const std::vector<Range> target =
        ranges_of(make.name(), "target", arguments.blocks, make.count());
    require_apart(make.name(), target);
    require_told(make.name(), target, rows, make.self());
    return {gathered(target, make.self()), longest_of(rows), all};
  });
}

Operation scatter(Communicator& communicator, const ScatterArguments& arguments) {
  Making make(communicator, "scatter", tune::Collective::scatter, arguments.source,
              arguments.target, arguments.bytes, arguments.root);
  return make(false, [&](std::span<const std::uint64_t>) -> Making::LaidOut {
    const std::vector<Range> source = equal_ranges(make.name(), arguments.bytes, make.count());
    return {make.is_root()
                ? scattered(source, make.self())
                : only(make.count(), make.self(), {.source = {}, .target = {0, arguments.bytes}}),
            arguments.bytes, std::vector(make.count(), arguments.bytes)};
  });
}

Operation scatterv(Communicator& communicator, const ScattervArguments& arguments) {
  Making make(communicator, "scatterv", tune::Collective::scatter, arguments.source,
              arguments.target, 0, arguments.root);
  make.row() = {arguments.bytes};
  return make(false, [&](std::span<const std::uint64_t> rows) -> Making::LaidOut {
    const std::vector<std::size_t> all(rows.begin(), rows.end());
    if (!make.is_root())
      return {only(make.count(), make.self(), {.source = {}, .target = {0, arguments.bytes}}),
              longest_of(rows), all};
    const std::vector<Range> source =
        ranges_of(make.name(), "source", arguments.blocks, make.count());
    require_told(make.name(), source, rows, make.self());
    return {scattered(source, make.self()), longest_of(rows), all};
  });
}

Operation reduce_scatter(Communicator& communicator, const ReduceScatterArguments& arguments) {
  constexpr const char* name = "reduce_scatter";
  const std::uint32_t count = communicator.rank_count();
  const std::size_t self = index_of(communicator.rank());
  const std::vector<std::size_t>& counts = arguments.element_counts;
  const Reduction& reduction = arguments.reduction;
  const std::size_t elements = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const tune::CollectiveRequest asked{.collective = tune::Collective::reduce_scatter,
                                      .reduction = reduction,
                                      .agreement = arguments.agreement,
                                      .algorithm = arguments.algorithm};
  tune::CollectiveRequest sized = asked;
  sized.element_count = elements;
  std::vector<std::uint64_t> row{self < counts.size() ? counts[self] : 0};
  const bool tells_room = runtime::tell_ring_room(communicator, sized, counts.size() == count, row);
  const auto complete = [&](std::span<const std::uint64_t> rows) -> runtime::Completed {
    if (reduction.combine == nullptr || reduction.element_bytes == 0)
      refuse_blocks(name,
                    "the reduction has no combine function or element_bytes is 0; use tutti::sum "
                    "and friends, elementwise<>(), or fill in both");
    if (!plan::is_chunked_fold(count))
      throw Error(ErrorCode::unsupported, std::string(name) + ": " + std::to_string(count) +
                                              " ranks are more than there are slots for");
    BlockLayout layout;
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
      if (counts[rank] > bytes_max / reduction.element_bytes)
        refuse_blocks(name, block_text(rank) + ", " + std::to_string(counts[rank]) +
                                " elements, does not fit into memory");
      layout.bytes.push_back(counts[rank] * reduction.element_bytes);
    }
    const std::vector<Range> source = ranges_of(name, "source", layout, count);
    std::vector<std::uint64_t> own_rows(rows.begin(), rows.end()), told;
    const tune::RingRoom room =
        tells_room ? runtime::split_off_ring_room(own_rows, communicator.implementation())
                   : tune::RingRoom::not_told;
    for (const std::uint64_t sent : own_rows) told.push_back(sent * reduction.element_bytes);
    require_told(name, source, told, self);
    runtime::Blocks blocks{scattered(source, self), longest_of(source)};
    (void)is_in_place({name, arguments.source, arguments.target}, blocks.of_rank,
                      communicator.implementation().context.settings.check);
    for (Part& block : blocks.of_rank) block.target.bytes = block.source.bytes;  // sums of it
    tune::CollectiveRequest completed = asked;
    completed.element_count = elements;
    completed.ring_room = room;
    return {std::move(completed), std::move(blocks)};
  };
  return runtime::make_operation(communicator, {.collective = name,
                                                .asked = asked,
                                                .source = arguments.source,
                                                .target = arguments.target,
                                                .row = std::move(row),
                                                .complete = complete});
}

}  // namespace tutti
