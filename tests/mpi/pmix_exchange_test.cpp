// pmix_exchange_test meet|late|death|refused: ranks that a PMIx server has started meet, are late,
// die; without a server, the refusal says what to do.
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
      std::this_thread::sleep_for(3s);
      (void)pmix_exchange(1s);
    } catch (const Error&) {
    }
    return 0;
  }
  try {
    (void)pmix_exchange(1s);
  } catch (const Error& error) {
    const bool named = std::strstr(error.what(), "have called it within 1 s") != nullptr;
    if (error.code() != ErrorCode::timed_out || !named) return wrong(error.what());
    std::this_thread::sleep_for(4s);  // the others' launcher would end rank 1
    return 0;
  }
  return wrong("nobody was missed");
}

/// Rank 1 is killed, of which the others hear within two seconds.
int death() {
  const auto exchange = pmix_exchange();
  exchange->barrier(10s);
  if (exchange->self() == Rank{1}) std::raise(SIGKILL);
  for (int tenths = 0; tenths < 20; ++tenths) {
    const Incident incident = exchange->incident();
    if (incident.kind == Incident::Kind::died && incident.rank == Rank{1}) {
      std::printf("rank %u heard of it\n", index_of(exchange->self()));
      return 0;
    }
    std::this_thread::sleep_for(100ms);
  }
  return wrong("nothing was heard within two seconds");
}

int refused() {
  try {
    (void)pmix_exchange();
  } catch (const Error& error) {
    return std::strstr(error.what(), "PMIX_NAMESPACE is not set") ? 0 : wrong(error.what());
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
    if (mode == "refused") return tutti::refused();
  } catch (const std::exception& error) {
    return tutti::wrong(error.what());
  }
  return tutti::wrong("expected meet, late, death or refused");
}
