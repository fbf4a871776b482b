// steady_state CALLS: two ranks, CALLS barriers and allreduces, nothing else; for strace.
#include <sched.h>
#include <tutti/tutti.hpp>

int main(int count, char** values) {
  using namespace std::chrono_literals;
  const std::uint64_t calls = count == 2 ? std::strtoull(values[1], nullptr, 10) : 0;
  int wrong = 0;
  for (const tutti::LocalResult& result :
       tutti::run_local({.rank_count = 2}, [&](tutti::Exchange& exchange) {
         tutti::Context context;
         tutti::Communicator communicator(context, exchange);
         std::uint64_t source = 1, target = 0;
         tutti::Operation meet = barrier(communicator);
         tutti::Operation reduce = tutti::allreduce<std::uint64_t>(
             communicator, std::span<const std::uint64_t>(&source, 1), std::span(&target, 1),
             tutti::sum);
         for (std::uint64_t call = 0; call < calls; ++call)
           for (tutti::Operation* operation : {&meet, &reduce}) {
             if (operation->start() != tutti::Status::ok) return 1;
             if (operation->wait(30s) != tutti::Status::ok) return 1;
           }
         return target == 2 ? 0 : 1;
       }))
    wrong += result.exit_status != 0 || result.signal != 0 ? 1 : 0;
  return wrong;
}
