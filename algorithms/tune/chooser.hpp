// Makes one choice by price.  choose() adds rules and findings, and candidates() makes several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/cost/network.hpp"
#include "tune/choose.hpp"
#include "tune/knowledge.hpp"
#include "tune/names.hpp"
#include "tune/plan_time.hpp"

namespace tutti::tune {

/// Whether the call or its context says how it is done.
bool says_how(const CollectiveRequest& request);

/// A cache of the choices for the schedule across nodes.  It is filled while one choice is made,
/// because several candidates (lanes and leaders of groups) ask for the same ones.
class KnownChoices {
 public:
  /// Returns what choose(request, topology, network) returns, from the cache if possible, or
  /// nullptr if no choice has the name request.only.  All calls on one cache must pass requests
  /// that differ only in the fields that is_of() compares, and networks that differ only in
  /// ranks_at_port.
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

/// Why a row is out; empty: it is priced.  What is cheap to find out comes first.
/// `named`: the row that is asked for, or nullptr.
std::string why_not(const Row& row, const Query& query, const Row* named);

/// One choice by price, among all rows or those that give the bits of the canonical tree.  The
/// request, the topology and the knowledge have to outlive it.
class Chooser {
 public:
  Chooser(const CollectiveRequest& request, const Topology& topology, const plan::Network& network);
  Chooser(const CollectiveRequest& request, const Topology& topology, const Knowledge& knowledge);

  /// Uses this cache of choices across nodes.
  void know(KnownChoices& known) { known_ = &known; }
  void only_canonical() { only_canonical_ = true; }
  /// How many messages may be followed: `of_nodes` by candidates of which only one node is
  /// followed, because all nodes do the same, and `of_all` by those of which all ranks are.  The
  /// former need few messages, and must not be left without any by the latter.
  struct Budget {
    std::size_t of_all = messages_followed_max, of_nodes = messages_followed_max / 2;
  };
  /// Uses this budget instead of its own.
  void share(Budget& budget) { budget_ = &budget; }

  Choice choose() const;

  /// Nothing where it is refused.
  std::optional<Choice> try_choose(std::string* why = nullptr) const;

  static void decide(Choice& choice, std::string decision) {
    choice.decision_ = std::move(decision);
  }
  static void remark(Choice& choice, std::string text) {
    choice.remarks_.push_back(std::move(text));
  }
  static std::vector<std::pair<plan::Picoseconds, const Choice::Rival*>> by_price(
      const Choice& choice) {
    return choice.by_price();
  }
  static Choice with_vector(const Choice& choice, const plan::PerRound& vector);
  static Choice with_latency(const Choice& choice, std::uint32_t latency);
  static Choice with(const Choice& choice, const Choice::Rival& rival);
  /// Takes another row and variant for the same call.
  static void replace(Choice& choice, const Choice& by) {
    choice.row_ = by.row_;
    choice.variant_ = by.variant_;
    choice.time_ = by.time_;
    choice.first_plan_ = nullptr;
  }
  struct Times {
    plan::Picoseconds found, usual;
    std::int64_t factor_of_found, factor_of_usual;  // by which findings correct them
    bool are_followed;                              // by events, and not prices
  };
  static std::optional<Times> times_of(Choice& found, Choice& usual, const Corrections& corrections,
                                       std::size_t budget);

 private:
  static void add_rivals(Choice& choice, const Query& query, const Row& row, const Row* named,
                         const NameParts& only, bool only_canonical);
  void take_cheapest(Choice& choice) const;
  using Prices = std::vector<std::pair<plan::Picoseconds, Choice::Rival*>>;
  void follow(const Choice& choice, Prices& prices) const;
  static plan::Picoseconds weighed(const Choice& choice, const Choice::Rival& rival);

  const CollectiveRequest& request_;
  const Topology& topology_;
  int faster_by_bits_;  // than the machine: its prices would overflow
  plan::Network network_;
  std::string machine_ = {};
  const Corrections* corrections_ = nullptr;
  bool only_canonical_ = false;
  bool follows_ = false;           // the events of few ranks decide between the cheapest
  KnownChoices* known_ = nullptr;  // nullptr: a choice has its own
  Budget* budget_ = nullptr;       // shared with other choices; nullptr: a choice has its own
};

/// The name of `choice` if it had these messages in each round, or if its tree over the nodes had
/// that latency.
std::string name_with_vector(const Choice& choice, const plan::PerRound& vector);
std::string name_with_latency(const Choice& choice, std::uint32_t latency);

/// The restriction on a choice if a tuning file must not change the bits of results.
struct Kept {
  /// The choice that is made without the file.  Empty if the bits of results may change.
  std::optional<Choice> untuned = {};
  /// Whether `untuned` gives the bits of the canonical tree.  If so, any other choice that gives
  /// these bits may replace it.
  bool is_canonical = false;

  /// Whether `untuned` has to be taken, as no other choice is known to give the same bits.
  bool decides() const noexcept { return untuned && !is_canonical; }
};
Kept kept_bits(const CollectiveRequest& request, const Topology& topology,
               const Knowledge& knowledge);

}  // namespace tutti::tune
