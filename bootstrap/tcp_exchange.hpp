// A rank's end of the TCP exchange: one connection to rank 0's hub, over which contributions go
// out, and results and news come in.  The caller's thread does all the work; nothing happens
// between calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/frame.hpp"
#include "bootstrap/hub.hpp"
#include "bootstrap/socket.hpp"
#include "bootstrap/unshared_descriptor.hpp"
#include "bootstrap/wire.hpp"
#include "tutti/bootstrap.hpp"
#include "tutti/exchange.hpp"
#include "tutti/status.hpp"

namespace tutti::bootstrap {

class TcpExchange final : public Exchange {
 public:
  /// What becomes of ranks that are still there when rank 0 leaves.
  enum class End : std::uint8_t {
    awaited,  // it waits for them in its destructor
    quiet,    // they get news as long as its process lives; all ranks have to say so
  };
  /// Collective.  Returns when all ranks have met; throws Error as tcp_exchange() does.  Rank 0 may
  /// bring a socket that listens at the rendezvous already.
  explicit TcpExchange(const TcpOptions& options, UnsharedDescriptor listener = {},
                       End end = End::awaited);
  /// Says goodbye.  With End::awaited rank 0 then waits, at most TcpOptions::timeout, until the
  /// others no longer need the hub: until all have left or died, or an incident has reached them.
  /// With End::quiet its hub serves on without it (Hub::keep_serving()).
  ~TcpExchange() override;

  /// A meeting of the ranks that are still there (reunion.hpp), at the hub of one of them.
  struct Meeting {
    Rank self;
    std::span<const Address> places;  // where each rank listens
    std::string secret;
    std::vector<bool> is_gone;  // by rank: who is known to be gone
    Rank leader;                // whose hub it is
    Timeout linger;             // of the destructor of its first rank
    Patience patience = {};
    /// By rank, or empty: since when nothing has answered, as far as this is known from before.
    std::vector<std::optional<Timeout>> silent_since = {};
  };
  struct Attended {
    std::unique_ptr<TcpExchange> exchange;  // null: the next two say why, or time is up
    bool leader_is_gone = false;            // for good; then it is another one's turn
    /// Since when the leader, which is on another host, has not answered: its host may have
    /// vanished.
    std::optional<Timeout> leader_silent_since = {};
    bool leader_has_answered = false;  // before that
    std::vector<Rank> present = {};    // with it: who has come, in the order of their ranks in it
    std::vector<Rank> missing = {};    // when time is up: who has not, at least one
    std::string remark = {};           // likewise: what else is known, or empty
    Silences silences = {};            // likewise: what the leader's hub has found
  };
  /// Collective among the ranks that are still there.  The leader brings its listener.  Throws
  /// Error{system}, on the leader also if it cannot connect to itself, and Error{peer_failed} if
  /// the leader goes on without this rank.
  static Attended attend(const Meeting& meeting, Deadline deadline,
                         UnsharedDescriptor listener = {});

  Rank self() const noexcept override { return self_; }
  std::uint32_t rank_count() const noexcept override { return rank_count_; }
  void allgather(std::span<const std::byte> mine, std::span<std::byte> all,
                 Timeout timeout) override;
  bool allgather_unless_equal(std::span<const std::byte> mine, std::span<std::byte> all,
                              Timeout timeout) override;
  void swap(std::span<const Rank> partners, std::size_t record_bytes,
            std::span<const std::byte> mine, std::span<std::byte> theirs, Timeout timeout) override;
  void barrier(Timeout timeout) override;
  Incident incident() noexcept override;
  bool has_left(Rank rank) noexcept override;
  void announce(Incident incident) noexcept override;
  /// What rank 0 has relayed so far; nothing on the other ranks.
  Relayed relayed() const noexcept { return hub_ ? hub_->relayed() : Relayed{}; }

 private:
  struct Call;  // one allgather or barrier
  void join(const TcpOptions& options, UnsharedDescriptor listener);
  enum class Reply : std::uint8_t {
    welcome,
    refusal,
    gave_up,
    missing,
    impostor,
    foreign,
    end,      // of the connection, without a message
    silence,  // too long after the deadline
  };
  /// Begins joining over the new connection in socket_.
  void say_hello();
  Reply await_reply(Deadline deadline);
  explicit TcpExchange(const Meeting& meeting);
  /// Without the exchange, which is this one.
  Attended join(const Meeting& meeting, Deadline deadline, UnsharedDescriptor listener);
  bool count_anew(std::span<const std::byte> payload);
  bool await_welcome(const TcpOptions& options, Deadline deadline);
  [[noreturn]] void throw_refusal(const TcpOptions& options) const;
  std::string remark_on_shortage() const;
  void check_usable(const char* name) const;
  bool exchange(const char* name, wire::FrameType type, std::span<const std::byte> mine,
                std::span<std::byte> all, Timeout timeout);
  bool take_letters(std::span<const std::byte> payload);
  void await_gathered(const Call& call);
  void fail_if_gone(const Call& call);
  [[noreturn]] void fail(const Call& call, ErrorCode code, const std::string& text);
  std::vector<Rank> left_among(std::span<const Rank> ranks) const;

  // The room that say_last() needs at most: an incident and the goodbye.
  static constexpr std::size_t last_words_bytes =
      2 * sizeof(wire::FrameHeader) + sizeof(wire::News);
  void say(wire::FrameType type, std::span<const std::byte> front,
           std::span<const std::byte> rest = {});
  void say_last(wire::FrameType type, std::span<const std::byte> front) noexcept;
  void ask(std::uint64_t sequence);
  void flush() noexcept;
  void receive();
  void receive_what_fits() noexcept;
  void handle(const Frame& frame);
  bool shake_hands(const Frame& frame);
  void await_news(Deadline deadline);
  void lose_hub() noexcept;
  void say_goodbye() noexcept;

  std::unique_ptr<Hub> hub_;  // on rank 0; the first member, because it outlives its client
  End end_;
  Rank self_;
  std::uint32_t rank_count_;

  UnsharedDescriptor socket_;  // empty: the hub is gone, or this is a forked child
  FrameReader reader_;
  std::vector<std::byte> outbox_;  // frames that are not sent yet, so that none is cut short
  std::size_t outbox_sent_ = 0;

  // The handshake of the connection under way.
  std::string secret_;  // until all have met
  wire::Hello hello_;
  std::optional<wire::Challenge> challenge_;
  bool trusts_hub_ = false;  // because it knows the secret, too

  // What the hub has sent.
  int ended_by_ = 0;       // the errno value of what has ended the connection; 0: its other end
  bool foreign_ = false;   // something that no hub sends
  bool impostor_ = false;  // a wrong proof
  bool welcome_ = false;
  bool is_meeting_again_ = false;     // of those that are still there
  std::vector<Rank> survivors_ = {};  // who they are, once welcome there
  std::optional<wire::Refusal> refusal_;
  std::optional<std::vector<Rank>> gave_up_;
  std::optional<std::vector<Rank>> answer_;  // to the one query under way in this step
  std::uint32_t shortage_ = 0;               // with either: as in wire::Missing
  std::optional<wire::Disagreement> disagreement_;
  Incident incident_;
  std::vector<bool> left_;        // by rank
  std::uint32_t left_count_ = 0;  // ranks in left_

  // The step under way.
  std::uint64_t sequence_ = 0;
  bool awaiting_ = false;
  std::span<std::byte> all_;  // the caller's buffer
  std::size_t mine_bytes_ = 0;
  std::size_t offset_ = 0;
  bool is_equal_ = false;  // the answer was that all ranks have the same
  // The partners of a swap, and what they have sent too early.
  std::span<const Rank> partners_;
  std::vector<std::uint32_t> position_;                // in partners_, by rank
  std::size_t record_bytes_ = 0;                       // 0: this step is about something else
  std::vector<std::vector<std::byte>> early_letters_;  // frames of the next step
  std::string broken_;  // why this rank's steps no longer match those of the others
};

}  // namespace tutti::bootstrap
