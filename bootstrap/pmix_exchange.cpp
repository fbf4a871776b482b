// PMIx says who this rank is, and carries one letter from rank 0 to all: where it listens, and the
// secret of the job.  Everything else is the TCP exchange.
#include "bootstrap/pmix_exchange.hpp"

#include <pmix.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bootstrap/describe.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/tcp_exchange.hpp"
#include "tutti/bootstrap.hpp"
#include "tutti/detail/clock.hpp"
#include "tutti/status.hpp"

namespace tutti::bootstrap {

namespace {

using detail::now;

void check_pmix(pmix_status_t status, const char* call) {
  if (status == PMIX_SUCCESS) return;
  throw Error(ErrorCode::system, std::string(call) + ": " + PMIx_Error_string(status));
}

bool is_key(const pmix_info_t& info, const char* key) {
  return std::strncmp(info.key, key, sizeof info.key) == 0;
}

pmix_info_t info_of(const char* key) {
  pmix_info_t info{};
  std::strncpy(info.key, key, sizeof info.key - 1);
  return info;
}

/// This process's use of PMIx, which counts its users.
class Client {
 public:
  Client() {
    if (std::getenv("PMIX_NAMESPACE") == nullptr) refuse();
    check_pmix(PMIx_Init(&self_, nullptr, 0), "PMIx_Init");
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() { (void)PMIx_Finalize(nullptr, 0); }

  std::uint32_t rank() const noexcept { return self_.rank; }
  const char* job() const noexcept { return self_.nspace; }
  pmix_proc_t process(std::uint32_t rank) const noexcept {
    pmix_proc_t process = self_;
    process.rank = rank;
    return process;
  }

  /// A number of the job.
  std::uint32_t number(const char* key) const {
    const pmix_proc_t whole = process(PMIX_RANK_WILDCARD);
    pmix_value_t* value = nullptr;
    check_pmix(PMIx_Get(&whole, key, nullptr, 0, &value), key);
    const std::uint32_t number = value->type == PMIX_UINT32 ? value->data.uint32 : 0;
    PMIX_VALUE_RELEASE(value);
    return number;
  }

  void put(const std::string& key, const std::string& text) const {
    std::string copy = text;
    pmix_value_t value{};
    value.type = PMIX_STRING;
    value.data.string = copy.data();
    check_pmix(PMIx_Put(PMIX_GLOBAL, key.c_str(), &value), "PMIx_Put");
    check_pmix(PMIx_Commit(), "PMIx_Commit");
  }

  /// After a fence behind the put: what is not here then would be waited for in vain.
  std::string get(std::uint32_t rank, const std::string& key) const {
    const pmix_proc_t other = process(rank);
    pmix_info_t at_once = info_of(PMIX_IMMEDIATE);
    at_once.value.type = PMIX_BOOL;
    at_once.value.data.flag = true;
    pmix_value_t* value = nullptr;
    check_pmix(PMIx_Get(&other, key.c_str(), &at_once, 1, &value), "PMIx_Get");
    std::string text = value->type == PMIX_STRING ? value->data.string : "";
    PMIX_VALUE_RELEASE(value);
    return text;
  }

 private:
  [[noreturn]] static void refuse() {
    // Slurm sets this for whatever srun starts.
    const bool by_slurm = std::getenv("SLURM_STEP_ID") != nullptr;
    throw Error(
        ErrorCode::invalid_argument,
        std::string("pmix_exchange: PMIX_NAMESPACE is not set, so this process was started ") +
            (by_slurm ? "by Slurm's srun without PMIx: use srun --mpi=pmix, if srun "
                        "--mpi=list names it, or tcp_exchange"
                      : "by no PMIx server; start it by Open MPI's mpirun, by prterun or "
                        "by srun --mpi=pmix, or use tcp_exchange"));
  }

  pmix_proc_t self_{};
};

/// Whether a fence of this process has timed out.  PMIx cannot take it back: a later fence would be
/// mixed up with it, and to initialise PMIx once more may hang.
std::atomic<bool> has_timed_out = false;

/// Waits until all ranks have called it and have what each had put.  Servers take a timeout or do
/// not, so the wait has its own; what a late answer is written to then outlives it.
void fence(const Client& client, Timeout timeout) {
  struct Answer {
    std::mutex mutex;
    std::condition_variable changed;
    bool given = false;
    pmix_status_t status = PMIX_SUCCESS;
  };
  const auto answer = std::make_shared<Answer>();
  auto lent = std::make_unique<std::shared_ptr<Answer>>(answer);
  const pmix_proc_t all = client.process(PMIX_RANK_WILDCARD);
  pmix_info_t collect = info_of(PMIX_COLLECT_DATA);
  collect.value.type = PMIX_BOOL;
  collect.value.data.flag = true;
  const auto take = [](pmix_status_t status, void* context) {
    const std::unique_ptr<std::shared_ptr<Answer>> owned(
        static_cast<std::shared_ptr<Answer>*>(context));
    const std::lock_guard lock((*owned)->mutex);
    (*owned)->given = true;
    (*owned)->status = status;
    (*owned)->changed.notify_one();
  };
  const pmix_status_t begun = PMIx_Fence_nb(&all, 1, &collect, 1, take, lent.get());
  if (begun == PMIX_OPERATION_SUCCEEDED) return;
  check_pmix(begun, "PMIx_Fence_nb");
  (void)lent.release();  // it is the callback's now
  std::unique_lock lock(answer->mutex);
  // Longer than a year would overflow the clock.
  const Timeout bounded = std::min<Timeout>(timeout, std::chrono::hours(24 * 365));
  if (!answer->changed.wait_for(lock, bounded, [&] { return answer->given; })) {
    has_timed_out = true;
    throw Error(ErrorCode::timed_out, "pmix_exchange: not all ranks of job " +
                                          std::string(client.job()) + " have called it within " +
                                          name_timeout(timeout) +
                                          "; PMIx does not say which are missing");
  }
  if (answer->status != PMIX_SUCCESS)
    throw Error(ErrorCode::peer_failed,
                std::string("pmix_exchange: PMIx_Fence_nb: ") + PMIx_Error_string(answer->status) +
                    ": a rank has ended, or an earlier pmix_exchange has timed out on some rank; "
                    "start the job again");
}

/// Deaths that PMIx has told of, in this order.  Its thread calls the handler.
class Deaths {
 public:
  explicit Deaths(const Client& client) : job_(client.job()) {
    std::array<pmix_status_t, 5> codes{PMIX_ERR_PROC_ABORTED, PMIX_ERR_PROC_ABORTED_BY_SIG,
                                       PMIX_ERR_PROC_TERM_WO_SYNC, PMIX_ERR_PROC_KILLED_BY_CMD,
                                       PMIX_ERR_EXIT_NONZERO_TERM};
    pmix_info_t context = info_of(PMIX_EVENT_RETURN_OBJECT);
    context.value.type = PMIX_POINTER;
    context.value.data.ptr = this;
    // Without a callback it waits.  A launcher that knows no events is no reason to fail.
    registration_ = PMIx_Register_event_handler(codes.data(), codes.size(), &context, 1,
                                                &Deaths::hear, nullptr, nullptr);
  }
  Deaths(const Deaths&) = delete;
  Deaths& operator=(const Deaths&) = delete;
  ~Deaths() {
    if (registration_ >= 0)
      (void)PMIx_Deregister_event_handler(static_cast<std::size_t>(registration_), nullptr,
                                          nullptr);
  }

  /// The rank that died next after those that this has returned; no_rank: none has.  Costs a load
  /// if there is none.
  Rank next() noexcept {
    if (count_.load(std::memory_order_acquire) == taken_) return no_rank;
    const std::lock_guard lock(mutex_);
    return Rank{dead_[taken_++]};
  }

 private:
  static void hear(std::size_t, pmix_status_t, const pmix_proc_t* source, pmix_info_t* info,
                   std::size_t info_count, pmix_info_t*, std::size_t,
                   pmix_event_notification_cbfunc_fn_t done, void* done_context) {
    Deaths* self = nullptr;
    const pmix_proc_t* affected = source;
    for (const pmix_info_t& item : std::span(info, info_count)) {
      if (is_key(item, PMIX_EVENT_RETURN_OBJECT)) self = static_cast<Deaths*>(item.value.data.ptr);
      if (is_key(item, PMIX_EVENT_AFFECTED_PROC) && item.value.type == PMIX_PROC)
        affected = item.value.data.proc;
    }
    if (self != nullptr && affected != nullptr && self->job_ == affected->nspace) {
      const std::lock_guard lock(self->mutex_);
      self->dead_.push_back(affected->rank);
      // Release: who sees the count, sees the rank.
      self->count_.store(self->dead_.size(), std::memory_order_release);
    }
    if (done != nullptr)
      done(PMIX_EVENT_NO_ACTION_TAKEN, nullptr, 0, nullptr, nullptr, done_context);
  }

  const std::string job_;
  std::mutex mutex_;
  std::vector<std::uint32_t> dead_ = {};  // guarded by the mutex
  std::atomic<std::size_t> count_ = 0;    // of them
  std::size_t taken_ = 0;                 // of them, by next()
  pmix_status_t registration_ = -1;
};

class PmixExchange final : public Exchange {
 public:
  explicit PmixExchange(Timeout timeout) : deaths_(client_) {
    const Deadline deadline = Deadline::after(timeout, now());
    TcpOptions options;
    options.rank = Rank{client_.rank()};
    options.rank_count = client_.number(PMIX_JOB_SIZE);
    UnsharedDescriptor listener;
    // Keys are for one use: a server hands out the first value that it has heard of.
    static std::atomic<std::uint32_t> exchanges = 0;
    const std::string key = "tutti.rendezvous." + std::to_string(exchanges++);
    if (options.rank == Rank{0}) {
      options.secret = random_secret();
      if (const char* const given = std::getenv("TUTTI_RENDEZVOUS")) {
        options.rendezvous = given;
      } else {
        const bool one_host = client_.number(PMIX_LOCAL_SIZE) == options.rank_count;
        std::tie(listener, options.rendezvous) =
            listen_anywhere(one_host ? "127.0.0.1" : own_address("pmix_exchange"));
      }
      client_.put(key, options.secret + options.rendezvous);
    }
    fence(client_, timeout);
    if (options.rank != Rank{0}) {
      const std::string letter = client_.get(0, key);
      const std::size_t secret_bytes = std::min<std::size_t>(letter.size(), 32);
      options.secret = letter.substr(0, secret_bytes);
      options.rendezvous = letter.substr(secret_bytes);
    }
    options.timeout = std::max<Timeout>(deadline.remaining(now()), std::chrono::seconds(1));
    tcp_.emplace(options, std::move(listener));
  }

  Rank self() const noexcept override { return tcp_->self(); }
  std::uint32_t rank_count() const noexcept override { return tcp_->rank_count(); }
  void allgather(std::span<const std::byte> mine, std::span<std::byte> all,
                 Timeout timeout) override {
    tcp_->allgather(mine, all, timeout);
  }
  bool allgather_unless_equal(std::span<const std::byte> mine, std::span<std::byte> all,
                              Timeout timeout) override {
    return tcp_->allgather_unless_equal(mine, all, timeout);
  }
  void swap(std::span<const Rank> partners, std::size_t record_bytes,
            std::span<const std::byte> mine, std::span<std::byte> theirs,
            Timeout timeout) override {
    tcp_->swap(partners, record_bytes, mine, theirs, timeout);
  }
  void barrier(Timeout timeout) override { tcp_->barrier(timeout); }
  bool has_left(Rank rank) noexcept override { return tcp_->has_left(rank); }
  void announce(Incident incident) noexcept override { tcp_->announce(incident); }
  Incident incident() noexcept override {
    const Incident known = tcp_->incident();
    if (known.kind != Incident::Kind::none) return known;
    // The hub decides which incident was first.  A rank that has left in good order may die.
    for (Rank dead = deaths_.next(); dead != no_rank; dead = deaths_.next())
      if (index_of(dead) < rank_count() && !tcp_->has_left(dead))
        tcp_->announce({.kind = Incident::Kind::died, .rank = dead});
    return known;
  }

 private:
  Client client_;  // outlives what uses it
  Deaths deaths_;
  std::optional<TcpExchange> tcp_;
};

}  // namespace

}  // namespace tutti::bootstrap

namespace tutti {

std::unique_ptr<Exchange> pmix_exchange(Timeout timeout) {
  if (timeout <= Timeout::zero())
    throw Error(
        ErrorCode::invalid_argument,
        "pmix_exchange: timeout " + bootstrap::name_timeout(timeout) + ": expected more than 0 s");
  if (bootstrap::has_timed_out)
    throw Error(ErrorCode::timed_out,
                "pmix_exchange: an earlier one of this process has timed out, which PMIx cannot "
                "take back; start the job again");
  return std::make_unique<bootstrap::PmixExchange>(timeout);
}

}  // namespace tutti
