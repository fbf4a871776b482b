#include "bootstrap/mpi_exchange.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "bootstrap/describe.hpp"
#include "bootstrap/node_map.hpp"
#include "bootstrap/process.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/tcp_exchange.hpp"
#include "tutti/detail/check.hpp"
#include "tutti/detail/clock.hpp"
#include "tutti/status.hpp"

namespace tutti::bootstrap {

namespace {

using namespace std::chrono_literals;
using detail::now;

// MPI_Test makes progress only when called.  The first tests do not sleep, because most exchanges
// are over within microseconds; later ones do, because ranks may outnumber processors.
constexpr int eager_tests = 64;
constexpr Timeout test_pause = 50us;
// Messages of a process that has ended may still be under way.
constexpr Timeout ended_grace = 1s;
constexpr Timeout ended_check_interval = 100ms;
// As in the other exchanges: counts stay far below MPI's int, and memory is bounded.
constexpr std::size_t chunk_bytes_max = std::size_t{1} << 20;

void check_mpi(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int bytes = 0;
  MPI_Error_string(result, text, &bytes);
  throw Error(ErrorCode::system, std::string(call) + ": " + text);
}

/// What a rank brings to an exchange, over which all agree before any data cross.
struct Contribution {
  enum class Kind : std::uint64_t { gathered, compared, records };
  Kind kind = Kind::gathered;
  std::uint64_t bytes = 0;  // of a record where there are records
};
static_assert(sizeof(Contribution) == 16);

bool are_records(const Contribution& contribution) {
  return contribution.kind == Contribution::Kind::records;
}

std::string text_of(const Contribution& contribution) {
  return name_contribution(contribution.bytes, are_records(contribution));
}

/// Identifies a rank's process.
struct ProcessIdentity {
  HostIdentity host;
  ProcessCard process;
};
static_assert(sizeof(ProcessIdentity) == 64);

/// What rank 0 tells the others of its side channel: secret, then rendezvous; empty: there is none.
struct Letter {
  static constexpr std::size_t secret_bytes = 32;
  std::array<char, 192> text{};
};

/// How long the ranks may take to open the side channel.  Where a firewall keeps them apart, this
/// is what the first exchange of a process takes longer.
constexpr Timeout side_channel_timeout = 5s;
class MpiExchange final : public Exchange {
 public:
  MpiExchange(MPI_Comm communicator, Timeout timeout) {
    const Deadline deadline = Deadline::after(timeout, now());
    int rank = 0;
    int rank_count = 0;
    MPI_Comm_rank(communicator, &rank);
    MPI_Comm_size(communicator, &rank_count);
    self_ = Rank{static_cast<std::uint32_t>(rank)};
    rank_count_ = static_cast<std::uint32_t>(rank_count);
    processes_.resize(rank_count_);
    try {
      check_mpi(MPI_Comm_idup(communicator, &lent_->communicator, &request_), "MPI_Comm_idup");
      complete({"mpi_exchange (duplicating the communicator)", timeout, deadline});
      MPI_Comm_set_errhandler(lent_->communicator, MPI_ERRORS_RETURN);
      if (!open_processes({"mpi_exchange (exchanging process ids)", timeout, deadline}))
        open_side_channel({"mpi_exchange (opening the side channel)", timeout, deadline});
    } catch (...) {
      release();
      throw;
    }
  }
  ~MpiExchange() override { release(); }

  Rank self() const noexcept override { return self_; }
  std::uint32_t rank_count() const noexcept override { return rank_count_; }

  void allgather(std::span<const std::byte> mine, std::span<std::byte> all,
                 Timeout timeout) override {
    detail::check(all.size() == mine.size() * rank_count_, "allgather has room for every rank",
                  all.size(), mine.size() * rank_count_);
    check_usable();
    const Call call{"allgather", timeout, Deadline::after(timeout, now())};
    (void)begin(call, {Contribution::Kind::gathered, mine.size()});
    gather(call, mine, all);
  }

  bool allgather_unless_equal(std::span<const std::byte> mine, std::span<std::byte> all,
                              Timeout timeout) override {
    detail::check(all.size() == mine.size() * rank_count_, "allgather has room for every rank",
                  all.size(), mine.size() * rank_count_);
    check_usable();
    const Call call{"allgather_unless_equal", timeout, Deadline::after(timeout, now())};
    const bool all_compare = begin(call, {Contribution::Kind::compared, mine.size()});
    if (all_compare && are_equal(call, mine)) return true;
    gather(call, mine, all);
    return false;
  }

  void swap(std::span<const Rank> partners, std::size_t record_bytes,
            std::span<const std::byte> mine, std::span<std::byte> theirs,
            Timeout timeout) override {
    detail::check(mine.size() == partners.size() * record_bytes && theirs.size() == mine.size(),
                  "there is a record for each partner, and room for theirs", mine.size(),
                  partners.size() * record_bytes);
    detail::check(record_bytes > 0 && record_bytes <= chunk_bytes_max, "a record fits a message",
                  record_bytes, chunk_bytes_max);
    check_usable();
    const Call call{"swap", timeout, Deadline::after(timeout, now())};
    (void)begin(call, {Contribution::Kind::records, record_bytes});
    swap(call, partners, record_bytes, mine, theirs);
  }

  void barrier(Timeout timeout) override {
    check_usable();
    // As a gathering of nothing, it is over when all have begun it.
    (void)begin({"barrier", timeout, Deadline::after(timeout, now())}, {});
  }

  bool has_left(Rank rank) noexcept override {
    detail::check(index_of(rank) < rank_count_, "the rank is one of the exchange's", index_of(rank),
                  rank_count_);
    return (side_channel_ && side_channel_->has_left(rank)) || has_ended(rank);
  }
  Incident incident() noexcept override {
    return side_channel_ ? side_channel_->incident() : Incident{};
  }
  void announce(Incident incident) noexcept override {
    if (side_channel_) side_channel_->announce(incident);
  }

 private:
  struct Call {
    const char* name;
    Timeout timeout;
    Deadline deadline;
  };
  /// Memory that MPI may still write after a timeout, when the caller's memory is long gone.
  struct Lent {
    MPI_Comm communicator = MPI_COMM_NULL;
    std::vector<std::byte> mine;
    std::vector<std::byte> all;
    std::vector<MPI_Request> requests;  // of records that are being sent
  };

  /// MPI leaves it undefined what happens when ranks differ in their collectives or in the sizes of
  /// these.  So all begin with the same one, whatever they were called for.  Returns whether all
  /// bring the same kind; if some gather what others compare, all have to gather.
  bool begin(const Call& call, const Contribution& mine) {
    if (are_equal(call, std::as_bytes(std::span{&mine, 1}))) return true;
    gather_chunk(call, std::as_bytes(std::span{&mine, 1}));
    std::vector<Contribution> all(rank_count_);
    std::memcpy(all.data(), lent_->all.data(), lent_->all.size());
    for (std::uint32_t rank = 0; rank < rank_count_; ++rank) {
      // The ranks stay in step: every rank sees the same and stops here.
      if (are_records(all[rank]) != are_records(all[0]) || all[rank].bytes != all[0].bytes)
        throw Error(ErrorCode::mismatch, std::string(call.name) + ": rank 0 contributes " +
                                             text_of(all[0]) + ", rank " + std::to_string(rank) +
                                             " " + text_of(all[rank]));
    }
    return false;
  }

  /// All ranks bring equally many bytes, which begin() has found out.
  void gather(const Call& call, std::span<const std::byte> mine, std::span<std::byte> all) {
    for (std::size_t offset = 0; offset < mine.size(); offset += chunk_bytes_max) {
      const auto chunk = mine.subspan(offset, std::min(mine.size() - offset, chunk_bytes_max));
      gather_chunk(call, chunk);
      for (std::uint32_t rank = 0; rank < rank_count_; ++rank) {
        std::memcpy(all.data() + rank * mine.size() + offset,
                    lent_->all.data() + rank * chunk.size(), chunk.size());
      }
    }
  }

  /// Whether all ranks, which bring equally many bytes, bring the same: what is 1 on all of them,
  /// and what is 0.
  bool are_equal(const Call& call, std::span<const std::byte> mine) {
    for (std::size_t offset = 0; offset < mine.size(); offset += chunk_bytes_max) {
      const auto chunk = mine.subspan(offset, std::min(mine.size() - offset, chunk_bytes_max));
      lent_->mine.assign(chunk.begin(), chunk.end());
      std::transform(chunk.begin(), chunk.end(), std::back_inserter(lent_->mine),
                     [](std::byte byte) { return ~byte; });
      lent_->all.resize(lent_->mine.size());
      check_mpi(MPI_Iallreduce(lent_->mine.data(), lent_->all.data(),
                               static_cast<int>(lent_->mine.size()), MPI_BYTE, MPI_BAND,
                               lent_->communicator, &request_),
                "MPI_Iallreduce");
      complete(call);
      const std::span<const std::byte> ones{lent_->all.data(), chunk.size()};
      const std::span<const std::byte> zeros{lent_->all.data() + chunk.size(), chunk.size()};
      if (!std::equal(ones.begin(), ones.end(), zeros.begin(),
                      [](std::byte one, std::byte zero) { return one == ~zero; }))
        return false;  // on every rank
    }
    return true;
  }

  /// One of two partners may not hold the other for a partner, so nobody waits for a certain
  /// record.
  void swap(const Call& call, std::span<const Rank> partners, std::size_t record_bytes,
            std::span<const std::byte> mine, std::span<std::byte> theirs) {
    // Synchronous sends that are all matched say that every record has been received; then a
    // barrier says so of all ranks (T. Hoefler, C. Siebert, A. Lumsdaine, "Scalable communication
    // protocols for dynamic sparse data exchange", PPoPP 2010).
    lent_->mine.assign(mine.begin(), mine.end());
    lent_->all.assign(mine.size(), std::byte{});
    lent_->requests.assign(partners.size(), MPI_REQUEST_NULL);
    const int tag = swaps_++ % 2;
    for (std::size_t i = 0; i < partners.size(); ++i)
      check_mpi(MPI_Issend(lent_->mine.data() + i * record_bytes, static_cast<int>(record_bytes),
                           MPI_BYTE, static_cast<int>(index_of(partners[i])), tag,
                           lent_->communicator, &lent_->requests[i]),
                "MPI_Issend");
    bool meets = false;
    complete(call, [&] {
      for (;;) {
        int has_come = 0;
        MPI_Status status;
        check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, tag, lent_->communicator, &has_come, &status),
                  "MPI_Iprobe");
        if (has_come == 0) break;
        std::vector<std::byte> record(record_bytes);
        check_mpi(MPI_Recv(record.data(), static_cast<int>(record_bytes), MPI_BYTE,
                           status.MPI_SOURCE, tag, lent_->communicator, MPI_STATUS_IGNORE),
                  "MPI_Recv");
        const auto from = std::find(partners.begin(), partners.end(),
                                    Rank{static_cast<std::uint32_t>(status.MPI_SOURCE)});
        if (from != partners.end())
          std::copy(record.begin(), record.end(),
                    theirs.begin() +
                        (from - partners.begin()) * static_cast<std::ptrdiff_t>(record_bytes));
      }
      int done = 0;
      if (!meets) {
        check_mpi(MPI_Testall(static_cast<int>(lent_->requests.size()), lent_->requests.data(),
                              &done, MPI_STATUSES_IGNORE),
                  "MPI_Testall");
        if (done == 0) return false;
        lent_->requests.clear();
        check_mpi(MPI_Ibarrier(lent_->communicator, &request_), "MPI_Ibarrier");
        meets = true;
      }
      check_mpi(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), "MPI_Test");
      return done != 0;
    });
  }

  void meet(const Call& call) {
    check_mpi(MPI_Ibarrier(lent_->communicator, &request_), "MPI_Ibarrier");
    complete(call);
  }

  /// Returns whether all ranks see each other's processes.
  bool open_processes(const Call& call) {
    const ProcessIdentity own{host_identity(), this_process()};
    std::vector<ProcessIdentity> identities(rank_count_);
    gather(call, std::as_bytes(std::span{&own, 1}), std::as_writable_bytes(std::span{identities}));
    bool all_see_each_other = true;
    for (std::uint32_t rank = 0; rank < rank_count_; ++rank) {
      const ProcessIdentity& peer = identities[rank];
      all_see_each_other = all_see_each_other && share_process_ids(identities[0].host, peer.host);
      is_one_machine_ = is_one_machine_ && identities[0].host.boot == peer.host.boot;
      // The end of a process of another host is not seen.
      if (Rank{rank} != self_ && share_process_ids(own.host, peer.host))
        processes_[rank] = watches_.of(peer.process);
    }
    return all_see_each_other;
  }

  /// Ranks of several hosts hear of each other's ends over TCP.  If any of them cannot be reached
  /// so, there is no side channel, on all ranks alike.
  void open_side_channel(const Call& call) {
    static std::atomic<bool> was_refused = false;  // in this process, to a rank of some exchange
    UnsharedDescriptor listener;
    Letter own;
    if (self_ == Rank{0} && !was_refused && leaves_descriptors()) {
      try {
        const std::string secret = random_secret();
        std::string rendezvous;
        std::tie(listener, rendezvous) = listen_anywhere(address());
        const std::string text = secret + rendezvous;
        if (text.size() < own.text.size()) text.copy(own.text.data(), text.size());
      } catch (const Error&) {  // it has no address, or no descriptors left
      }
    }
    std::vector<Letter> letters(rank_count_);
    gather(call, std::as_bytes(std::span{&own, 1}), std::as_writable_bytes(std::span{letters}));
    const std::string text = letters[0].text.data();  // ends with a zero
    if (text.size() <= Letter::secret_bytes) return;
    try {
      side_channel_.emplace(
          TcpOptions{.rank = self_,
                     .rank_count = rank_count_,
                     .rendezvous = text.substr(Letter::secret_bytes),
                     .secret = text.substr(0, Letter::secret_bytes),
                     .timeout = std::clamp<Timeout>(call.deadline.remaining(now()) / 2, 10ms,
                                                    side_channel_timeout)},
          std::move(listener), TcpExchange::End::quiet);
    } catch (const Error&) {
    }
    const std::byte is_open{side_channel_.has_value()};
    std::vector<std::byte> all(rank_count_);
    gather(call, std::span{&is_open, 1}, all);
    if (std::find(all.begin(), all.end(), std::byte{0}) == all.end()) return;
    side_channel_.reset();
    was_refused = true;
  }

  /// Whether a connection to each rank leaves half of the descriptors of this process to others.
  bool leaves_descriptors() const noexcept {
    rlimit limit{};
    return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && rank_count_ <= limit.rlim_cur / 2;
  }

  /// Where ranks of other hosts reach this one; of one machine, whose containers share a network as
  /// a rule, the loopback will do if there is nothing else.
  std::string address() const {
    try {
      return own_address("mpi_exchange");
    } catch (const Error&) {
      if (!is_one_machine_) throw;
      return "127.0.0.1";
    }
  }

  bool has_ended(Rank rank) noexcept {
    const auto& process = processes_[index_of(rank)];
    return process && process->has_ended();
  }

  /// The result is in lent_->all.
  void gather_chunk(const Call& call, std::span<const std::byte> chunk) {
    lent_->mine.assign(chunk.begin(), chunk.end());
    lent_->all.resize(chunk.size() * rank_count_);
    const int bytes = static_cast<int>(chunk.size());
    check_mpi(MPI_Iallgather(lent_->mine.data(), bytes, MPI_BYTE, lent_->all.data(), bytes,
                             MPI_BYTE, lent_->communicator, &request_),
              "MPI_Iallgather");
    complete(call);
  }

  void complete(const Call& call) {
    complete(call, [&] {
      int done = 0;
      check_mpi(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), "MPI_Test");
      return done != 0;
    });
  }

  template <class Test>
  void complete(const Call& call, Test&& is_done) {
    Deadline look_for_ended = Deadline::after(ended_check_interval, now());
    std::vector<Rank> ended;
    Deadline give_up = Deadline::after(wait_forever, now());
    for (int tests = 1;; ++tests) {
      if (is_done()) return;
      const Timeout time = now();
      if (look_for_ended.passed(time)) {
        look_for_ended = Deadline::after(ended_check_interval, time);
        if (const Incident known = incident(); known.kind != Incident::Kind::none)
          fail(call, ErrorCode::peer_failed, name_incident(known));
        if (ended.empty()) {
          ended = ended_ranks();
          if (!ended.empty()) give_up = Deadline::after(ended_grace, time);
        }
      }
      if (give_up.passed(time)) {
        fail(call, ErrorCode::peer_failed, "the process of " + name_ranks(ended) + " has ended");
      }
      if (call.deadline.passed(time)) {
        ended = ended_ranks();
        fail(call, ErrorCode::timed_out,
             "not every rank came within " + name_timeout(call.timeout) + "; " +
                 (ended.empty() ? "MPI does not say which are missing"
                                : "the process of " + name_ranks(ended) + " has ended"));
      }
      if (tests <= eager_tests) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::min(test_pause, call.deadline.remaining(time)));
      }
    }
  }

  std::vector<Rank> ended_ranks() {
    std::vector<Rank> ended;
    for (std::uint32_t rank = 0; rank < rank_count_; ++rank) {
      if (has_ended(Rank{rank})) ended.push_back(Rank{rank});
    }
    return ended;
  }

  bool is_inherited() const noexcept { return ::getpid() != process_; }  // by a forked child

  void check_usable() const {
    if (is_inherited())
      throw Error(ErrorCode::invalid_argument,
                  "this is a forked child, and the exchange is its parent's");
    if (!broken_.empty()) throw Error(ErrorCode::peer_failed, broken_);
  }

  [[noreturn]] void fail(const Call& call, ErrorCode code, const std::string& text) {
    const std::string whole = std::string(call.name) + ": " + text;
    broken_ = "this exchange is out of step since " + whole;
    throw Error(code, whole);
  }

  void release() noexcept {
    if (is_inherited()) return;
    if (request_ != MPI_REQUEST_NULL || !lent_->requests.empty()) {
      // A nonblocking collective can be neither cancelled nor freed: MPI keeps the memory it was
      // lent, and the communicator, whose collective release would wait for the missing ranks.
      (void)lent_.release();
      return;
    }
    if (broken_.empty() && lent_->communicator != MPI_COMM_NULL) {
      MPI_Comm_free(&lent_->communicator);
    }
  }

  Rank self_ = no_rank;
  std::uint32_t rank_count_ = 0;
  ProcessWatches watches_;
  std::vector<std::shared_ptr<ProcessWatch>> processes_;  // by rank; null: this, or of another host
  bool is_one_machine_ = true;
  std::optional<TcpExchange> side_channel_;  // between hosts, if all could open it
  MPI_Request request_ = MPI_REQUEST_NULL;
  std::unique_ptr<Lent> lent_ = std::make_unique<Lent>();
  int swaps_ = 0;
  std::string broken_;  // why this rank's exchanges no longer match those of the others
  pid_t process_ = ::getpid();
};

}  // namespace

}  // namespace tutti::bootstrap

namespace tutti {

std::unique_ptr<Exchange> mpi_exchange(MPI_Comm communicator, Timeout timeout) {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (initialized == 0 || finalized != 0) {
    throw Error(ErrorCode::invalid_argument,
                "mpi_exchange needs MPI between MPI_Init and MPI_Finalize");
  }
  if (communicator == MPI_COMM_NULL) {
    throw Error(ErrorCode::invalid_argument,
                "mpi_exchange(MPI_COMM_NULL): expected a communicator");
  }
  return std::make_unique<bootstrap::MpiExchange>(communicator, timeout);
}

}  // namespace tutti
