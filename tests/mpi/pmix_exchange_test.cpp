// pmix_exchange_test meet|late|death|told|refused: ranks that a PMIx server has started meet, are
// late, die, are told that one has died; without a server, the refusal says what to do.
#include <pmix.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

#include "bootstrap/pmix_exchange.h"
#include "bootstrap/pmix_exchange.hpp"

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
  try {
    (void)pmix_exchange(500ms);
  } catch (const Error& error) {
    const bool named = std::strstr(error.what(), "have called it within 500 ms") != nullptr;
    if (error.code() != ErrorCode::timed_out || !named) return wrong(error.what());
    std::this_thread::sleep_for(1500ms);  // the others' launcher would end rank 1
    return 0;
  }
  return wrong("nobody was missed");
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

/// PMIx tells each process that rank 1 has died, as it does when a node has vanished, while its
/// connections live.
int told() {
  const auto exchange = pmix_exchange();
  exchange->barrier(10s);
  pmix_proc_t dead{};
  std::strncpy(dead.nspace, std::getenv("PMIX_NAMESPACE"), sizeof dead.nspace - 1);
  dead.rank = 1;
  pmix_info_t whom{};
  std::strncpy(whom.key, PMIX_EVENT_AFFECTED_PROC, sizeof whom.key - 1);
  whom.value.type = PMIX_PROC;
  whom.value.data.proc = &dead;
  const auto ignore = [](pmix_status_t, void*) {};  // without one it waits
  const pmix_status_t status = PMIx_Notify_event(PMIX_ERR_PROC_ABORTED, &dead,
                                                 PMIX_RANGE_PROC_LOCAL, &whom, 1, ignore, nullptr);
  if (status != PMIX_SUCCESS && status != PMIX_OPERATION_SUCCEEDED)
    return wrong(PMIx_Error_string(status));
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
    if (mode == "refused") return tutti::refused();
  } catch (const std::exception& error) {
    return tutti::wrong(error.what());
  }
  return tutti::wrong("expected meet, late, death, told or refused");
}
