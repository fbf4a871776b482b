// What choose() returns: a schedule for a call, with its price, its plans and an explanation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/core/plan.hpp"
#include "plan/cost/network.hpp"
#include "tune/corrections.hpp"
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
  /// What a measured time is compared with when a race is recorded as a finding: the time of the
  /// events if these have at most `messages_max` messages, else cost(); 0 if the row has no price.
  /// A finding is to record only the error of the machine's model.  The error of cost() against the
  /// events is another one: it is absent where choose() compares events, and differs from topology
  /// to topology.
  plan::Picoseconds expected(std::size_t messages_max) const;
  /// The time of the events if they were followed, else cost().
  plan::Picoseconds known_time() const { return expected(0); }
  /// Returns expected(), and remembers the time of the events if they were followed.
  plan::Picoseconds follow(std::size_t messages_max);

  /// A copy for another network, without the time of the events and without rivals.  It keeps who
  /// shares a port.
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

  /// Another row and variant for the same call.
  Choice with(const Row& row, const Variant& variant) const;
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

}  // namespace tutti::tune
