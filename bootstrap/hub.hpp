// The relay of a TCP exchange: one thread of rank 0, asleep until there is something to relay.
// Every rank is a client, rank 0 too.  Anybody may connect, so a connection counts for nothing
// until it has proved that it knows the secret (handshake.hpp): before that it may neither send
// much, nor stay long, nor keep others waiting.  Only the hub decides which incident was the first,
// so all ranks receive the same one.
//
// A hub may outlive its exchange (keep_serving()).  So where it is a side channel beside another
// exchange, rank 0 may leave first without waiting, and the other ranks still hear of each other's
// deaths as long as the process of rank 0 lives.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/socket.hpp"
#include "bootstrap/unshared_descriptor.hpp"
#include "tutti/timeout.hpp"

namespace tutti::bootstrap {

struct HubOptions {
  std::uint32_t rank_count = 1;
  std::string secret;
  Timeout linger{};  // how long the destructor waits at most
  /// The destructor does not wait for ranks that still need the hub.  They get no more news, and do
  /// not take that for an incident.  keep_serving() lets the hub serve on without an owner instead.
  bool ends_quietly = false;
  /// Where each rank listens, in a meeting of those that are still there (reunion.hpp): the hub
  /// connects to the ranks that have not come.  A rank whose port refuses that, or says something
  /// unasked, is gone for good, as is one whose host does not answer; the others are waited for.
  /// When each rank has come or is gone, those that have come are numbered from 0.  Empty: all
  /// ranks have to come.
  std::vector<Address> places = {};
  /// The rank whose hub it is.  Not 0 only in such a meeting, where the ranks below it are gone.
  std::uint32_t own_rank = 0;
  /// By rank: who is known to be gone when such a meeting begins.  Empty: nobody.
  std::vector<bool> is_gone = {};
  Patience patience = {};
  /// By rank, or empty: since when nothing has answered, as an earlier hub has found.
  std::vector<std::optional<Timeout>> silent_since = {};
};

/// What a hub has found of the hosts of ranks that have not come to such a meeting, by rank.  Both
/// are empty once all have met.
struct Silences {
  std::vector<std::optional<Timeout>> since = {};  // nothing has answered
  std::vector<bool> vanished = {};                 // with its host
};

/// Bytes of the exchanges so far, which are what grows with their number: not those of joining and
/// of news.
struct Relayed {
  std::uint64_t received = 0, sent = 0;
};

class Hub {
 public:
  /// Serves `listener` from now on.  Throws Error{system}.
  Hub(UnsharedDescriptor listener, const HubOptions& options);
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;
  /// Relays, unless it ends quietly, until rank 0's client has said goodbye and all others have
  /// left or died, or an incident has reached them, but no longer than `linger`.  Ranks that are
  /// still there then receive the news that rank 0 has aborted, because there will be no more news.
  /// If not all ranks have met, it does not linger.  It takes up to half a second more, for the
  /// last frames to arrive.  In a forked child it does nothing.
  ~Hub();

  /// Any thread may ask.
  Relayed relayed() const noexcept;
  /// Returns at once; from then on the hub has no owner.  It serves until all ranks have left or
  /// died, an incident has reached them, or this process ends.  In a forked child it does nothing.
  static void keep_serving(std::unique_ptr<Hub> hub) noexcept;
  /// Ends as the destructor does, and says what is worth knowing in the next meeting.  Not in a
  /// forked child.
  Silences end();

 private:
  class Kept;  // hubs that serve on without an owner
  void stop() noexcept;
  void stop_and_join() noexcept;
  class Service;  // the thread and everything that it owns
  UnsharedDescriptor stop_;
  std::unique_ptr<Service> service_;
};

}  // namespace tutti::bootstrap
