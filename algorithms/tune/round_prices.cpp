// Rounds of lanes overlap.  The lanes of a node send by turns, each the messages of its next round
// as soon as it has those of the one before, whatever the others do: so all take the longer of what
// the port takes for all of them and what one of them takes for itself.
//
//   3 lanes a, b, c, whose port is busy        and whose port waits for them
//   port of a node   a b c a b c a b c         a b c . . a b c . . a b c
//   round of a       =====|=====|===...        =========|=========|=====...
//
// In one of the rounds the last lane comes after the first: it is the one in which this makes the
// largest difference.
#include <algorithm>
#include <numeric>

#include "tune/rows.hpp"

namespace tutti::tune {

using plan::Picoseconds;

RoundPrices::RoundPrices(const Query& query)
    : network_(query.network),
      share_(network_of(query)),
      ranks_(query.topology.largest_node()),
      nodes_(query.topology.node_count()),
      lanes_(have_lanes_across(query) ? query.network.between.ranks_at_port : 1),
      is_one_node_(nodes_ == 1),
      is_shared_(query.topology.has_shared_nodes()),
      has_runs_(query.topology.has_runs()) {}

const RoundPrices::Terms& RoundPrices::terms_of(std::uint64_t values, std::uint64_t value_bytes,
                                                bool combines) const {
  Terms& terms = terms_[values % terms_.size()];
  if (terms.is_known && terms.values == values && terms.value_bytes == value_bytes &&
      terms.combines == combines)
    return terms;
  const std::uint64_t bytes = values * value_bytes;
  const plan::LogGP& between = network_.between;
  const plan::NodeMemory& inside = network_.inside;
  const auto count = static_cast<Picoseconds>(values);
  terms = {.is_known = true, .combines = combines, .values = values, .value_bytes = value_bytes};
  terms.one = round_cost(share_, 1, values, value_bytes, combines);
  terms.further = round_cost(share_, 2, values, value_bytes, combines) - terms.one;
  if (lanes_ > 1) {
    const plan::LogGP one = of_one_lane(share_);
    terms.first = round_cost(one, 1, values, value_bytes, combines);
    terms.next = round_cost(one, 2, values, value_bytes, combines) - terms.first;
  }
  terms.store = inside.store_time(bytes);
  terms.taken = inside.receive_overhead + (combines ? count * between.work_time(value_bytes) : 0);
  const Picoseconds work = combines ? count * between.work + between.work_per_byte.of(bytes) : 0;
  terms.busy = between.receive_overhead + work;
  terms.last = between.travel_time(bytes) + terms.busy;
  terms.own = between.rank_gap + terms.busy;
  terms.port = between.port_time(bytes);
  return terms;
}

Picoseconds RoundPrices::in_node(std::uint32_t messages, const Terms& terms) const {
  const auto count = static_cast<Picoseconds>(messages);
  return count * terms.store + std::max(network_.inside.latency + terms.taken, count * terms.taken);
}

Picoseconds RoundPrices::of(std::uint32_t messages, std::uint64_t values, std::uint64_t value_bytes,
                            bool combines) const {
  const Terms& terms = terms_of(values, value_bytes, combines);
  if (is_one_node_) return in_node(messages, terms);
  return std::max(terms.one + (Picoseconds{messages} - 1) * terms.further,
                  Picoseconds{messages} * terms.own);
}

Picoseconds RoundPrices::ahead(const plan::Round& round, std::uint64_t values,
                               std::uint64_t value_bytes, bool combines) const {
  if (lanes_ > 1) {
    const Terms& terms = terms_of(values, value_bytes, combines);
    return std::max(alone(round.messages, terms), Picoseconds{round.messages} * terms.port);
  }
  if (is_one_node_ || !is_shared_) return of(round.messages, values, value_bytes, combines);
  // Messages that stay in the node, of one of its ranks at most, and of all that leave it.
  const std::uint64_t messages = round.messages, length = round.length;
  std::uint64_t stay = 0, leave = 0;
  if (has_runs_) {
    stay = std::min(messages, (ranks_ - 1) / length);
    leave = length * (stay * (stay + 1) / 2) + (messages - stay) * ranks_;
  } else {
    stay = messages / (nodes_ / std::gcd(length, nodes_));
    leave = (messages - stay) * ranks_;
  }
  const Terms& terms = terms_of(values, value_bytes, combines);
  if (leave == 0) return in_node(static_cast<std::uint32_t>(stay), terms);
  const auto behind = static_cast<Picoseconds>(leave - 1);
  const auto others = static_cast<Picoseconds>(messages - 1);
  return static_cast<Picoseconds>(stay) * terms.store +
         std::max(terms.last + std::max(behind * terms.port,
                                        others * std::max(network_.between.rank_gap, terms.busy)),
                  static_cast<Picoseconds>(messages - stay) * terms.own);
}

Picoseconds RoundPrices::lag(std::uint32_t messages, std::uint64_t values,
                             std::uint64_t value_bytes, bool combines) const {
  if (lanes_ == 1) return 0;
  const Terms& terms = terms_of(values, value_bytes, combines);
  return lag_of_lanes(lanes_, Picoseconds{messages} * terms.port, alone(messages, terms));
}

}  // namespace tutti::tune
