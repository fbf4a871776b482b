// pmix_exchange_test meet|late|death|told|left|refused: ranks that a PMIx server has started meet,
// are late, die, are told that one has died, also after one that had left; without a server, the
// refusal says what to do.
#include <pmix.h>

#include <tutti/pmix_exchange.h>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <tutti/pmix_exchange.hpp>
#include <tutti/tutti.hpp>
#include <vector>

namespace tutti {
namespace {

using namespace std::chrono_literals;

int wrong(const std::string& text) {
  std::fprintf(stderr, "wrong: %s\n", text.c_str());
  return 1;
}

/// An exchange, and another one beside it by the C interface, each with a sum.
int meet() {
  const auto first = pmix_exchange();
  tutti_exchange* second = nullptr;
  tutti_failure failure{};
  if (tutti_pmix_exchange(0, &second, &failure) != TUTTI_OK) return wrong(failure.text);
  const std::uint32_t ranks = first->rank_count(), self = index_of(first->self());
  std::vector<std::uint32_t> all(ranks);
  first->allgather(std::as_bytes(std::span(&self, 1)), std::as_writable_bytes(std::span(all)), 10s);
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    if (all[rank] != rank) return wrong("place " + std::to_string(rank) + " is another's");
  {
    Context context;
    Communicator communicator(context, *first);
    std::int64_t mine = self + 1, sum_of_all = 0;
    auto add = allreduce<std::int64_t>(communicator, {&mine, 1}, {&sum_of_all, 1}, sum);
    if (add.start() != Status::ok || add.wait(10s) != Status::ok) return wrong("no sum");
    if (sum_of_all != std::int64_t{ranks} * (ranks + 1) / 2) return wrong("another sum");
  }
  return tutti_exchange_free(second) == TUTTI_OK ? 0 : wrong("the second one is not freed");
}

/// How a call of pmix_exchange() with this timeout ends, which is to take so long; rank 1 is
/// missing.
int expect_timeout(Timeout timeout, Timeout at_least, Timeout at_most, const std::string& text) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    (void)pmix_exchange(timeout);
    return wrong("nobody was missed");
  } catch (const Error& error) {
    if (error.code() != ErrorCode::timed_out ||
        std::string(error.what()).find(text) == std::string::npos)
      return wrong(error.what());
  }
  const std::chrono::nanoseconds taken = std::chrono::steady_clock::now() - begin;
  if (taken >= at_least && taken < at_most) return 0;
  return wrong("it took " + std::to_string(taken / 1ms) + " ms until: " + text);
}

/// Rank 1 does not call it in time.
int late() {
  if (std::strcmp(std::getenv("PMIX_RANK"), "1") == 0) {
    // It must have met PMIx, or the launcher takes its end for a failure.
    try {
      std::this_thread::sleep_for(1s);
      (void)pmix_exchange(500ms);
    } catch (const Error&) {
    }
    return 0;
  }
  if (expect_timeout(500ms, 500ms, 5s,
                     " have called it within 500 ms; PMIx does not say which are missing") != 0)
    return 1;
  // PMIx cannot try again, and says so at once.
  if (expect_timeout(10s, 0s, 5s,
                     "an earlier one of this process has timed out, which PMIx cannot take back; "
                     "start the job again") != 0)
    return 1;
  std::this_thread::sleep_for(1500ms);  // the others' launcher would end rank 1
  return 0;
}

/// Whether the death of rank 1 is heard of within two seconds.
int hear(Exchange& exchange) {
  for (int tenths = 0; tenths < 20; ++tenths) {
    const Incident incident = exchange.incident();
    if (incident.kind == Incident::Kind::died && incident.rank == Rank{1}) {
      std::printf("rank %u heard of it\n", index_of(exchange.self()));
      return 0;
    }
    std::this_thread::sleep_for(100ms);
  }
  return wrong("nothing was heard within two seconds");
}

/// Rank 1 is killed.
int death() {
  const auto exchange = pmix_exchange();
  exchange->barrier(10s);
  if (exchange->self() == Rank{1}) std::raise(SIGKILL);
  return hear(*exchange);
}

/// As PMIx tells this process when a node has vanished: that this rank has died.
pmix_status_t tell_of_death(std::uint32_t rank) {
  pmix_proc_t dead{};
  std::strncpy(dead.nspace, std::getenv("PMIX_NAMESPACE"), sizeof dead.nspace - 1);
  dead.rank = rank;
  pmix_info_t whom{};
  std::strncpy(whom.key, PMIX_EVENT_AFFECTED_PROC, sizeof whom.key - 1);
  whom.value.type = PMIX_PROC;
  whom.value.data.proc = &dead;
  const auto ignore = [](pmix_status_t, void*) {};  // without one it waits
  const pmix_status_t status = PMIx_Notify_event(PMIX_ERR_PROC_ABORTED, &dead,
                                                 PMIX_RANGE_PROC_LOCAL, &whom, 1, ignore, nullptr);
  return status == PMIX_OPERATION_SUCCEEDED ? PMIX_SUCCESS : status;
}

/// PMIx tells each process that rank 1 has died, while its connections live.
int told() {
  const auto exchange = pmix_exchange();
  exchange->barrier(10s);
  if (const pmix_status_t status = tell_of_death(1); status != PMIX_SUCCESS)
    return wrong(PMIx_Error_string(status));
  return hear(*exchange);
}

/// Rank 2 leaves in good order and is said to have died, which nobody cares about; then rank 1 is.
int left() {
  auto exchange = pmix_exchange();
  exchange->barrier(10s);
  if (exchange->self() == Rank{2}) {
    exchange.reset();
    std::this_thread::sleep_for(2s);  // the launcher would end the others
    return 0;
  }
  for (int tenths = 0; !exchange->has_left(Rank{2}); ++tenths) {
    if (tenths == 50) return wrong("rank 2 has not left");
    std::this_thread::sleep_for(100ms);
  }
  for (const std::uint32_t rank : {2u, 1u}) {
    if (const pmix_status_t status = tell_of_death(rank); status != PMIX_SUCCESS)
      return wrong(PMIx_Error_string(status));
    std::this_thread::sleep_for(200ms);
    if (rank == 2 && exchange->incident().kind != Incident::Kind::none)
      return wrong("rank 2 is missed");
  }
  return hear(*exchange);
}

/// Without a server.  What to do depends on whether Slurm has started this process.
int refused() {
  const bool by_slurm = std::getenv("SLURM_STEP_ID") != nullptr;
  const char* const advice = by_slurm ? "by Slurm's srun without PMIx: use srun --mpi=pmix"
                                      : "start it by Open MPI's mpirun";
  try {
    (void)pmix_exchange();
  } catch (const Error& error) {
    const bool says_so = std::strstr(error.what(), "PMIX_NAMESPACE is not set") != nullptr &&
                         std::strstr(error.what(), advice) != nullptr;
    return says_so && error.code() == ErrorCode::invalid_argument ? 0 : wrong(error.what());
  }
  return wrong("it is not refused");
}

}  // namespace
}  // namespace tutti

int main(int count, char** arguments) {
  const std::string mode = count > 1 ? arguments[1] : "";
  try {
    if (mode == "meet") return tutti::meet();
    if (mode == "late") return tutti::late();
    if (mode == "death") return tutti::death();
    if (mode == "told") return tutti::told();
    if (mode == "left") return tutti::left();
    if (mode == "refused") return tutti::refused();
  } catch (const std::exception& error) {
    return tutti::wrong(error.what());
  }
  return tutti::wrong("expected meet, late, death, told, left or refused");
}
