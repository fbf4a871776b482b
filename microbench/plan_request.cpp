#include "microbench/plan_request.hpp"

#include "bootstrap/domain.hpp"
#include "bootstrap/node_map.hpp"
#include "microbench/tune_file.hpp"
#include "microbench/words.hpp"
#include "plan/allreduce/chunked_fold.hpp"
#include "plan/blocks/blocks.hpp"
#include "runtime/settings.hpp"
#include "tune/hierarchy.hpp"

namespace tutti::bench {

using tune::Collective;

namespace {

constexpr Collective every_collective[] = {
    Collective::allreduce,      Collective::barrier,   Collective::broadcast, Collective::reduce,
    Collective::reduce_scatter, Collective::allgather, Collective::alltoall,  Collective::gather,
    Collective::scatter,        Collective::scan,      Collective::exscan};
constexpr auto every_format = detail::enumerators<PlanFormat::json>;

/// Stands for a user's operator where its plan is made and nothing is computed.
void combine_nothing(const void*, void*, std::size_t, void*) noexcept {}

Reduction reduction_of(BuiltIn op, ElementType type) {
  if (op != BuiltIn::none) {
    require_defined(op, type);
    return built_in_reduction(op, type);
  }
  Reduction reduction = built_in_reduction(BuiltIn::sum, type);  // for the size of an element
  return {
      .combine = combine_nothing, .element_bytes = reduction.element_bytes, .element_type = type};
}

std::size_t parse_payload(const std::string& text, const Reduction& reduction) {
  constexpr std::uint64_t bytes_max = std::uint64_t{1} << 30;  // one message carries less than 2G
  const std::uint64_t bytes = runtime::parse_bytes(text, "--bytes");
  if (bytes > bytes_max) refuse("--bytes", text, "at most 1G, what one message can carry");
  require_whole(text, bytes, reduction.element_type, reduction.element_bytes);
  return bytes;
}

/// What a schedule that is asked for by name gives at most; else what the library gives unasked.
Agreement default_agreement(const tune::CollectiveRequest& request) {
  if (!tune::order_shows_in_bits(request.reduction)) return Agreement::identical;
  return agreement_of(request.algorithm).value_or(Agreement::identical);
}

tune::CollectiveRequest understand_request(Collective collective, const PlanWords& words) {
  tune::CollectiveRequest request{.collective = collective, .root = Rank{0}};
  const ElementType type = parse_name(every_type, "--dtype", words.dtype);
  request.reduction =
      reduction_of(parse_name(every_operator, "--op", words.op.value_or("sum")), type);
  request.element_count =
      parse_payload(words.bytes.value_or("8"), request.reduction) / request.reduction.element_bytes;
  if (words.algorithm)
    request.algorithm = parse_name(every_algorithm(), "--algorithm", *words.algorithm);
  if (words.across) request.across = parse_name(every_way_across, "--across", *words.across);
  if (words.tree) request.tree = parse_name(every_tree, "--tree", *words.tree);
  if (words.per_round) {
    plan::PerRound& vector =
        is_traced(collective) ? request.per_round : request.per_round_by_default;
    vector = runtime::parse_per_round(*words.per_round, "--per-round");
  }
  request.agreement = words.agreement ? parse_name(every_agreement, "--agreement", *words.agreement)
                                      : default_agreement(request);
  return request;
}

void understand_nodes(const PlanWords& words, PlanRequest& request) {
  const std::uint32_t rank_count = request.topology.rank_count;
  if (!words.ranks_per_node) {
    if (words.in_node_memory)
      throw Error(ErrorCode::invalid_argument,
                  "--node-memory: expected --ranks-per-node beside it; add it");
    if (words.placement)
      refuse("--placement", *words.placement, "--ranks-per-node beside it; add it");
    if (words.ranks_per_domain)
      refuse("--ranks-per-domain", *words.ranks_per_domain, "--ranks-per-node beside it; add it");
    return;
  }
  constexpr std::uint32_t ranks_max = 1'000'000;  // a node for each is written down
  if (rank_count > ranks_max)
    refuse("--ranks", *words.ranks, fmt::format("at most {} with --ranks-per-node", ranks_max));
  bootstrap::ImposedNodes shape{
      .rank_count = rank_count,
      .ranks_per_node = runtime::parse_ranks_per_node(*words.ranks_per_node, "--ranks-per-node")};
  if (words.placement) shape.placement = runtime::parse_placement(*words.placement, "--placement");
  const bootstrap::NodeMap nodes = bootstrap::imposed_node_map(shape);
  request.topology.node_of = nodes.node;
  if (words.ranks_per_domain)
    request.topology.domain_of = bootstrap::imposed_domain_map(
        nodes, runtime::parse_ranks_per_domain(*words.ranks_per_domain, "--ranks-per-domain"));
}

const tune::Machine& machine_of(const char* option, const std::string& name) {
  try {
    return tune::machine_preset(name);
  } catch (const Error& error) {
    throw Error(error.code(), std::string(option) + ": " + error.what());
  }
}

/// Options that only some collectives know.
void refuse_what_does_nothing(Collective collective, const PlanWords& words) {
  const bool has_tree = collective == Collective::broadcast || collective == Collective::reduce;
  const auto refuse_unless = [](bool known, const char* option,
                                const std::optional<std::string>& given, const char* of) {
    if (given && !known) refuse(option, *given, fmt::format("only with {}", of));
  };
  const bool is_staged = is_traced(collective);
  refuse_unless(
      is_staged || collective == Collective::allgather || collective == Collective::reduce_scatter,
      "--algorithm", words.algorithm, "allreduce, barrier, allgather and reduce_scatter");
  const bool reduces = collective == Collective::allreduce || collective == Collective::reduce ||
                       collective == Collective::reduce_scatter ||
                       collective == Collective::allreduce_ssp || collective == Collective::scan ||
                       collective == Collective::exscan;
  refuse_unless(reduces, "--op", words.op,
                "allreduce, reduce, reduce_scatter, scan, exscan and allreduce_ssp");
  refuse_unless(collective != Collective::barrier, "--bytes", words.bytes,
                "collectives that have a payload");
  refuse_unless(is_staged, "--across", words.across, "allreduce and barrier");
  refuse_unless(is_staged, "--ranks-per-domain", words.ranks_per_domain, "allreduce and barrier");
  const bool may_share = collective == Collective::allreduce ||
                         collective == Collective::broadcast || collective == Collective::allgather;
  if (words.in_node_memory && !may_share)
    refuse("--node-memory", name_of(collective), "allreduce, broadcast or allgather");
  refuse_unless(has_tree, "--tree", words.tree, "broadcast and reduce");
  refuse_unless(is_staged || has_tree || collective == Collective::allgather, "--per-round",
                words.per_round, "allreduce, barrier, broadcast, reduce and allgather");
  refuse_unless(
      is_staged || collective == Collective::reduce || collective == Collective::reduce_scatter,
      "--agreement", words.agreement, "allreduce, barrier, reduce and reduce_scatter");
}

/// As the library finds it out by where the targets lie: a node of one rank shares nothing.
void understand_target(const PlanWords& words, PlanRequest& request) {
  request.asked.shares_target = words.in_node_memory && request.topology.has_shared_nodes();
  if (!request.asked.shares_target) return;
  const std::string why = tune::why_not_shared_target(request.asked, request.topology);
  if (!why.empty())
    throw Error(ErrorCode::unsupported, std::string(name_of(request.asked.collective)) +
                                            ": --node-memory gives a node one target, but " + why +
                                            "; leave it out");
}

/// Throws if there are too many ranks for slots of their own.
void require_possible(const PlanRequest& request) {
  const bool is_possible = request.asked.collective == Collective::reduce_scatter
                               ? plan::is_chunked_fold(request.topology.rank_count)
                               : !is_of_blocks(request.asked.collective) ||
                                     plan::is_block_exchange(request.topology.rank_count);
  if (!is_possible)
    refuse("--ranks", std::to_string(request.topology.rank_count),
           fmt::format("so few that there are slots for all of them ({})",
                       name_of(request.asked.collective)));
}

std::optional<Rank> understand_rank(const PlanWords& words, const PlanRequest& request) {
  if (!words.rank)
    return request.format == PlanFormat::json ? std::nullopt : std::optional(Rank{0});
  if (*words.rank == "all") return std::nullopt;
  const auto rank = detail::number_in<std::uint32_t>(*words.rank);
  if (!rank || *rank >= request.topology.rank_count)
    refuse("--rank", *words.rank,
           fmt::format("a rank of these {}, 0 to {}, or all", request.topology.rank_count,
                       request.topology.rank_count - 1));
  return Rank{*rank};
}

}  // namespace

const char* name_of(PlanFormat format) noexcept {
  return detail::name_in<PlanFormat::json>({"table", "dot", "json"}, format);
}

void declare_plan_options(CommandLine& line, PlanWords& words) {
  line.add("--ranks", words.ranks, "number of ranks; needed");
  line.add("--collective", words.collective,
           "allreduce (default), barrier, broadcast, reduce, reduce_scatter, allgather, alltoall, "
           "gather, scatter, scan or exscan; as without single copies");
  line.add("--root", words.root, "of broadcast, reduce, gather and scatter, default 0");
  line.add("--per-round", words.per_round,
           "messages per round at most, e.g. 3,2,1; default: the library's rule");
  line.add("--algorithm", words.algorithm,
           names_of(every_algorithm()) +
               "; default automatic; for allgather and reduce_scatter shared_ring alone");
  line.add(
      "--dtype", words.dtype,
      "int32, uint32, int64, uint64 (default), or float, double, half, bfloat16, whose bits show "
      "the order; "
      "of an allreduce");
  line.add("--op", words.op,
           "sum (default), prod, min, max, band, bor, bxor, land, lor, or user: one that is "
           "not commutative; of an allreduce");
  line.add("--bytes", words.bytes,
           "contribution of each rank, e.g. 8 (default), 4K (for alltoall, gather and scatter: of "
           "each block)");
  line.add("--agreement", words.agreement,
           "identical, reproducible or relaxed; default: the strongest that the named "
           "algorithm gives, else identical");
  line.add("--ranks-per-node", words.ranks_per_node,
           "e.g. 4, or 2,3 for a node of 2 and further ones of 3; default: each rank is a "
           "node of its own");
  line.add("--ranks-per-domain", words.ranks_per_domain,
           "the same of the domains (caches) of a node: small payloads and barriers meet there "
           "first; default: none");
  line.add("--across", words.across,
           "automatic (default), flat, leader or lanes: how ranks that share nodes go about it");
  line.add("--tree", words.tree,
           "of broadcast and reduce, over the nodes or in the only one: " + names_of(every_tree));
  line.add("--placement", words.placement, "of ranks on nodes: block (default), cyclic or random");
  line.add_flag("--node-memory", words.in_node_memory,
                "of allreduce, broadcast and allgather: the result lies once in the memory of each "
                "node (tutti::Scope::node), which the choice depends on; needs --ranks-per-node");
  line.add("--fabric", words.fabric,
           "the preset of the network that prices are for, e.g. edr; default fdr");
  line.add("--file", words.file,
           "choose as programs with this tuning file do on the machine where it was made");
  line.add("--rank", words.rank, "a rank, or all; default 0, for json all");
  line.add("--format", words.format, "table (default), dot (Graphviz) or json");
  line.add_flag(
      "--explain", words.explain,
      "instead of the plan: what is chosen, the next ones with their prices, why the others "
      "are out, and what would change the choice");
}

PlanRequest understand(const PlanWords& words) {
  PlanRequest request;
  if (!words.ranks)
    throw Error(ErrorCode::invalid_argument,
                "plan: expected --ranks P, the number of ranks; add it, for example --ranks 7");
  if (words.file && words.fabric)
    refuse("--fabric", *words.fabric, "no --file beside it, which has a network of its own");
  if (words.fabric) request.knowledge = tune::untuned(machine_of("--fabric", *words.fabric));
  if (words.file) request.knowledge = knowledge_of_file(*words.file);
  request.topology.rank_count = parse_number<std::uint32_t>("--ranks", *words.ranks, 1, UINT32_MAX);
  understand_nodes(words, request);
  const Collective collective =
      parse_name(every_collective, words.collective_option, words.collective);
  refuse_what_does_nothing(collective, words);
  request.asked = understand_request(collective, words);
  understand_target(words, request);
  require_possible(request);
  if (words.root) {
    if (!is_rooted(collective))
      refuse("--root", *words.root,
             "a collective that has one: broadcast, reduce, gather, scatter");
    request.asked.root = Rank{
        parse_number<std::uint32_t>("--root", *words.root, 0, request.topology.rank_count - 1)};
  }
  if (words.format) request.format = parse_name(every_format, "--format", *words.format);
  request.rank = understand_rank(words, request);
  request.explain = words.explain;
  return request;
}

tune::RingRoom ring_room_of(const PlanRequest& request) {
  if (!tune::depends_on_ring_room(request.asked, request.topology, request.knowledge))
    return tune::RingRoom::not_told;
  const std::uint64_t bytes = tune::shared_ring_arena_bytes(request.asked, request.topology);
  return 2 * bytes <= runtime::context_settings({}).arena_bytes ? tune::RingRoom::there
                                                                : tune::RingRoom::missing;
}

tune::Choice choice_of(const PlanRequest& request) {
  tune::Choice choice = tune::choose(request.asked, request.topology, request.knowledge);
  if (choice.row().is_flow)
    throw Error(
        ErrorCode::unsupported,
        fmt::format(
            "{}: algorithm {} has no fixed plan: chunks go around the ring of the "
            "nodes, and each is taken by whichever rank of a node finds it "
            "(algorithms/plan/allreduce/shared_ring.hpp){}",
            name_of(request.asked.collective), choice.row().name,
            request.asked.collective == Collective::allreduce ? "; ring is one with a plan" : ""));
  return choice;
}

}  // namespace tutti::bench
