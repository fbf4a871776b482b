// The symbols of MPI that this library stands in for.  MPI_X is what programs call, and MPICH's
// Fortran; PMPI_X what tools call, and Open MPI's Fortran.  What is not taken goes to whoever has
// the same symbol next.

#include <dlfcn.h>
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include "after_call.hpp"
#include "block_calls.hpp"
#include "calls.hpp"
#include "counters.h"
#include "framed_blocks.hpp"
#include "handles.hpp"
#include "interposer.hpp"
#include "loaded_mpi.hpp"
#include "persistent.hpp"
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

/// Returns the result of a call that was taken, where that may be an error or is none.
inline std::optional<int> result_of(bool is_taken) noexcept {
  return is_taken ? std::optional(MPI_SUCCESS) : std::nullopt;
}
inline std::optional<int> result_of(std::optional<int> result) noexcept {
  return result;
}

/// Takes the call whose arguments are those of MPI's `function`, or passes it on to that.
template <class Take, class... Arguments>
[[gnu::noinline]] int take_or_pass(Take take, int (*function)(Arguments...),
                                   WordFor<Arguments>... words) {
  const bool is_new = !is_passing;
  if (is_new)
    if (const std::optional<int> result = result_of(take(argument<Arguments>(words)...)))
      return *result;
  if (function == nullptr) return MPI_ERR_UNSUPPORTED_OPERATION;  // the MPI that runs has none
  const Passage passage;
  const auto whole_words = reinterpret_cast<void (*)()>(function);
  const int result = reinterpret_cast<int (*)(WordFor<Arguments>...)>(whole_words)(words...);
  if (is_new && after_call != nullptr) [[unlikely]]
    std::exchange(after_call, nullptr)(result);
  return result;
}

/// Likewise.  It is a function of its own so that a call which is the one before again saves no
/// registers for it.
template <const MpiFunctions& (*mpi)(), auto function, auto take, class... Words>
[[gnu::noinline]] int take_anew_or_pass(Words... words) {
  return take_or_pass(take, mpi().*function, words...);
}

}  // namespace

// Parameters and arguments of a function that has so many.
#define TUTTI_PARAMETERS_1 Word a
#define TUTTI_PARAMETERS_2 TUTTI_PARAMETERS_1, Word b
#define TUTTI_PARAMETERS_3 TUTTI_PARAMETERS_2, Word c
#define TUTTI_PARAMETERS_4 TUTTI_PARAMETERS_3, Word d
#define TUTTI_PARAMETERS_5 TUTTI_PARAMETERS_4, Word e
#define TUTTI_PARAMETERS_6 TUTTI_PARAMETERS_5, Word f
#define TUTTI_PARAMETERS_7 TUTTI_PARAMETERS_6, Word g
#define TUTTI_PARAMETERS_8 TUTTI_PARAMETERS_7, Word h
#define TUTTI_PARAMETERS_9 TUTTI_PARAMETERS_8, Word i
#define TUTTI_PARAMETERS_10 TUTTI_PARAMETERS_9, Word j
#define TUTTI_PARAMETERS_11 TUTTI_PARAMETERS_10, Word k
#define TUTTI_ARGUMENTS_1 a
#define TUTTI_ARGUMENTS_2 TUTTI_ARGUMENTS_1, b
#define TUTTI_ARGUMENTS_3 TUTTI_ARGUMENTS_2, c
#define TUTTI_ARGUMENTS_4 TUTTI_ARGUMENTS_3, d
#define TUTTI_ARGUMENTS_5 TUTTI_ARGUMENTS_4, e
#define TUTTI_ARGUMENTS_6 TUTTI_ARGUMENTS_5, f
#define TUTTI_ARGUMENTS_7 TUTTI_ARGUMENTS_6, g
#define TUTTI_ARGUMENTS_8 TUTTI_ARGUMENTS_7, h
#define TUTTI_ARGUMENTS_9 TUTTI_ARGUMENTS_8, i
#define TUTTI_ARGUMENTS_10 TUTTI_ARGUMENTS_9, j
#define TUTTI_ARGUMENTS_11 TUTTI_ARGUMENTS_10, k

// Both symbols of a function, under names that do not collide with what mpi.h declares.
#define TUTTI_MPI_EXPORT_BY(body, name, how, number) \
  TUTTI_MPI_EXPORT_NAMED("MPI_", body, name, how, number)
#define TUTTI_MPI_EXPORT_NAMED(prefix, body, name, how, number)                                   \
  extern "C" int tutti_exported_MPI_##name(TUTTI_PARAMETERS_##number) __asm__(prefix #name);      \
  extern "C" int tutti_exported_PMPI_##name(TUTTI_PARAMETERS_##number) __asm__("P" prefix #name); \
  extern "C" int tutti_exported_MPI_##name(TUTTI_PARAMETERS_##number) {                           \
    body(next_mpi, name, how, TUTTI_ARGUMENTS_##number)                                           \
  }                                                                                               \
  extern "C" int tutti_exported_PMPI_##name(TUTTI_PARAMETERS_##number) {                          \
    body(own_mpi, name, how, TUTTI_ARGUMENTS_##number)                                            \
  }
#define TUTTI_TAKE_AGAIN_OR_TAKE(mpi, name, collective, ...)                            \
  if (Again<decltype(MpiFunctions::name)>::takes(take_again_##collective, __VA_ARGS__)) \
    return MPI_SUCCESS;                                                                 \
  return take_anew_or_pass<mpi, &MpiFunctions::name, take_##collective>(__VA_ARGS__);
#define TUTTI_TAKE(mpi, name, collective, ...) \
  return take_or_pass(take_##collective, mpi().name, __VA_ARGS__);

// The name, what takes it, and how many arguments it has.  AGAIN: a call that is the one before
// again is taken without looking anything up.
#define TUTTI_MPI_EXPORT_AGAIN(name, collective, number) \
  TUTTI_MPI_EXPORT_BY(TUTTI_TAKE_AGAIN_OR_TAKE, name, collective, number)
#define TUTTI_MPI_EXPORT(name, collective, number) \
  TUTTI_MPI_EXPORT_BY(TUTTI_TAKE, name, collective, number)

// Likewise, and the form with large counts, where MPI has it.
#if MPI_VERSION >= 4
#define TUTTI_AND_LARGE(export_one, name, collective, number) \
  export_one(name, collective, number) export_one(name##_c, collective, number)
#define TUTTI_OR_LARGE(export_one, name, collective, number) \
  export_one(name, collective, number) export_one(name##_c, collective##_c, number)
#else
#define TUTTI_AND_LARGE(export_one, name, collective, number) export_one(name, collective, number)
#define TUTTI_OR_LARGE TUTTI_AND_LARGE
#endif

TUTTI_MPI_EXPORT_AGAIN(Barrier, barrier, 1)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT_AGAIN, Allreduce, allreduce, 6)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT_AGAIN, Bcast, broadcast, 5)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT_AGAIN, Reduce, reduce, 7)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT, Scan, scan, 6)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT, Exscan, exscan, 6)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT, Allgather, allgather, 7)
TUTTI_OR_LARGE(TUTTI_MPI_EXPORT, Allgatherv, allgatherv, 8)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT, Alltoall, alltoall, 7)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT, Alltoallv, alltoallv, 9)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT, Gather, gather, 8)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT, Gatherv, gatherv, 9)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT, Scatter, scatter, 8)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT, Scatterv, scatterv, 9)
TUTTI_OR_LARGE(TUTTI_MPI_EXPORT, Reduce_scatter, reduce_scatter, 6)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT, Reduce_scatter_block, reduce_scatter_block, 6)
TUTTI_MPI_EXPORT(Ibarrier, ibarrier, 2)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT, Iallreduce, iallreduce, 7)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT, Ibcast, ibroadcast, 6)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT, Ireduce, ireduce, 8)

// Persistent collectives, by the prefix that this MPI has for them.  LEFT: the call is counted, and
// left to MPI.
#define TUTTI_LEAVE_INIT(mpi, name, collective, ...) \
  return take_or_pass(LeavePersistent<Collective::collective>{}, mpi().name, __VA_ARGS__);
#define TUTTI_TEXT_OF(prefix) #prefix "_"
#define TUTTI_TEXT(prefix) TUTTI_TEXT_OF(prefix)
#define TUTTI_MPI_EXPORT_INIT(name, collective, number) \
  TUTTI_MPI_EXPORT_NAMED(TUTTI_TEXT(TUTTI_MPI_INIT_PREFIX), TUTTI_TAKE, name, collective, number)
#define TUTTI_MPI_EXPORT_INIT_LEFT(name, collective, number)                                    \
  TUTTI_MPI_EXPORT_NAMED(TUTTI_TEXT(TUTTI_MPI_INIT_PREFIX), TUTTI_LEAVE_INIT, name, collective, \
                         number)
#ifdef TUTTI_MPI_INIT_PREFIX
TUTTI_MPI_EXPORT_INIT(Barrier_init, barrier_init, 3)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT_INIT, Allreduce_init, allreduce_init, 8)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT_INIT, Bcast_init, broadcast_init, 7)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT_INIT, Reduce_init, reduce_init, 9)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT_INIT_LEFT, Allgather_init, allgather_init, 9)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT_INIT_LEFT, Allgatherv_init, allgatherv_init, 10)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT_INIT_LEFT, Alltoall_init, alltoall_init, 9)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT_INIT_LEFT, Alltoallv_init, alltoallv_init, 11)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT_INIT_LEFT, Alltoallw_init, alltoallw_init, 11)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT_INIT_LEFT, Gather_init, gather_init, 10)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT_INIT_LEFT, Gatherv_init, gatherv_init, 11)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT_INIT_LEFT, Scatter_init, scatter_init, 10)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT_INIT_LEFT, Scatterv_init, scatterv_init, 11)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT_INIT_LEFT, Reduce_scatter_init, reduce_scatter_init, 8)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT_INIT_LEFT, Reduce_scatter_block_init, reduce_scatter_block_init, 8)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT_INIT_LEFT, Scan_init, scan_init, 8)
TUTTI_AND_LARGE(TUTTI_MPI_EXPORT_INIT_LEFT, Exscan_init, exscan_init, 8)
#endif

TUTTI_MPI_EXPORT(Op_free, op_free, 1)
TUTTI_MPI_EXPORT(Type_free, type_free, 1)

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

/// Says as MPI does that a request cannot be used so.
int refuse_request(int error = MPI_ERR_REQUEST) {
  own_mpi().Comm_call_errhandler(handles().world, error);
  return error;
}

/// MPI starts the requests by `start`, and then tutti its own among them.
template <class Start>
int start_requests(Start&& start, int count, const MPI_Request* requests) {
  const bool is_ours = !is_passing && persistent_requests != 0 && requests != nullptr;
  if (is_ours && is_one_started(count, requests)) return refuse_request();
  const Passage passage;
  const int result = start();
  if (!is_ours || result != MPI_SUCCESS) return result;
  const int refused = start_persistent(count, requests);
  return refused == MPI_SUCCESS ? MPI_SUCCESS : refuse_request(refused);
}

/// Tutti completes its requests, and then MPI finds nothing left to wait for in them.
template <class Wait>
int wait_requests(Wait&& wait, int count, const MPI_Request* requests) {
  if (!is_passing && has_requests() && requests != nullptr) complete_requests(count, requests);
  return wait();
}

template <class Free>
int free_request(Free&& free, const MPI_Request* request) {
  if (is_passing || request == nullptr || !is_persistent_request(*request)) return free();
  const MPI_Request freed = *request;
  const Passage passage;
  const int result = free();
  if (result == MPI_SUCCESS) forget_persistent(freed);
  return result;
}

template <class Cancel>
int cancel_request(Cancel&& cancel, const MPI_Request* request) {
  const bool is_ours = !is_passing && request != nullptr && is_persistent_request(*request);
  return is_ours ? refuse_request() : cancel();
}

}  // namespace

#define TUTTI_MPI_EXPORT_REQUEST(around, name, parameters, arguments, ...) \
  extern "C" int MPI_##name parameters {                                   \
    return around([&] { return next_mpi().name arguments; }, __VA_ARGS__); \
  }                                                                        \
  extern "C" int PMPI_##name parameters {                                  \
    return around([&] { return own_mpi().name arguments; }, __VA_ARGS__);  \
  }

TUTTI_MPI_EXPORT_REQUEST(start_requests, Start, (MPI_Request * request), (request), 1, request)
TUTTI_MPI_EXPORT_REQUEST(start_requests, Startall, (int count, MPI_Request* requests),
                         (count, requests), count, requests)
TUTTI_MPI_EXPORT_REQUEST(wait_requests, Wait, (MPI_Request * request, MPI_Status* status),
                         (request, status), 1, request)
TUTTI_MPI_EXPORT_REQUEST(wait_requests, Waitall,
                         (int count, MPI_Request* requests, MPI_Status* statuses),
                         (count, requests, statuses), count, requests)
TUTTI_MPI_EXPORT_REQUEST(free_request, Request_free, (MPI_Request * request), (request), request)
TUTTI_MPI_EXPORT_REQUEST(cancel_request, Cancel, (MPI_Request * request), (request), request)

namespace {

/// Which arguments of a function are a communicator and the info that it gets.
struct Informed {
  std::size_t communicator;
  bool is_address;  // of the communicator, which is made
  std::size_t info;
};
constexpr Informed itself{0, false, 1}, duplicate{2, true, 1}, part{4, true, 3};

/// Calls MPI's function, and looks at the info then.
template <class... Arguments>
int inform_after(const Informed& which, int (*function)(Arguments...),
                 WordFor<Arguments>... words) {
  const bool is_new = !is_passing;
  const Passage passage;
  const auto whole_words = reinterpret_cast<void (*)()>(function);
  const int result = reinterpret_cast<int (*)(WordFor<Arguments>...)>(whole_words)(words...);
  if (!is_new || result != MPI_SUCCESS || !interposer().has_communicators()) return result;
  const Word all[] = {words...};
  const Word communicator = all[which.communicator];
  interposer().heed(
      which.is_address ? *argument<MPI_Comm*>(communicator) : argument<MPI_Comm>(communicator),
      argument<MPI_Info>(all[which.info]));
  return result;
}

}  // namespace

#define TUTTI_INFORM(mpi, name, which, ...) return inform_after(which, mpi().name, __VA_ARGS__);
#define TUTTI_MPI_EXPORT_INFORMING(name, which, number) \
  TUTTI_MPI_EXPORT_BY(TUTTI_INFORM, name, which, number)

TUTTI_MPI_EXPORT_INFORMING(Comm_set_info, itself, 2)
TUTTI_MPI_EXPORT_INFORMING(Comm_dup_with_info, duplicate, 3)
TUTTI_MPI_EXPORT_INFORMING(Comm_split_type, part, 5)

int tutti_mpi_calls(const char* function, unsigned long long* taken, unsigned long long* passed) {
  // Where this library is there twice, the last one takes the calls.
  void* const next = dlsym(RTLD_NEXT, "tutti_mpi_calls");
  if (next != nullptr)
    return reinterpret_cast<decltype(&tutti_mpi_calls)>(next)(function, taken, passed);
  return interposer().calls(function, *taken, *passed) ? 0 : 1;
}
