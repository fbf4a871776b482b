#include "bootstrap/probes.hpp"

#include <algorithm>
#include <map>
#include <string>

namespace tutti::bootstrap {

using Finding = Probe::Finding;

Probes::Probes(std::span<const Address> places, std::uint32_t own, const Patience& patience,
               std::span<const std::optional<Timeout>> silent_since) {
  std::map<std::string, std::uint32_t> first_at;  // address
  ranks_.reserve(places.size());
  for (std::uint32_t rank = 0; rank < places.size(); ++rank)
    ranks_.push_back({.probe = Probe(places[rank], places[own], patience,
                                     silent_since.empty() ? std::nullopt : silent_since[rank]),
                      .host = first_at.emplace(text_of(places[rank]), rank).first->second,
                      .turn_ends = Deadline::after(Timeout::zero(), Timeout::zero())});
}

void Probes::look_for(std::uint32_t rank, bool wanted) noexcept {
  Probed& probed = ranks_[rank];
  if (probed.is_wanted == wanted) return;
  probed.is_wanted = wanted;
  if (!wanted) probed.probe.reset();
}

std::vector<std::uint32_t> Probes::begin(Timeout now) {
  std::vector<std::uint32_t> gone;
  if (paused_until_ && !paused_until_->passed(now)) return gone;
  paused_until_.reset();
  end_turns(now);
  std::size_t open = 0;
  unanswered_.assign(ranks_.size(), 0);
  for (const Probed& probed : ranks_) {
    if (!probed.probe.is_open()) continue;
    ++open;
    if (!probed.probe.is_connected()) ++unanswered_[probed.host];
  }
  waiting_ = 0;
  const auto count = static_cast<std::uint32_t>(ranks_.size());
  const std::uint32_t first = next_;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t rank = (first + i) % count;
    Probed& probed = ranks_[rank];
    if (!probed.is_wanted || !probed.probe.is_due(now)) continue;
    if (open >= probes_open_max) {
      if (waiting_ == 0) next_ = rank;
      ++waiting_;
      continue;
    }
    if (unanswered_[probed.host] >= probes_unanswered_max) continue;
    leave_out(rank, probed.probe.begin(now), gone);
    if (probed.probe.is_open()) {
      shortage_ = 0;
      ++open;
      ++unanswered_[probed.host];
    } else if (is_own_shortage(probed.probe.error())) {
      shortage_ = probed.probe.error();
      paused_until_ = Deadline::after(probes_pause, now);
      next_ = rank;
      break;
    }
  }
  return gone;
}

/// Probes that have been connected for a while make room for others that wait.  Turns are not
/// shorter than that, because the kernel of a late rank keeps each closed connection in its queue.
void Probes::end_turns(Timeout now) noexcept {
  for (Probed& probed : ranks_) {
    if (waiting_ == 0) return;
    if (!probed.probe.is_connected() || !probed.turn_ends.passed(now)) continue;
    probed.probe.reset();
    --waiting_;
  }
}

void Probes::await(std::vector<pollfd>& polled) {
  polled_.clear();
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!ranks_[rank].probe.is_open()) continue;
    polled.push_back(ranks_[rank].probe.awaited());
    polled_.push_back(rank);
  }
}

Timeout Probes::sleep_max(Timeout now) const noexcept {
  Timeout sleep = wait_forever;
  if (paused_until_) sleep = paused_until_->remaining(now);
  for (const Probed& probed : ranks_) {
    if (!probed.is_wanted) continue;
    // Without a connection, a probe waits for the end of its pause; if it is due, for a place that
    // others have.
    if (probed.probe.is_open() || (!paused_until_ && !probed.probe.is_due(now)))
      sleep = std::min(sleep, probed.probe.sleep_max(now));
    if (waiting_ != 0 && !paused_until_ && probed.probe.is_connected())
      sleep = std::min(sleep, probed.turn_ends.remaining(now));
  }
  return sleep;
}

std::vector<std::uint32_t> Probes::look(std::span<const pollfd> polled, Timeout now) {
  std::vector<std::uint32_t> gone;
  std::size_t position = 0;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    short events = 0;
    if (position < polled_.size() && polled_[position] == rank) events = polled[position++].revents;
    Probed& probed = ranks_[rank];
    if (!probed.is_wanted) continue;
    const bool was_connected = probed.probe.is_connected();
    leave_out(rank, probed.probe.look(events, now), gone);
    if (!was_connected && probed.probe.is_connected())
      probed.turn_ends = Deadline::after(probe_turn, now);
  }
  return gone;
}

void Probes::leave_out(std::uint32_t rank, Finding finding, std::vector<std::uint32_t>& gone) {
  if (finding == Finding::undecided) return;
  const auto leave_out_one = [&](std::uint32_t one) {
    look_for(one, false);
    gone.push_back(one);
  };
  if (finding == Finding::gone) return leave_out_one(rank);
  for (std::uint32_t other = 0; other < ranks_.size(); ++other)
    if (ranks_[other].is_wanted && ranks_[other].host == ranks_[rank].host) {
      ranks_[other].has_vanished = true;
      leave_out_one(other);
    }
}

std::vector<std::optional<Timeout>> Probes::silent_since() const {
  std::vector<std::optional<Timeout>> since;
  since.reserve(ranks_.size());
  for (const Probed& probed : ranks_)
    since.push_back(probed.is_wanted ? probed.probe.silent_since() : std::nullopt);
  return since;
}

std::vector<bool> Probes::vanished() const {
  std::vector<bool> vanished;
  vanished.reserve(ranks_.size());
  for (const Probed& probed : ranks_) vanished.push_back(probed.has_vanished);
  return vanished;
}

std::size_t Probes::give_back(std::size_t count, Timeout now) noexcept {
  std::size_t closed = 0;
  for (Probed& probed : ranks_) {
    if (closed == count) break;
    if (!probed.probe.is_open()) continue;
    probed.probe.reset();
    ++closed;
  }
  if (!ranks_.empty()) paused_until_ = Deadline::after(probes_pause, now);
  return closed;
}

}  // namespace tutti::bootstrap
