#include "tune/choice.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tune/names.hpp"
#include "tune/plan_time.hpp"

namespace tutti::tune {

Choice Choice::with(const Row& row, const Variant& variant) const {
  Choice other;
  other.request_ = request_;
  other.topology_ = topology_;
  other.network_ = network_;
  other.machine_ = machine_;
  other.row_ = &row;
  other.variant_ = variant;
  return other;
}

Choice Choice::on(const plan::Network& network) const {
  Choice other = with(*row_, variant_);
  other.network_ = network;
  other.network_.between.ranks_at_port = network_.between.ranks_at_port;
  if (variant_.across) {
    // Prices look at its plan, which is the same on all networks.
    static_cast<void>(variant_.across->first_plan());
    other.variant_.across = std::make_shared<const Choice>(variant_.across->on(network));
  }
  other.first_plan_ = first_plan_;
  return other;
}

plan::Picoseconds Choice::cost() const {
  return row_->cost == nullptr ? 0 : row_->cost(query(), variant_);
}

plan::Picoseconds Choice::price_of(const Rival& rival) const {
  return corrected(rival.time ? *rival.time : rival.row->cost(query(), rival.variant),
                   rival.factor);
}

std::vector<std::pair<plan::Picoseconds, const Choice::Rival*>> Choice::by_price() const {
  std::vector<std::pair<plan::Picoseconds, const Rival*>> priced;
  for (const Rival& rival : rivals_)
    if (rival.why_not.empty()) priced.emplace_back(0, &rival);
  if (priced.size() < 2) return priced;  // see take_cheapest()
  for (auto& [price, rival] : priced) price = price_of(*rival);
  std::stable_sort(priced.begin(), priced.end(), [](const auto& left, const auto& right) {
    const bool is_finalist = left.second->is_finalist;
    if (is_finalist != right.second->is_finalist) return is_finalist;
    return left.first < right.first;
  });
  return priced;
}

plan::Picoseconds Choice::expected(std::size_t messages_max) const {
  if (row_->cost == nullptr) return 0;
  if (time_) return *time_;
  if (messages_followed(query(), *row_, variant_, first_plan()) <= messages_max)
    return followed_time(query(), *row_, variant_, first_plan()).value_or(cost());
  return cost();
}

plan::Picoseconds Choice::follow(std::size_t messages_max) {
  if (row_->cost == nullptr) return 0;
  if (!time_ && messages_followed(query(), *row_, variant_, first_plan()) <= messages_max)
    time_ = followed_time(query(), *row_, variant_, first_plan());
  return time_ ? *time_ : cost();
}

plan::Plan Choice::plan(Rank self) const {
  return row_->build(query(), variant_, self);
}

const plan::Plan& Choice::first_plan() const {
  if (!first_plan_) first_plan_ = std::make_shared<const plan::Plan>(plan(Rank{0}));
  return *first_plan_;
}

std::string Choice::name() const {
  return full_name(*row_, variant_);
}

}  // namespace tutti::tune
