#include "requests.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "admission.hpp"
#include "handles.hpp"
#include "interposer.hpp"
#include "loaded_mpi.hpp"
#include "persistent.hpp"
#include "predefined.hpp"
#include "progress_hook.hpp"
#include "running.hpp"
#include "tutti/status.hpp"
#include "verification.hpp"

namespace tutti::interposer {

namespace {

/// After so many steps without one that brought a call to its end, every so many give the core to
/// others: ranks may be more than cores, and MPIs wait without ever yielding.
constexpr std::uint64_t steps_before_yield = 1024;
constexpr std::uint64_t steps_between_yields = 32;

/// Handles of the program that calls in flight need.  MPI would keep what it needs for itself; here
/// the program's free is put off, which it does not see: its handle becomes null.  A duplicate
/// would not do, because users' operators may compare the type with their own.
template <class Handle>
class HeldHandles {
 public:
  void hold(Handle handle) {
    if (Entry* const found = find(handle))
      ++found->users;
    else
      entries_.push_back({handle, 1, false});
  }

  /// Whether it is to be freed now.
  bool release(Handle handle) {
    Entry* const found = find(handle);
    if (--found->users > 0) return false;
    const bool is_freed = found->is_freed;
    *found = entries_.back();
    entries_.pop_back();
    return is_freed;
  }

  /// The program frees it; false if nothing needs it.
  bool put_off(Handle handle) {
    Entry* const found = find(handle);
    if (found == nullptr) return false;
    found->is_freed = true;
    return true;
  }

 private:
  struct Entry {
    Handle handle;
    std::uint64_t users;
    bool is_freed;
  };
  Entry* find(Handle handle) {
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return entry.handle == handle; });
    return found == entries_.end() ? nullptr : &*found;
  }

  std::vector<Entry> entries_;
};

Buffers buffers_of(const Call& call, const ProgramCommunicator& communicator) {
  const bool is_root = has_root(call.collective) && communicator.rank() == call.root;
  return buffers_of(blocking(call.collective), is_root, call.source, call.target);
}

struct Requests {
  std::vector<Shape*> in_flight;  // instances
  std::size_t watched = 0;        // the one that looks for dead peers next
  std::uint64_t idle_steps = 0;   // in which nothing was done
  bool is_at_rest = false;        // or in progress_requests()
  bool is_hooked = false;
  std::vector<Request*> unused;
  HeldHandles<MPI_Op> ops;
  HeldHandles<MPI_Datatype> types;
  std::vector<std::unique_ptr<ProgramCommunicator>> kept;
};

Requests& requests() {
  static Requests* const all = new Requests;  // as the interposer
  return *all;
}

[[noreturn]] void end_job(const Request& request, Status status) {
  std::fprintf(stderr, "tutti: %s: %s; %s\n", name_of(request.call.collective), name_of(status),
               request.communicator->failure().text);
  own_mpi().Abort(handles().world, 1);
  std::abort();  // MPI_Abort does not return
}

bool is_broadcast(const Request& request) {
  return blocking(request.call.collective) == Collective::broadcast;
}

// The call's own communicator may be gone; it only says how elements are packed.
void copy_laid_out(const Request& request, const void* from, void* to, bool from_program) {
  Call call = request.call;
  call.communicator = handles().self;
  copy_elements(from, to, call, from_program, is_broadcast(request));
}

/// Starts the first call of an instance.
void start_first(Shape& instance) {
  const Request& request = *instance.requests.front();
  instance.type_of_call = request.call.type;
  instance.op_of_call = request.call.op;
  const void* in = request.buffers.source;
  void* out = request.buffers.target;
  if (request.is_staged || request.is_laid_out) {
    std::byte* const room_in = room(instance.source, instance.key.bytes());
    if (in != no_buffer && request.is_laid_out)
      copy_laid_out(request, in, room_in, true);
    else if (in != no_buffer)
      std::memcpy(room_in, in, request.bytes);
    in = room_in;
    out = is_broadcast(request) ? room_in : room(instance.target, instance.key.bytes());
  } else if (is_broadcast(request)) {
    in = out = request.call.target;
  }
  const bool is_same = in == instance.last_source && out == instance.last_target;
  instance.last_source = in;
  instance.last_target = out;
  const Status status = is_same ? instance.operation->start() : instance.operation->start(in, out);
  if (status != Status::ok) end_job(request, status);
}

/// The first call of an instance is done.
void finish_first(Shape& instance) {
  Request* const request = instance.requests.front();
  instance.requests.erase(instance.requests.begin());
  void* const target = request->buffers.target;
  if (target != no_buffer && (request->is_laid_out || request->is_staged)) {
    const std::byte* const out =
        is_broadcast(*request) ? instance.source.data() : instance.target.data();
    if (request->is_laid_out)
      copy_laid_out(*request, out, target, false);
    else
      std::memcpy(target, out, request->bytes);
  }
  if (request->verification != nullptr) {
    request->verification->compare();
    delete std::exchange(request->verification, nullptr);
  }
  if (request->persistent != nullptr) return finish_persistent(*request->persistent);
  release_handles(*request);
  --request->communicator->calls_in_flight;
  const MPI_Request handle = request->handle;
  requests().unused.push_back(request);
  own_mpi().Grequest_complete(handle);
}

/// Finishes, and starts, what can be; whether the instance has nothing left.
bool advance(Shape& instance) {
  while (!instance.operation->in_flight()) {
    Verification* const verification = instance.requests.front()->verification;
    if (verification != nullptr && !verification->is_mpi_done()) return false;
    const Status status = instance.operation->test();
    if (status != Status::ok) end_job(*instance.requests.front(), status);
    finish_first(instance);
    if (instance.requests.empty()) return true;
    start_first(instance);
  }
  return false;
}

int query(void*, MPI_Status* status) {
  own_mpi().Status_set_elements(status, handles().byte, 0);
  own_mpi().Status_set_cancelled(status, 0);
  status->MPI_SOURCE = MPI_UNDEFINED;
  status->MPI_TAG = MPI_UNDEFINED;
  return MPI_SUCCESS;
}
int free_nothing(void*) {
  return MPI_SUCCESS;
}
int cancel_nothing(void*, int) {
  return MPI_SUCCESS;
}

#ifdef OPEN_MPI
void start_generalized_request(MPI_Request* handle) {
  own_mpi().Grequest_start(query, free_nothing, cancel_nothing, nullptr, handle);
}
#else
// MPI_Waitall of MPICH ends the program where a generalised request is not complete and another one
// is null, unless it knows how to wait: it calls this until the request is complete, and MPI_Wait
// the other one.
int wait_a_little(int, void**, double, MPI_Status*) {
  progress_mpi();
  return MPI_SUCCESS;
}
int look(void*, MPI_Status*) {
  progress_mpi();
  return MPI_SUCCESS;
}

void start_generalized_request(MPI_Request* handle) {
  static const auto start_extended =
      reinterpret_cast<decltype(&PMPIX_Grequest_start)>(function_of_mpi("PMPIX_Grequest_start"));
  if (start_extended != nullptr)
    start_extended(query, free_nothing, cancel_nothing, look, wait_a_little, nullptr, handle);
  else
    own_mpi().Grequest_start(query, free_nothing, cancel_nothing, nullptr, handle);
}
#endif

MPI_Request start_call(Shape& instance, const Request& call) {
  std::vector<Request*>& unused = requests().unused;
  if (unused.empty()) unused.push_back(new Request);
  Request& request = *unused.back();
  unused.pop_back();
  request = call;
  start_generalized_request(&request.handle);
  const MPI_Request handle = request.handle;
  ++request.communicator->calls_in_flight;
  hold_handles(request);
  start_request(instance, request);
  return handle;
}

/// The last call of a kind that was taken: one with the same arguments, but for its buffers, is
/// taken without looking anything up.
struct LastCall {
  Request request = {};
  Shape* shape = nullptr;
  CallCounts* counts = nullptr;
};
LastCall last_calls_of_kinds[4];

LastCall& last_call(Collective collective) {
  static_assert(std::size(last_calls_of_kinds) ==
                static_cast<std::size_t>(Collective::ireduce) -
                    static_cast<std::size_t>(Collective::ibarrier) + 1);
  return last_calls_of_kinds[static_cast<std::size_t>(collective) -
                             static_cast<std::size_t>(Collective::ibarrier)];
}

bool is_again(const Call& call, const LastCall& last) {
  const Call& before = last.request.call;
  return last.shape != nullptr && before.communicator == call.communicator &&
         before.count == call.count && before.type == call.type && before.op == call.op &&
         before.root == call.root;
}

MPI_Request run(const LastCall& way) {
  Shape& shape = *way.shape;
  ++way.counts->taken;
  way.counts->bytes_taken += way.request.bytes;
  return start_call(*shape.instances[shape.nonblocking++ % instances_max], way.request);
}

bool take(const Call& call, MPI_Request* request) {
  LastCall& last = last_call(call.collective);
  if (is_again(call, last)) [[likely]] {
    last.shape->count_call();
    last.request.call = call;
    last.request.buffers = buffers_of(call, *last.request.communicator);
    *request = run(last);
    return true;
  }
  const Admission admission = admit(call.collective, call.communicator, call.root);
  if (admission.communicator == nullptr) return leave(call, admission.why_left);
  ProgramCommunicator& communicator = *admission.communicator;
  const Signature signature = signature_of(call);
  if (signature.is_left) return leave(call, signature.reason);
  const Found found = find_operation(communicator, signature.key, false);
  if (found.shape == nullptr) return leave(call, found.why_left, found.reported_as);
  LastCall way{.request = request_of(call, signature, found.shape->key, communicator),
               .shape = found.shape,
               .counts = &interposer().counts(call.collective)};
  if (interposer().settings().mode == Mode::verify) {
    if (start_verification(call, way.request) != MPI_SUCCESS) return leave(call, Reason::undefined);
  } else if (signature.is_predefined) {
    last = way;
  }
  *request = run(way);
  return true;
}

/// Frees `handle` when no call in flight needs it any more; false if none does now.
template <class Handle>
bool put_off(HeldHandles<Handle>& held, Handle* handle, Handle Handles::*none) {
  if (handle == nullptr || !held.put_off(*handle)) return false;
  *handle = handles().*none;
  return true;
}

}  // namespace

Request request_of(const Call& call, const Signature& signature, const ShapeKey& key,
                   ProgramCommunicator& communicator) {
  const bool needs_type = signature.is_laid_out || key.combining != Combining::own;
  return {
      .call = call,
      .type = call.type,
      .buffers = buffers_of(call, communicator),
      .bytes = signature.bytes,
      .is_laid_out = signature.is_laid_out,
      .is_staged = !signature.is_laid_out && key.bytes() != signature.bytes,
      .holds_type = call.type != MPI_Datatype{} && needs_type && find_type(call.type) == nullptr,
      .holds_op = call.op != MPI_Op{} && find_operator(call.op) == nullptr,
      .communicator = &communicator,
      .handle = {},
      .persistent = nullptr,
      .verification = nullptr};
}

int start_verification(const Call& call, Request& request) {
  auto verification = std::make_unique<Verification>();
  request.call = verification->begin(call, *request.communicator);
  request.buffers = buffers_of(request.call, *request.communicator);
  const int result = verification->start_mpi(call);
  if (result == MPI_SUCCESS) request.verification = verification.release();
  return result;
}

void hold_handles(const Request& request) {
  if (request.holds_op) requests().ops.hold(request.call.op);
  if (request.holds_type) requests().types.hold(request.type);
}

void release_handles(Request& request) {
  Requests& all = requests();
  if (request.holds_op && all.ops.release(request.call.op)) own_mpi().Op_free(&request.call.op);
  if (request.holds_type && all.types.release(request.type)) own_mpi().Type_free(&request.type);
}

void start_request(Shape& instance, Request& request) noexcept {
  Requests& all = requests();
  if (!all.is_hooked) {
    hook_progress(progress_requests);
    all.is_hooked = true;
  }
  const bool is_idle = instance.requests.empty();
  instance.requests.push_back(&request);
  if (is_idle) {
    start_first(instance);
    all.in_flight.push_back(&instance);
  }
  if (!instance.operation->in_flight()) progress_requests();
}

bool take_ibarrier(MPI_Comm communicator, MPI_Request* request) noexcept {
  return take({.collective = Collective::ibarrier, .communicator = communicator}, request);
}

bool take_iallreduce(const void* source, void* target, std::int64_t count, MPI_Datatype type,
                     MPI_Op op, MPI_Comm communicator, MPI_Request* request) noexcept {
  return take({.collective = Collective::iallreduce,
               .source = source,
               .target = target,
               .count = count,
               .type = type,
               .op = op,
               .communicator = communicator},
              request);
}

bool take_ibroadcast(void* buffer, std::int64_t count, MPI_Datatype type, int root,
                     MPI_Comm communicator, MPI_Request* request) noexcept {
  return take({.collective = Collective::ibroadcast,
               .source = buffer,
               .target = buffer,
               .count = count,
               .type = type,
               .root = root,
               .communicator = communicator},
              request);
}

bool take_ireduce(const void* source, void* target, std::int64_t count, MPI_Datatype type,
                  MPI_Op op, int root, MPI_Comm communicator, MPI_Request* request) noexcept {
  return take({.collective = Collective::ireduce,
               .source = source,
               .target = target,
               .count = count,
               .type = type,
               .op = op,
               .root = root,
               .communicator = communicator},
              request);
}

void forget_fast_ways_of_requests() noexcept {
  for (LastCall& last : last_calls_of_kinds) last = {};
}

bool take_op_free(MPI_Op* op) noexcept {
  return put_off(requests().ops, op, &Handles::no_op);
}

bool take_type_free(MPI_Datatype* type) noexcept {
  return put_off(requests().types, type, &Handles::no_type);
}

void progress_requests() noexcept {
  Requests& all = requests();
  if (all.in_flight.empty() || all.is_at_rest) return;
  const RequestsAtRest at_rest;
  // Progress on one is progress on all, but each communicator has its own peers to look after.
  all.watched = all.watched + 1 < all.in_flight.size() ? all.watched + 1 : 0;
  (void)all.in_flight[all.watched]->operation->test();
  for (std::size_t i = 0; i < all.in_flight.size();) {
    if (!advance(*all.in_flight[i])) {
      ++i;
      continue;
    }
    all.idle_steps = 0;
    all.in_flight[i] = all.in_flight.back();
    all.in_flight.pop_back();
  }
  if (++all.idle_steps > steps_before_yield && all.idle_steps % steps_between_yields == 0)
    sched_yield();
}

void complete_requests(const Shape& instance) noexcept {
  while (!instance.requests.empty()) {
    progress_mpi();
    progress_requests();
  }
}

bool has_requests() noexcept {
  return !requests().in_flight.empty();
}

namespace {

Shape* instance_of(MPI_Request handle) {
  for (Shape* const instance : requests().in_flight)
    for (const Request* const request : instance->requests)
      if (request->handle == handle) return instance;
  return nullptr;
}

}  // namespace

void complete_requests(int count, const MPI_Request* handles_of) noexcept {
  if (requests().is_at_rest) return;
  for (int i = 0; i < count; ++i) {
    Timeout patience = before_mpi;
    while (Shape* const instance = instance_of(handles_of[i])) {
      if (instance->operation->wait(patience) == Status::timed_out) {
        progress_mpi();
        patience = between_mpi;
      }
      progress_requests();
    }
  }
}

void keep_while_in_flight(std::unique_ptr<ProgramCommunicator> communicator) {
  requests().kept.push_back(std::move(communicator));
}

std::vector<std::unique_ptr<ProgramCommunicator>> kept_without_calls() {
  std::vector<std::unique_ptr<ProgramCommunicator>>& kept = requests().kept;
  const auto end = std::partition(kept.begin(), kept.end(),
                                  [](const auto& one) { return one->calls_in_flight > 0; });
  std::vector<std::unique_ptr<ProgramCommunicator>> without(std::make_move_iterator(end),
                                                            std::make_move_iterator(kept.end()));
  kept.erase(end, kept.end());
  return without;
}

void end_requests() noexcept {
  const auto begin = std::chrono::steady_clock::now();
  while (!requests().in_flight.empty() &&
         std::chrono::steady_clock::now() - begin < std::chrono::seconds(1)) {
    progress_mpi();
    progress_requests();
  }
  own_mpi().Barrier(handles().world);
  // The calls that are left cannot be done: a rank has not made them.
  requests().in_flight.clear();
  end_persistent();
  requests().kept.clear();
}

RequestsAtRest::RequestsAtRest() noexcept : was_at_rest_(requests().is_at_rest) {
  requests().is_at_rest = true;
}

RequestsAtRest::~RequestsAtRest() {
  requests().is_at_rest = was_at_rest_;
}

}  // namespace tutti::interposer
