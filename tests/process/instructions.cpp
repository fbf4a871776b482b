// instructions COLLECTIVE CALLS: instructions per call and rank of a collective of two ranks of a
// node, to be run by callgrind with --instr-atstart=no.  The two ranks are set up by a thread each;
// then one thread drives both in turn by start() and test(), so that nobody waits and every run
// executes the same instructions.
#include <valgrind/callgrind.h>

#include <barrier>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <tutti/tutti.hpp>

namespace {

using namespace tutti;

constexpr std::size_t rank_count = 2;

struct Side {
  std::uint64_t source = 1, target = 0;
  Operation* operation = nullptr;
};

const std::map<std::string, std::function<Operation(Communicator&, Side&)>> collectives = {
    {"barrier", [](Communicator& communicator, Side&) { return barrier(communicator); }},
    {"allreduce",
     [](Communicator& communicator, Side& side) {
       return allreduce<std::uint64_t>(communicator,
                                       std::span<const std::uint64_t>(&side.source, 1),
                                       std::span(&side.target, 1), sum);
     }},
    {"broadcast",
     [](Communicator& communicator, Side& side) {
       return broadcast(communicator, {.buffer = &side.target, .bytes = sizeof side.target});
     }},
    {"reduce",
     [](Communicator& communicator, Side& side) {
       return reduce(communicator,
                     {.source = &side.source,
                      .target = &side.target,
                      .element_count = 1,
                      .reduction = built_in_reduction(BuiltIn::sum, ElementType::uint64)});
     }},
};

/// One call of both ranks, in this thread.
bool call(Side (&sides)[rank_count]) {
  for (Side& side : sides)
    if (side.operation->start() != Status::ok) return false;
  for (int turns = 0; turns < 100; ++turns) {
    bool in_progress = false;
    for (Side& side : sides) {
      const Status status = side.operation->test();
      if (status != Status::ok && status != Status::in_progress) return false;
      in_progress = in_progress || status == Status::in_progress;
    }
    if (!in_progress) return true;
  }
  return false;
}

bool run(Side (&sides)[rank_count], std::uint64_t calls) {
  for (std::uint64_t i = 0; i < 10; ++i)
    if (!call(sides)) return false;
  CALLGRIND_START_INSTRUMENTATION;
  for (std::uint64_t i = 0; i < calls; ++i)
    if (!call(sides)) return false;
  CALLGRIND_STOP_INSTRUMENTATION;
  return true;
}

}  // namespace

int main(int count, char** values) {
  const auto found = collectives.find(count == 3 ? values[1] : "");
  const std::uint64_t calls = count == 3 ? std::strtoull(values[2], nullptr, 10) : 0;
  if (found == collectives.end() || calls == 0) {
    std::fprintf(stderr,
                 "instructions: expected barrier, allreduce, broadcast or reduce, and CALLS\n");
    return 2;
  }
  Side sides[rank_count];
  std::barrier meeting(rank_count);
  bool worked = false;
  int wrong = 0;
  for (const LocalResult& result :
       run_local_threads({.rank_count = rank_count}, [&](Exchange& exchange) {
         Context context;
         Communicator communicator(context, exchange);
         Side& side = sides[index_of(exchange.self())];
         Operation operation = found->second(communicator, side);
         side.operation = &operation;
         meeting.arrive_and_wait();
         if (exchange.self() == Rank{0}) worked = run(sides, calls);
         meeting.arrive_and_wait();
         return worked ? 0 : 1;
       }))
    wrong += result.exit_status;
  return wrong == 0 ? 0 : 1;
}
