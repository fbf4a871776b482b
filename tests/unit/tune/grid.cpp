// The grid: each part of it varies some of a request's fields over some shapes.
#include <array>
#include <span>

#include "cases.hpp"

namespace tutti::test {
namespace {

using tune::Collective;

constexpr std::size_t K = 1024, M = K * K;
constexpr std::array<std::uint32_t, 27> every_count{2,  3,  4,  5,  6,  7,  8,  9,   10,
                                                    11, 12, 13, 14, 15, 16, 17, 24,  31,
                                                    32, 33, 48, 63, 64, 65, 96, 256, 1};
constexpr std::array<std::uint32_t, 10> some_counts{1, 2, 3, 5, 8, 12, 13, 32, 33, 64};
constexpr std::array<std::size_t, 10> every_size{0,     8,      64,     256,     1 * K,
                                                 4 * K, 16 * K, 64 * K, 256 * K, 1 * M};
constexpr std::array<std::size_t, 4> some_sizes{8, 1 * K, 64 * K, 1 * M};

void combine_nothing(const void*, void*, std::size_t, void*) noexcept {}

const Operator sum_double{"sum(double)", built_in_reduction(BuiltIn::sum, ElementType::float64)};
const Operator sum_int{"sum(int64)", built_in_reduction(BuiltIn::sum, ElementType::int64)};
const Operator max_double{"max(double)", built_in_reduction(BuiltIn::max, ElementType::float64)};
const Operator ordered{"user", {.combine = combine_nothing, .element_bytes = 8}};

/// Fields of a request that differ, and what that is called.
struct Variant {
  std::string name;
  Case given;
};

std::string size_text(std::size_t bytes) {
  if (bytes >= M) return std::to_string(bytes / M) + "M";
  if (bytes >= K) return std::to_string(bytes / K) + "K";
  return std::to_string(bytes);
}

struct Shape {
  const char* name;
  std::vector<std::uint32_t> sizes;
  bool is_cyclic = false;
};
const std::vector<Shape> every_shape{{"1 a node", {1}},
                                     {"2 a node", {2}},
                                     {"4 a node", {4}},
                                     {"8 a node", {8}},
                                     {"3 and 1 a node", {3, 1}}};
const std::vector<Shape> more_shapes{
    {"1 a node", {1}}, {"4 a node", {4}}, {"4 a node, cyclic", {4}, true}, {"one node", {4096}}};

/// Runs of sizes that choose alike.
std::string runs_of(Case given, std::span<const std::size_t> sizes) {
  std::string text, last;
  std::size_t first_size = 0, last_size = 0;
  const auto finish = [&] {
    if (last.empty()) return;
    text += (text.empty() ? "" : "; ") + size_text(first_size) +
            (first_size == last_size ? "" : ".." + size_text(last_size)) + " " + last;
  };
  for (const std::size_t bytes : sizes) {
    given.bytes = bytes;
    const std::string choice = choice_of(given);
    if (choice != last) {
      finish();
      first_size = bytes;
    }
    last_size = bytes;
    last = choice;
  }
  finish();
  return text;
}

class Grid {
 public:
  explicit Grid(const std::function<void(const std::string&)>& visit) : visit_(visit) {}

  /// All of it; variants that choose alike share a line.
  void add(const std::string& heading, std::span<const std::uint32_t> counts,
           const std::vector<Shape>& shapes, std::span<const std::size_t> sizes,
           const std::vector<Variant>& variants) {
    for (const Shape& shape : shapes)
      for (const std::uint32_t count : counts) {
        std::vector<std::pair<std::string, std::string>> lines;  // names, and what they choose
        for (Variant variant : variants) {
          variant.given.rank_count = count;
          variant.given.node_of = nodes_of(count, shape.sizes, shape.is_cyclic);
          const std::string runs = runs_of(variant.given, sizes);
          const auto same = std::find_if(lines.begin(), lines.end(),
                                         [&](const auto& line) { return line.second == runs; });
          if (same == lines.end())
            lines.emplace_back(variant.name, runs);
          else
            same->first += ", " + variant.name;
        }
        for (const auto& [names, runs] : lines)
          visit_(heading + ", " + shape.name + ", P " + std::to_string(count) +
                 (names.empty() ? "" : ", " + names) + ": " + runs);
      }
  }

 private:
  const std::function<void(const std::string&)>& visit_;
};

Variant reducing(Collective collective, const Operator& op, Agreement agreement) {
  return {std::string(op.name) + " " + name_of(agreement),
          {.collective = collective, .reduction = op.reduction, .agreement = agreement}};
}

std::vector<Variant> every_reduction(Collective collective) {
  using enum Agreement;
  std::vector<Variant> variants;
  for (const Agreement agreement : {identical, reproducible, relaxed})
    for (const Operator* op : {&sum_double, &ordered})
      variants.push_back(reducing(collective, *op, agreement));
  variants.push_back(reducing(collective, sum_int, identical));
  variants.push_back(reducing(collective, sum_int, reproducible));
  variants.push_back(reducing(collective, max_double, relaxed));
  return variants;
}

template <class Change>
std::vector<Variant> changed(std::vector<Variant> variants, const char* name, Change change) {
  for (Variant& variant : variants) {
    if (*name != '\0') variant.name += std::string(" ") + name;
    change(variant.given);
  }
  return variants;
}

std::vector<Variant> together(std::vector<Variant> all, const std::vector<Variant>& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

void add_allreduces(Grid& grid) {
  using enum Agreement;
  const std::vector<Variant> reductions = every_reduction(Collective::allreduce);
  const std::vector<Variant> sums{reducing(Collective::allreduce, sum_double, identical),
                                  reducing(Collective::allreduce, ordered, identical),
                                  reducing(Collective::allreduce, sum_double, reproducible),
                                  reducing(Collective::allreduce, sum_int, relaxed)};
  grid.add("allreduce", every_count, every_shape, every_size, reductions);
  grid.add("allreduce of other shapes", some_counts, more_shapes, some_sizes, sums);
  const auto with = [&](const char* name, auto change) {
    grid.add(std::string("allreduce ") + name, some_counts, more_shapes, some_sizes,
             changed(sums, "", change));
  };
  with("zero copy", [](Case& given) { given.zero_copy = true; });
  with("read in place", [](Case& given) { given.single_copy = true; });
  with("of 10 partners", [](Case& given) { given.partners_max = 10; });
  with("one target a node", [](Case& given) { given.shares_target = true; });
  with("by default 3,3,3", [](Case& given) { given.per_round_by_default = {3, 3, 3}; });
  with("by default 7,1,3", [](Case& given) { given.per_round_by_default = {7, 1, 3}; });
  with("asked 3,3", [](Case& given) { given.per_round = {3, 3}; });
  with("asked 2", [](Case& given) { given.per_round = {2}; });
  with("across flat", [](Case& given) { given.across = Across::flat; });
  with("across leader", [](Case& given) { given.across = Across::leader; });
  with("across lanes", [](Case& given) { given.across = Across::lanes; });
  with("across 9", [](Case& given) { given.across = static_cast<Across>(9); });
  constexpr std::array<std::uint32_t, 4> counts{1, 8, 13, 33};
  constexpr std::array<std::uint32_t, 2> many{3000, 70000};
  for (std::uint8_t i = 1; i <= static_cast<std::uint8_t>(Algorithm::canonical_halving) + 1; ++i) {
    const auto algorithm = static_cast<Algorithm>(i);
    const auto by_name = [&](auto also) {
      return changed(sums, "", [&](Case& given) {
        given.algorithm = algorithm;
        also(given);
      });
    };
    const std::string name = std::string("allreduce by ") + name_of(algorithm);
    grid.add(name, counts, {{"1 a node", {1}}, {"4 a node", {4}}}, some_sizes,
             changed(reductions, "", [=](Case& given) { given.algorithm = algorithm; }));
    grid.add(name + " asked 3,3", counts, {{"1 a node", {1}}}, some_sizes, by_name([](Case& given) {
               given.per_round = {3, 3};
             }));
    grid.add(name + " asked 3,2,2", counts, {{"1 a node", {1}}}, some_sizes,
             by_name([](Case& given) {
               given.per_round = {3, 2, 2};
             }));
    grid.add(name + " by default 2,2,2,2", counts, {{"1 a node", {1}}}, some_sizes,
             by_name([](Case& given) {
               given.per_round_by_default = {2, 2, 2, 2};
             }));
    grid.add(name + " across leader", counts, {{"4 a node", {4}}}, some_sizes,
             by_name([](Case& given) { given.across = Across::leader; }));
    grid.add(name + " across lanes", counts, {{"4 a node", {4}}}, some_sizes,
             by_name([](Case& given) { given.across = Across::lanes; }));
    if (algorithm == Algorithm::recursive_multiplying) continue;  // whose search takes seconds
    grid.add(name, many, {{"1 a node", {1}}}, std::array<std::size_t, 1>{8},
             {by_name([](Case&) {})[0]});
  }
}

void add_barriers(Grid& grid) {
  constexpr std::array<std::size_t, 1> nothing{0};
  const auto with = [&](const std::string& name, const auto& counts, auto change) {
    Case given{.collective = Collective::barrier};
    change(given);
    grid.add("barrier" + name, counts, every_shape, nothing, {{"", given}});
  };
  with("", every_count, [](Case&) {});
  with(" asked 3,3", some_counts, [](Case& given) { given.per_round = {3, 3}; });
  with(" by default 7,7", some_counts, [](Case& given) { given.per_round_by_default = {7, 7}; });
  with(" across flat", some_counts, [](Case& given) { given.across = Across::flat; });
  with(" across leader", some_counts, [](Case& given) { given.across = Across::leader; });
  with(" by ring", some_counts, [](Case& given) { given.algorithm = Algorithm::ring; });
  with(" by dissemination", some_counts,
       [](Case& given) { given.algorithm = Algorithm::dissemination; });
}

/// Nodes of 32 ranks whose caches have 8 each.
void add_domains(Grid& grid, const std::function<void(const std::string&)>& visit) {
  (void)grid;
  for (const std::uint32_t count : {32u, 64u, 128u})
    for (const Collective collective : {Collective::allreduce, Collective::barrier})
      for (const Agreement agreement : {Agreement::identical, Agreement::reproducible}) {
        Case given{.collective = collective,
                   .rank_count = count,
                   .node_of = nodes_of(count, {32}),
                   .domain_of = nodes_of(count, {8}),
                   .reduction = sum_double.reduction,
                   .agreement = agreement};
        visit(std::string(collective == Collective::barrier ? "barrier" : "allreduce") +
              ", nodes of 32 in domains of 8, P " + std::to_string(count) + ", sum(double) " +
              name_of(agreement) + ": " + runs_of(given, some_sizes));
      }
}

void add_rooted(Grid& grid) {
  using enum Agreement;
  const std::vector<Variant> broadcast{{"", {.collective = Collective::broadcast}}};
  const std::vector<Variant> reduces = every_reduction(Collective::reduce);
  const std::vector<Variant> some{reducing(Collective::reduce, sum_double, identical),
                                  reducing(Collective::reduce, sum_double, reproducible),
                                  reducing(Collective::reduce, ordered, relaxed)};
  grid.add("broadcast", every_count, every_shape, every_size, broadcast);
  grid.add("reduce", every_count, every_shape, every_size, reduces);
  const auto with = [&](const std::string& name, auto change) {
    grid.add("broadcast " + name, some_counts, more_shapes, some_sizes,
             changed(broadcast, "", change));
    grid.add("reduce " + name, some_counts, more_shapes, some_sizes, changed(some, "", change));
  };
  with("from the last",
       [](Case& given) { given.root = no_rank; });  // see plan_of(): rank_count - 1
  with("read in place", [](Case& given) { given.single_copy = true; });
  with("by default 3,3,3", [](Case& given) { given.per_round_by_default = {3, 3, 3}; });
  with("by default 2", [](Case& given) { given.per_round_by_default = {2}; });
  for (std::uint8_t i = 1; i <= static_cast<std::uint8_t>(Tree::fibonacci) + 1; ++i) {
    const auto tree = static_cast<Tree>(i);
    with(std::string("along ") + name_of(tree), [=](Case& given) { given.tree = tree; });
  }
  grid.add(
      "broadcast one target a node", some_counts, more_shapes, some_sizes,
      changed(broadcast, "", [](Case& given) { given.shares_target = given.single_copy = true; }));
  grid.add("reduce of 5", some_counts, more_shapes, some_sizes,
           changed(some, "", [](Case& given) { given.participant_count = 5; }));
}

/// Blocks of the ranks: `bytes` in all, in the proportions of `share`.
std::vector<std::size_t> divided(std::size_t bytes, std::uint32_t count,
                                 std::size_t (*share)(std::size_t rank, std::size_t count)) {
  std::size_t whole = 0;
  for (std::size_t rank = 0; rank < count; ++rank) whole += share(rank, count);
  std::vector<std::size_t> blocks;
  for (std::size_t rank = 0; rank < count; ++rank)
    blocks.push_back(bytes * share(rank, count) / whole);
  return blocks;
}

void add_blocks(Grid& grid, const std::function<void(const std::string&)>& visit) {
  for (const auto& [name, collective] :
       {std::pair{"allgather", Collective::allgather}, std::pair{"alltoall", Collective::alltoall},
        std::pair{"gather", Collective::gather}, std::pair{"scatter", Collective::scatter}}) {
    grid.add(name, every_count, every_shape, every_size, {{"", {.collective = collective}}});
    grid.add(std::string(name) + " cyclic", some_counts, more_shapes, some_sizes,
             {{"", {.collective = collective}}});
    grid.add(std::string(name) + " read in place", some_counts, more_shapes, some_sizes,
             {{"", {.collective = collective, .single_copy = true}}});
  }
  for (const auto& [name, collective] :
       {std::pair{"gather", Collective::gather}, std::pair{"scatter", Collective::scatter}})
    grid.add(std::string(name) + " at the last", some_counts, more_shapes, some_sizes,
             {{"", {.collective = collective, .root = no_rank}}});
  grid.add("allgather by default 2,2,2", some_counts, more_shapes, some_sizes,
           {{"", {.collective = Collective::allgather, .per_round_by_default = {2, 2, 2}}}});
  grid.add(
      "allgather one target a node", some_counts, more_shapes, some_sizes,
      {{"", {.collective = Collective::allgather, .shares_target = true, .single_copy = true}}});
  grid.add("reduce_scatter", every_count, every_shape, every_size,
           every_reduction(Collective::reduce_scatter));

  const auto decreasing = [](std::size_t rank, std::size_t count) { return count - rank; };
  const auto single = [](std::size_t rank, std::size_t) { return std::size_t{rank == 0}; };
  const auto four = [](std::size_t rank, std::size_t) { return std::size_t{rank % 8 == 1} * 9; };
  for (const Shape& shape : every_shape)
    for (const std::uint32_t count : some_counts)
      for (const auto& [name, share] :
           {std::pair<const char*, std::size_t (*)(std::size_t, std::size_t)>{"decreasing",
                                                                              decreasing},
            {"single", single},
            {"every eighth", four}}) {
        std::string line = std::string("allgatherv ") + name + ", " + shape.name + ", P " +
                           std::to_string(count) + ":";
        if (count < 2) continue;
        for (const std::size_t total : {16 * K, 64 * K, 256 * K, 8 * M}) {
          const Case given{.collective = Collective::allgather,
                           .rank_count = count,
                           .node_of = nodes_of(count, shape.sizes),
                           .block_bytes = divided(total, count, share)};
          line += " " + size_text(total) + " " + choice_of(given) + ";";
        }
        visit(line);
      }
}

void add_others(Grid& grid) {
  using enum Agreement;
  for (const auto& [name, collective] :
       {std::pair{"scan", Collective::scan}, std::pair{"exscan", Collective::exscan}})
    grid.add(name, every_count, every_shape, some_sizes,
             {reducing(collective, sum_double, identical), reducing(collective, sum_int, identical),
              reducing(collective, ordered, identical)});
  std::vector<Variant> stale;
  for (const std::uint32_t slack : {0u, 1u, 4u, 100000u})
    stale = together(stale, changed({reducing(Collective::allreduce_ssp, sum_double, relaxed)},
                                    ("slack " + std::to_string(slack)).c_str(),
                                    [=](Case& given) { given.slack = slack; }));
  grid.add("allreduce_ssp", some_counts, {{"1 a node", {1}}}, some_sizes, stale);
  grid.add("shared ring", some_counts, every_shape, some_sizes,
           changed({reducing(Collective::allreduce, sum_double, identical),
                    reducing(Collective::allreduce, sum_double, reproducible),
                    reducing(Collective::allreduce, ordered, identical)},
                   "", [](Case& given) { given.algorithm = Algorithm::shared_ring; }));
  grid.add("shared ring across lanes", std::array<std::uint32_t, 1>{8}, {{"2 a node", {2}}},
           some_sizes,
           changed({reducing(Collective::allreduce, sum_double, identical)}, "", [](Case& given) {
             given.algorithm = Algorithm::shared_ring;
             given.across = Across::lanes;
           }));
  grid.add("shared ring asked 3,3", std::array<std::uint32_t, 1>{8}, {{"2 a node", {2}}},
           some_sizes,
           changed({reducing(Collective::allreduce, sum_double, identical)}, "", [](Case& given) {
             given.algorithm = Algorithm::shared_ring;
             given.per_round = {3, 3};
           }));
}

}  // namespace

void for_each_line(const std::function<void(const std::string&)>& visit) {
  Grid grid(visit);
  add_allreduces(grid);
  add_domains(grid, visit);
  add_barriers(grid);
  add_rooted(grid);
  add_blocks(grid, visit);
  add_others(grid);
}

}  // namespace tutti::test
