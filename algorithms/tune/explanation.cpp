#include "tune/explanation.hpp"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "tune/choose.hpp"
#include "tune/names.hpp"
#include "tune/prices.hpp"

namespace tutti::tune {
namespace {

/// Lines after the first one.
std::string indented(std::string text) {
  for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1))
    text.insert(at + 1, "  ");
  return text;
}

}  // namespace

std::string microseconds(plan::Picoseconds price) {
  return in_thousands(price / 1000, "us");
}

std::string words_of(const Machine& machine) {
  const bool is_measured = machine[Parameter::latency].origin == Origin::measured ||
                           machine[Parameter::inside_latency].origin == Origin::measured;
  return (is_measured ? "as measured on " : "on ") + machine.name;
}

std::string Choice::explanation() const {
  return explanation_for(request_);
}

std::string Choice::explanation_for(const CollectiveRequest& asked) const {
  std::vector<const Rival*> priced;
  const Rival* chosen = nullptr;
  for (const auto& [price, rival] : by_price())
    if (rival->row->cost != nullptr) priced.push_back(rival);
  for (const Rival& rival : rivals_)
    if (chosen == nullptr && rival.why_not.empty() && rival.row == row_ &&
        described(*row_, rival.variant) == described(*row_, variant_))
      chosen = &rival;
  const auto price_text = [&](const Rival& rival) {
    if (rival.row->cost == nullptr) return std::string("without a price");
    const plan::Picoseconds price = price_of(rival);
    std::string text = microseconds(price);
    if (rival.factor != Corrections::one) {
      const std::int64_t hundredths =
          (rival.factor * 100 + Corrections::one / 2) / Corrections::one;
      const std::string fraction = std::to_string(hundredths % 100);
      text += " (corrected by " + std::to_string(hundredths / 100) + "." +
              std::string(2 - fraction.size(), '0') + fraction + ", by races nearby)";
    }
    return text;
  };
  std::string text = "chosen: " + described(*row_, variant_);
  if (!decision_.empty())
    text += ", " + decision_;
  else if (request_.collective != Collective::barrier && row_->algorithm != Algorithm::automatic &&
           row_->algorithm == asked.algorithm)
    text += ", which is asked for";
  else if (priced.size() < 2 && request_.algorithm == asked.algorithm)
    text += ", the only one considered";
  else if (chosen != nullptr)
    text += ", " + price_text(*chosen) + (machine_.empty() ? "" : " " + machine_);
  if (priced_bytes(request_.bytes()) < request_.bytes())
    text += "; prices are those of " + std::to_string(priced_bytes(request_.bytes())) + " bytes";
  if (variant_.across) text += "\n  across: " + indented(variant_.across->explanation_for(asked));
  std::size_t next = 0;
  std::set<const Row*> rows;
  std::set<Hierarchy> hierarchies{row_->hierarchy};
  for (const Rival* rival : priced) {
    const bool is_of_interest =
        (next < 2 && rival->row != row_) || !hierarchies.contains(rival->row->hierarchy);
    if (!is_of_interest || !rows.insert(rival->row).second) continue;
    ++next;
    hierarchies.insert(rival->row->hierarchy);
    text +=
        "\n  next: " + described(*rival->row, rival->variant) +
        (rival->variant.across
             ? ", " + described(rival->variant.across->row(), rival->variant.across->variant()) +
                   " across"
             : "") +
        ", " + price_text(*rival);
  }
  for (const Rival& rival : rivals_)
    if (!rival.why_not.empty() && rival.why_not != another_is_asked_for)
      text += std::string("\n  not ") + rival.row->name + ": " + rival.why_not;
  for (const std::string& remark : remarks_) text += "\n  " + remark;
  return text;
}

}  // namespace tutti::tune
