// choose() filters the rows of the registry for a request, prices what is left, and takes the
// least.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <tutti/types.hpp>
#include <utility>
#include <vector>

#include "plan/allreduce/shared_ring.hpp"
#include "plan/core/plan.hpp"
#include "tune/knowledge.hpp"
#include "tune/registry.hpp"

namespace tutti::tune {

/// A schedule with its parameters, for a request and a topology.  Its plans may be built for every
/// rank.
class Choice {
 public:
  const Row& row() const noexcept { return *row_; }
  const Variant& variant() const noexcept { return variant_; }
  /// The price of the row: a closed form.
  plan::Picoseconds cost() const;
  /// What a finding is compared with: the time of its events if these are not too many, else
  /// cost(); 0 where it has no price.  So findings tell how far the model is off, and not how far a
  /// price is off the model, which is another thing where choose() follows the events, and for
  /// other shapes.
  plan::Picoseconds expected(std::size_t messages_max) const;
  /// Returns expected(), and remembers the time of the events if they were followed.
  plan::Picoseconds follow(std::size_t messages_max);

  /// The same schedule with the prices of another network.
  Choice on(const plan::Network& network) const;

  /// What it is for.  Lives as long as the choice.
  Query query() const noexcept { return {request_, topology_, network_}; }
  plan::Plan plan(Rank self) const;
  /// plan(Rank{0}), which prices look at again and again.
  const plan::Plan& first_plan() const;
  /// Takes first_plan() of a choice that has the same plans, so that it is built once.
  void share_first_plan(const Choice& other) const {
    static_cast<void>(other.first_plan());
    first_plan_ = other.first_plan_;
  }

  /// Tells it apart from every other choice for the same request: "two_partial_dissemination with
  /// 3,2 a round", "8 lanes in 2 sub-blocks, circulant across".  As CollectiveRequest::only.
  std::string name() const;

  /// What was chosen, and by what; the next two rows and the best of each other hierarchy with
  /// their prices; why the others are out: a line each.
  std::string explanation() const;

 private:
  friend class Chooser;
  struct Rival {
    const Row* row;
    Variant variant;
    std::string why_not;  // empty: it was priced
    std::int64_t factor = Corrections::one;
    std::optional<plan::Picoseconds> time = {};  // by the events of its plans, of few ranks
    bool is_finalist = false;                    // one of the few that these decided between
  };

  plan::Picoseconds price_of(const Rival& rival) const;
  /// Each that was considered and has no reason against it, with its price: the cheapest first,
  /// but the finalists before all others, as the choice was between them.
  std::vector<std::pair<plan::Picoseconds, const Rival*>> by_price() const;
  /// `asked`: by the user, which this choice's request differs from if it is made for another one.
  std::string explanation_for(const CollectiveRequest& asked) const;

  CollectiveRequest request_ = {};
  Topology topology_ = {};
  plan::Network network_ = {};
  const Row* row_ = nullptr;
  Variant variant_ = {};
  std::optional<plan::Picoseconds> time_ = {};  // by its events, once known
  std::vector<Rival> rivals_ = {};
  mutable std::shared_ptr<const plan::Plan> first_plan_ = {};  // once somebody asks for it
  std::string machine_ = {};                                   // as words: "on fdr"
  std::string decision_ = {};                                  // as words, where no price decided
  std::vector<std::string> remarks_ = {};                      // what was passed over, a line each
};

/// The choices across nodes that a choice has looked at so far: leaders of groups ask for the same
/// ones as lanes do.
class KnownChoices {
 public:
  /// As choose() by price, for requests that differ from each other in what the schedule across is
  /// asked for alone, and networks in who shares a port.  nullptr: none has the name that is asked
  /// for.
  std::shared_ptr<const Choice> choose(const CollectiveRequest& request, const Topology& topology,
                                       const plan::Network& network);

 private:
  struct Known {
    CollectiveRequest request;
    Topology topology;
    std::int64_t ranks_at_port;
    std::shared_ptr<const Choice> choice;

    bool is_of(const CollectiveRequest& other, const Topology& ranks,
               const plan::Network& network) const;
  };
  std::vector<Known> all_;
};

/// By price alone, on a network.  Pure, so all ranks get the same result.  Throws
/// Error{invalid_argument} for messages per round that do not serve so many ranks, with the nearest
/// that do, and Error{unsupported} for a schedule that cannot do what is asked, with those that
/// can.
Choice choose(const CollectiveRequest& request, const Topology& topology,
              const plan::Network& network);

/// Rules decide, then findings, then prices, unless the request says how it is done.  Throws
/// likewise.
Choice choose(const CollectiveRequest& request, const Topology& topology,
              const Knowledge& knowledge);

/// The choice of that name for that request; nothing if no schedule has that name there, or if it
/// cannot be made.
std::optional<Choice> choice_named(const std::string& name, const CollectiveRequest& request,
                                   const Topology& topology, const Knowledge& knowledge);

/// Everything that a price decided about: all rows and variants that are considered.  A test or a
/// verification compares their times.
std::vector<Choice> rivals(const CollectiveRequest& request, const Topology& topology,
                           const plan::Network& network);

/// Which half of the shared ring a collective is, or both.
plan::RingPhases phases_of(Collective collective) noexcept;

/// The payload that would go along a shared ring, as if all blocks of nodes were as long as the
/// longest.
std::size_t shared_ring_bytes(const CollectiveRequest& request, const Topology& topology);

/// What a shared ring would take of the arena of the first rank of the largest node.
std::uint64_t shared_ring_arena_bytes(const CollectiveRequest& request, const Topology& topology);

/// Whether a flow of chunks would be chosen for a request if all ranks had room for it, so that
/// they have to tell.  All ranks get the same result.  False also for what choose() refuses.
bool depends_on_ring_room(const CollectiveRequest& request, const Topology& topology,
                          const Knowledge& knowledge);

/// `self`'s plan of what is chosen.
inline plan::Plan plan_for(const CollectiveRequest& request, const Topology& topology, Rank self,
                           const plan::Network& network) {
  return choose(request, topology, network).plan(self);
}
inline plan::Plan plan_for(const CollectiveRequest& request, const Topology& topology, Rank self,
                           const Knowledge& knowledge) {
  return choose(request, topology, knowledge).plan(self);
}

}  // namespace tutti::tune
