#include "runtime/watched_exchange.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>

namespace tutti::runtime {
namespace {

/// Looking at a process without a descriptor takes three system calls, so one look goes through a
/// part of them, and so many looks go through all.  There are ten looks in the detection bound.
constexpr std::size_t looks_for_all = 4;

}  // namespace

WatchedExchange::WatchedExchange(Exchange& given, std::uint64_t nonce) : given_(given) {
  try {
    offered_ = std::make_unique<shm::OfferedBoard>(nonce, given.rank_count());
  } catch (const Error&) {
    // There is no memory.  Another rank may have some; else the ranks of this host are as those of
    // different hosts.
  }
}

WatchedExchange::~WatchedExchange() {
  if (board_) board_->set_state(self(), State::left);
}

WatchCard WatchedExchange::card() const noexcept {
  const bootstrap::ProcessCard process = bootstrap::this_process();
  WatchCard card{.started = process.started,
                 .clock_namespace = static_cast<std::uint32_t>(process.clock_namespace)};
  if (!offered_) return card;
  card.board_nonce = offered_->card().nonce;
  card.board_descriptor = offered_->card().descriptor;
  return card;
}

void WatchedExchange::watch(std::span<const WatchedRank> all, bootstrap::ProcessWatches& watches) {
  const std::size_t own = index_of(self());
  std::optional<std::size_t> owner;  // of the board
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const WatchedRank& one = all[rank];
    if (!bootstrap::share_process_ids(all[own].host, one.host)) continue;
    if (!owner && one.card.board_nonce != 0) owner = rank;
    // Ranks that are threads of this process end with it.
    if (one.process == all[own].process) continue;
    watched_.push_back({Rank{static_cast<std::uint32_t>(rank)},
                        watches.of({.id = one.process,
                                    .started = one.card.started,
                                    .clock_namespace = one.card.clock_namespace})});
  }
  std::stable_partition(watched_.begin(), watched_.end(),
                        [](const Watched& watched) { return watched.process->descriptor() >= 0; });
  for (const Watched& watched : watched_)
    if (const int descriptor = watched.process->descriptor(); descriptor >= 0)
      descriptors_.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
  try {
    if (owner == own)
      board_.emplace(offered_->mapping(), rank_count());
    else if (owner)
      board_.emplace(shm::map_offered({.nonce = all[*owner].card.board_nonce,
                                       .bytes = shm::IncidentBoard::bytes_for(rank_count()),
                                       .process = all[*owner].process,
                                       .descriptor = all[*owner].card.board_descriptor}),
                     rank_count());
  } catch (const Error&) {
    // The kernel does not permit it, or the owner has just died.
  }
  if (owner != own) offered_.reset();
  if (board_) board_->set_state(self(), State::present);
}

bool WatchedExchange::has_died(const Watched& watched) noexcept {
  // In this order: it may leave and end between two looks.
  return watched.process->has_ended() && board_->state_of(watched.rank) == State::present;
}

bool WatchedExchange::has_ended(Rank rank) noexcept {
  return std::any_of(watched_.begin(), watched_.end(), [&](const Watched& watched) {
    return watched.rank == rank && watched.process->has_ended();
  });
}

Rank WatchedExchange::find_dead() noexcept {
  if (!descriptors_.empty() && ::poll(descriptors_.data(), descriptors_.size(), 0) > 0)
    for (std::size_t i = 0; i < descriptors_.size(); ++i) {
      if ((descriptors_[i].revents & POLLIN) == 0) continue;
      if (has_died(watched_[i])) return watched_[i].rank;
      descriptors_[i].fd = -1;  // it left before; poll() passes over it from now on
    }
  const std::size_t others = watched_.size() - descriptors_.size();
  for (std::size_t looks = (others + looks_for_all - 1) / looks_for_all; looks > 0; --looks) {
    next_without_descriptor_ = (next_without_descriptor_ + 1) % others;
    const Watched& watched = watched_[descriptors_.size() + next_without_descriptor_];
    if (has_died(watched)) return watched.rank;
  }
  return no_rank;
}

Incident WatchedExchange::incident() noexcept {
  if (const Incident known = given_.incident(); known.kind != Incident::Kind::none) return known;
  if (!board_) return {};
  if (const Incident known = board_->incident(); known.kind != Incident::Kind::none) return known;
  const Rank dead = find_dead();
  if (dead == no_rank) return {};
  announce({.kind = Incident::Kind::died, .rank = dead});
  return board_->incident();
}

bool WatchedExchange::has_left(Rank rank) noexcept {
  if (board_) {
    const State state = board_->state_of(rank);
    if (state != State::absent) return state == State::left;
  }
  return given_.has_left(rank);
}

bool WatchedExchange::explain(const shm::IncidentBoard::Text& why) noexcept {
  return !board_ || board_->set_text(self(), why);
}

shm::IncidentBoard::Text WatchedExchange::explanation() noexcept {
  const Incident known = incident();
  if (!board_ || known.kind != Incident::Kind::aborted || known.rank == no_rank) return {};
  return board_->text_of(known.rank);
}

void WatchedExchange::announce(Incident incident) noexcept {
  // Another rank of this host may have announced one that this rank knows from the board, and is
  // now about to give up because of it.  The side channel might hear of this rank first.
  if (board_) {
    board_->announce(incident);
    if (const Incident first = board_->incident(); first.kind != Incident::Kind::none)
      incident = first;
  }
  given_.announce(incident);
}

}  // namespace tutti::runtime
