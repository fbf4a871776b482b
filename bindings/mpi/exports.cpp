// The symbols of MPI that this library stands in for.  MPI_X is what programs call, and MPICH's
// Fortran; PMPI_X what tools call, and Open MPI's Fortran.  What is not taken goes to whoever has
// the same symbol next.

#include <dlfcn.h>
#include <mpi.h>

#include <cstdint>
#include <type_traits>
#include <utility>

#include "after_call.hpp"
#include "block_calls.hpp"
#include "calls.hpp"
#include "counters.h"
#include "interposer.hpp"
#include "loaded_mpi.hpp"
#include "requests.hpp"

using namespace tutti::interposer;

namespace {

/// Whether this thread is passing a call on: what a tool or MPI itself then calls is no new call.
thread_local bool is_passing __attribute__((tls_model("initial-exec"))) = false;

class Passage {
 public:
  Passage() noexcept { is_passing = true; }
  ~Passage() { is_passing = was_passing_; }
  Passage(const Passage&) = delete;
  Passage& operator=(const Passage&) = delete;

 private:
  bool was_passing_ = is_passing;
};

/// An argument as it arrives.  The program may run on another MPI than this library was built for,
/// whose handles are longer or shorter; what is passed on must not be cut.
using Word = std::uintptr_t;
template <class>
using WordFor = Word;

template <class Argument>
Argument argument(Word word) noexcept {
  if constexpr (std::is_pointer_v<Argument>)
    return reinterpret_cast<Argument>(word);
  else
    return static_cast<Argument>(word);
}

/// Whether it was the same call as before, which is done.
template <class Function>
struct Again;
template <class... Arguments>
struct Again<int (*)(Arguments...)> {
  template <class Take>
  static bool takes(Take take_again, WordFor<Arguments>... words) noexcept {
    return !is_passing && take_again(argument<Arguments>(words)...);
  }
};

/// Takes the call whose arguments are those of MPI's `function`, or passes it on to that.
template <class Take, class... Arguments>
[[gnu::noinline]] int take_or_pass(Take take, int (*function)(Arguments...),
                                   WordFor<Arguments>... words) {
  const bool is_new = !is_passing;
  if (is_new && take(argument<Arguments>(words)...)) return MPI_SUCCESS;
  const Passage passage;
  const auto whole_words = reinterpret_cast<void (*)()>(function);
  const int result = reinterpret_cast<int (*)(WordFor<Arguments>...)>(whole_words)(words...);
  if (is_new && after_call != nullptr) [[unlikely]]
    std::exchange(after_call, nullptr)(result);
  return result;
}

}  // namespace

// Both symbols of a collective, under names that do not collide with what mpi.h declares:
// TUTTI_MPI_EXPORT(name, collective that takes it, (parameters), arguments...)
#define TUTTI_MPI_EXPORT(name, collective, parameters, ...)                               \
  extern "C" int tutti_exported_MPI_##name parameters __asm__("MPI_" #name);              \
  extern "C" int tutti_exported_PMPI_##name parameters __asm__("PMPI_" #name);            \
  extern "C" int tutti_exported_MPI_##name parameters {                                   \
    if (Again<decltype(MpiFunctions::name)>::takes(take_again_##collective, __VA_ARGS__)) \
      return MPI_SUCCESS;                                                                 \
    return take_or_pass(take_##collective, next_mpi().name, __VA_ARGS__);                 \
  }                                                                                       \
  extern "C" int tutti_exported_PMPI_##name parameters {                                  \
    if (Again<decltype(MpiFunctions::name)>::takes(take_again_##collective, __VA_ARGS__)) \
      return MPI_SUCCESS;                                                                 \
    return take_or_pass(take_##collective, own_mpi().name, __VA_ARGS__);                  \
  }

// Likewise for one that is looked up each time, by the function that takes it.
#define TUTTI_MPI_EXPORT_NEW(name, take, parameters, ...)                      \
  extern "C" int tutti_exported_MPI_##name parameters __asm__("MPI_" #name);   \
  extern "C" int tutti_exported_PMPI_##name parameters __asm__("PMPI_" #name); \
  extern "C" int tutti_exported_MPI_##name parameters {                        \
    return take_or_pass(take, next_mpi().name, __VA_ARGS__);                   \
  }                                                                            \
  extern "C" int tutti_exported_PMPI_##name parameters {                       \
    return take_or_pass(take, own_mpi().name, __VA_ARGS__);                    \
  }

TUTTI_MPI_EXPORT(Barrier, barrier, (Word a), a)
TUTTI_MPI_EXPORT(Allreduce, allreduce, (Word a, Word b, Word c, Word d, Word e, Word f), a, b, c, d,
                 e, f)
TUTTI_MPI_EXPORT(Bcast, broadcast, (Word a, Word b, Word c, Word d, Word e), a, b, c, d, e)
TUTTI_MPI_EXPORT(Reduce, reduce, (Word a, Word b, Word c, Word d, Word e, Word f, Word g), a, b, c,
                 d, e, f, g)
TUTTI_MPI_EXPORT_NEW(Iallreduce, take_iallreduce,
                     (Word a, Word b, Word c, Word d, Word e, Word f, Word g), a, b, c, d, e, f, g)
TUTTI_MPI_EXPORT_NEW(Ibarrier, take_ibarrier, (Word a, Word b), a, b)
TUTTI_MPI_EXPORT_NEW(Ibcast, take_ibroadcast, (Word a, Word b, Word c, Word d, Word e, Word f), a,
                     b, c, d, e, f)
TUTTI_MPI_EXPORT_NEW(Ireduce, take_ireduce,
                     (Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h), a, b, c, d,
                     e, f, g, h)
TUTTI_MPI_EXPORT_NEW(Op_free, take_op_free, (Word a), a)
TUTTI_MPI_EXPORT_NEW(Type_free, take_type_free, (Word a), a)
#if MPI_VERSION >= 4
TUTTI_MPI_EXPORT(Allreduce_c, allreduce, (Word a, Word b, Word c, Word d, Word e, Word f), a, b, c,
                 d, e, f)
TUTTI_MPI_EXPORT(Bcast_c, broadcast, (Word a, Word b, Word c, Word d, Word e), a, b, c, d, e)
TUTTI_MPI_EXPORT(Reduce_c, reduce, (Word a, Word b, Word c, Word d, Word e, Word f, Word g), a, b,
                 c, d, e, f, g)
TUTTI_MPI_EXPORT_NEW(Iallreduce_c, take_iallreduce,
                     (Word a, Word b, Word c, Word d, Word e, Word f, Word g), a, b, c, d, e, f, g)
TUTTI_MPI_EXPORT_NEW(Ibcast_c, take_ibroadcast, (Word a, Word b, Word c, Word d, Word e, Word f), a,
                     b, c, d, e, f)
TUTTI_MPI_EXPORT_NEW(Ireduce_c, take_ireduce,
                     (Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h), a, b, c, d,
                     e, f, g, h)
#endif
TUTTI_MPI_EXPORT_NEW(Allgather, take_allgather,
                     (Word a, Word b, Word c, Word d, Word e, Word f, Word g), a, b, c, d, e, f, g)
TUTTI_MPI_EXPORT_NEW(Allgatherv, take_allgatherv,
                     (Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h), a, b, c, d,
                     e, f, g, h)
TUTTI_MPI_EXPORT_NEW(Alltoall, take_alltoall,
                     (Word a, Word b, Word c, Word d, Word e, Word f, Word g), a, b, c, d, e, f, g)
TUTTI_MPI_EXPORT_NEW(Alltoallv, LeaveUnknownCounts<Collective::alltoallv>{},
                     (Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i), a, b,
                     c, d, e, f, g, h, i)
TUTTI_MPI_EXPORT_NEW(Gather, take_gather,
                     (Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h), a, b, c, d,
                     e, f, g, h)
TUTTI_MPI_EXPORT_NEW(Gatherv, LeaveUnknownCounts<Collective::gatherv>{},
                     (Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i), a, b,
                     c, d, e, f, g, h, i)
TUTTI_MPI_EXPORT_NEW(Scatter, take_scatter,
                     (Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h), a, b, c, d,
                     e, f, g, h)
TUTTI_MPI_EXPORT_NEW(Scatterv, LeaveUnknownCounts<Collective::scatterv>{},
                     (Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i), a, b,
                     c, d, e, f, g, h, i)
TUTTI_MPI_EXPORT_NEW(Reduce_scatter, take_reduce_scatter,
                     (Word a, Word b, Word c, Word d, Word e, Word f), a, b, c, d, e, f)
TUTTI_MPI_EXPORT_NEW(Reduce_scatter_block, take_reduce_scatter_block,
                     (Word a, Word b, Word c, Word d, Word e, Word f), a, b, c, d, e, f)
TUTTI_MPI_EXPORT_NEW(Scan, take_scan, (Word a, Word b, Word c, Word d, Word e, Word f), a, b, c, d,
                     e, f)
TUTTI_MPI_EXPORT_NEW(Exscan, take_exscan, (Word a, Word b, Word c, Word d, Word e, Word f), a, b, c,
                     d, e, f)
#if MPI_VERSION >= 4
TUTTI_MPI_EXPORT_NEW(Allgather_c, take_allgather,
                     (Word a, Word b, Word c, Word d, Word e, Word f, Word g), a, b, c, d, e, f, g)
TUTTI_MPI_EXPORT_NEW(Allgatherv_c, take_allgatherv_c,
                     (Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h), a, b, c, d,
                     e, f, g, h)
TUTTI_MPI_EXPORT_NEW(Alltoall_c, take_alltoall,
                     (Word a, Word b, Word c, Word d, Word e, Word f, Word g), a, b, c, d, e, f, g)
TUTTI_MPI_EXPORT_NEW(Alltoallv_c, LeaveUnknownCounts<Collective::alltoallv>{},
                     (Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i), a, b,
                     c, d, e, f, g, h, i)
TUTTI_MPI_EXPORT_NEW(Gather_c, take_gather,
                     (Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h), a, b, c, d,
                     e, f, g, h)
TUTTI_MPI_EXPORT_NEW(Gatherv_c, LeaveUnknownCounts<Collective::gatherv>{},
                     (Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i), a, b,
                     c, d, e, f, g, h, i)
TUTTI_MPI_EXPORT_NEW(Scatter_c, take_scatter,
                     (Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h), a, b, c, d,
                     e, f, g, h)
TUTTI_MPI_EXPORT_NEW(Scatterv_c, LeaveUnknownCounts<Collective::scatterv>{},
                     (Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i), a, b,
                     c, d, e, f, g, h, i)
TUTTI_MPI_EXPORT_NEW(Reduce_scatter_c, take_reduce_scatter_c,
                     (Word a, Word b, Word c, Word d, Word e, Word f), a, b, c, d, e, f)
TUTTI_MPI_EXPORT_NEW(Reduce_scatter_block_c, take_reduce_scatter_block,
                     (Word a, Word b, Word c, Word d, Word e, Word f), a, b, c, d, e, f)
TUTTI_MPI_EXPORT_NEW(Scan_c, take_scan, (Word a, Word b, Word c, Word d, Word e, Word f), a, b, c,
                     d, e, f)
TUTTI_MPI_EXPORT_NEW(Exscan_c, take_exscan, (Word a, Word b, Word c, Word d, Word e, Word f), a, b,
                     c, d, e, f)
#endif

namespace {

/// MPI_Init and its like by what comes next, and then the beginning of this library.
template <class Initialize>
int begin_after(Initialize&& initialize) {
  if (is_passing) return initialize();
  const Passage passage;
  const int result = initialize();
  if (result == MPI_SUCCESS) interposer().begin();
  return result;
}

template <class Finalize>
int end_before(Finalize&& finalize) {
  if (!is_passing) interposer().end();
  const Passage passage;
  return finalize();
}

}  // namespace

#define TUTTI_MPI_EXPORT_AROUND(around, name, parameters, arguments) \
  extern "C" int MPI_##name parameters {                             \
    return around([&] { return next_mpi().name arguments; });        \
  }                                                                  \
  extern "C" int PMPI_##name parameters {                            \
    return around([&] { return own_mpi().name arguments; });         \
  }

TUTTI_MPI_EXPORT_AROUND(begin_after, Init, (int* argument_count, char*** arguments),
                        (argument_count, arguments))
TUTTI_MPI_EXPORT_AROUND(begin_after, Init_thread,
                        (int* argument_count, char*** arguments, int required, int* provided),
                        (argument_count, arguments, required, provided))
TUTTI_MPI_EXPORT_AROUND(end_before, Finalize, (), ())

namespace {

/// Calls MPI's function, and looks at the info that it has given the communicator which `of`
/// returns.
template <class Communicator, class... Arguments>
int inform_after(Communicator&& of, Word info, int (*function)(Arguments...),
                 WordFor<Arguments>... words) {
  const bool is_new = !is_passing;
  const Passage passage;
  const auto whole_words = reinterpret_cast<void (*)()>(function);
  const int result = reinterpret_cast<int (*)(WordFor<Arguments>...)>(whole_words)(words...);
  if (is_new && result == MPI_SUCCESS && interposer().has_communicators())
    interposer().heed(of(), argument<MPI_Info>(info));
  return result;
}

MPI_Comm communicator_at(Word address) noexcept {
  return *argument<MPI_Comm*>(address);
}

}  // namespace

// As TUTTI_MPI_EXPORT: TUTTI_MPI_EXPORT_INFORMING(name, communicator, info, (parameters),
// arguments...)
#define TUTTI_MPI_EXPORT_INFORMING(name, communicator, info, parameters, ...)              \
  extern "C" int tutti_exported_MPI_##name parameters __asm__("MPI_" #name);               \
  extern "C" int tutti_exported_PMPI_##name parameters __asm__("PMPI_" #name);             \
  extern "C" int tutti_exported_MPI_##name parameters {                                    \
    return inform_after([&] { return communicator; }, info, next_mpi().name, __VA_ARGS__); \
  }                                                                                        \
  extern "C" int tutti_exported_PMPI_##name parameters {                                   \
    return inform_after([&] { return communicator; }, info, own_mpi().name, __VA_ARGS__);  \
  }

TUTTI_MPI_EXPORT_INFORMING(Comm_set_info, argument<MPI_Comm>(a), b, (Word a, Word b), a, b)
TUTTI_MPI_EXPORT_INFORMING(Comm_dup_with_info, communicator_at(c), b, (Word a, Word b, Word c), a,
                           b, c)
TUTTI_MPI_EXPORT_INFORMING(Comm_split_type, communicator_at(e), d,
                           (Word a, Word b, Word c, Word d, Word e), a, b, c, d, e)

int tutti_mpi_calls(const char* function, unsigned long long* taken, unsigned long long* passed) {
  // Where this library is there twice, the last one takes the calls.
  void* const next = dlsym(RTLD_NEXT, "tutti_mpi_calls");
  if (next != nullptr)
    return reinterpret_cast<decltype(&tutti_mpi_calls)>(next)(function, taken, passed);
  return interposer().calls(function, *taken, *passed) ? 0 : 1;
}
