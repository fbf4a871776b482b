#include "persistent.hpp"

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "admission.hpp"
#include "handles.hpp"
#include "interposer.hpp"
#include "loaded_mpi.hpp"
#include "persistent_operations.hpp"
#include "signature.hpp"

namespace tutti::interposer {

struct Persistent {
  Request request;  // what each start does
  PersistentOperations::Slot* slot;
  CallCounts* counts;
  int tag;                          // of its message
  std::optional<Call> of_mpi = {};  // with TUTTI_MPI=verify: the call on the slot's communicator
  bool is_freed = false;
};

constinit std::size_t persistent_requests = 0;

namespace {

/// So many tags every MPI has.
constexpr std::size_t tags_max = 32767;

struct PersistentRequests {
  MPI_Comm itself = handles().no_comm;  // of this rank alone
  std::vector<std::unique_ptr<Persistent>> by_tag;
  std::unordered_map<MPI_Request, Persistent*> by_handle;
  MPI_Request last_handle{};  // which was looked for
  Persistent* last = nullptr;
};

PersistentRequests& all_persistent() {
  static PersistentRequests* const all = new PersistentRequests;  // as the interposer
  return *all;
}

Persistent* find(MPI_Request handle) {
  PersistentRequests& all = all_persistent();
  if (all.last != nullptr && all.last_handle == handle) return all.last;
  const auto found = all.by_handle.find(handle);
  if (found == all.by_handle.end()) return nullptr;
  all.last_handle = handle;
  return all.last = found->second;
}

/// A duplicate of MPI_COMM_SELF would copy what the program has attached to that.
bool has_itself() {
  MPI_Comm& itself = all_persistent().itself;
  return itself != handles().no_comm ||
         own_mpi().Comm_split(handles().self, 0, 0, &itself) == MPI_SUCCESS;
}

int unused_tag() {
  auto& by_tag = all_persistent().by_tag;
  for (std::size_t tag = 0; tag < by_tag.size(); ++tag)
    if (!by_tag[tag]) return static_cast<int>(tag);
  by_tag.emplace_back();
  return static_cast<int>(by_tag.size()) - 1;
}

bool has_tags() {
  return persistent_requests < tags_max;
}

MPI_Request make_request(const Call& call, const Signature& signature,
                         ProgramCommunicator& communicator, PersistentOperations::Slot& slot) {
  PersistentRequests& all = all_persistent();
  const int tag = unused_tag();
  std::unique_ptr<Persistent>& made = all.by_tag[static_cast<std::size_t>(tag)];
  made = std::make_unique<Persistent>(
      Persistent{.request = request_of(call, signature, slot.instance->key, communicator),
                 .slot = &slot,
                 .counts = &interposer().counts(call.collective),
                 .tag = tag});
  Request& request = made->request;
  request.persistent = made.get();
  if (slot.for_verify != handles().no_comm) {
    made->of_mpi = call;
    made->of_mpi->communicator = slot.for_verify;
  }
  hold_handles(request);
  ++communicator.calls_in_flight;
  own_mpi().Recv_init(nullptr, 0, handles().byte, 0, tag, all.itself, &request.handle);
  all.by_handle.emplace(request.handle, made.get());
  ++persistent_requests;
  return request.handle;
}

/// Nobody needs it any more.
void end(Persistent& persistent) {
  release_handles(persistent.request);
  --persistent.request.communicator->calls_in_flight;
  persistent.slot->is_used = false;
  all_persistent().by_tag[static_cast<std::size_t>(persistent.tag)].reset();
}

bool is_started(const Persistent& persistent) {
  return !persistent.slot->instance->requests.empty();
}

/// As leave(), but report does not time an ..._init, which is no call that takes long.
bool leave_init(const Call& call, Reason reason) {
  CallCounts& counts = interposer().counts(call.collective);
  counts.pass(reason);
  if (interposer().reports()) counts.bytes_passed += payload_of(call);
  return false;
}

Reason reason_of(PersistentOperations::Refusal why, const ProgramCommunicator& communicator) {
  if (communicator.passing() != Passing::no) return Reason::communicators;
  if (why == PersistentOperations::Refusal::requests) return Reason::requests;
  if (why == PersistentOperations::Refusal::not_compared) return Reason::not_compared;
  return why == PersistentOperations::Refusal::later ? Reason::first_calls : Reason::refused;
}

bool take(const Call& call, MPI_Request* request) {
  if (request == nullptr) return leave_init(call, Reason::undefined);
  Interposer& interposed = interposer();
  const Admission admission = admit(call.collective, call.communicator, call.root);
  if (admission.communicator == nullptr) return leave_init(call, admission.why_left);
  const Signature signature = signature_of(call);
  if (signature.is_left) return leave_init(call, signature.reason);
  if (interposed.reports()) return leave_init(call, Reason::reported);
  const PersistentOperations::Claimed claimed = interposed.claim_persistent(
      *admission.communicator, signature.key, has_tags() && has_itself());
  if (claimed.slot == nullptr)
    return leave_init(call, reason_of(claimed.why_not, *admission.communicator));
  *request = make_request(call, signature, *admission.communicator, *claimed.slot);
  return true;
}

}  // namespace

bool take_barrier_init(MPI_Comm communicator, MPI_Info, MPI_Request* request) noexcept {
  return take({.collective = Collective::barrier_init, .communicator = communicator}, request);
}

bool take_allreduce_init(const void* source, void* target, std::int64_t count, MPI_Datatype type,
                         MPI_Op op, MPI_Comm communicator, MPI_Info,
                         MPI_Request* request) noexcept {
  return take({.collective = Collective::allreduce_init,
               .source = source,
               .target = target,
               .count = count,
               .type = type,
               .op = op,
               .communicator = communicator},
              request);
}

bool take_broadcast_init(void* buffer, std::int64_t count, MPI_Datatype type, int root,
                         MPI_Comm communicator, MPI_Info, MPI_Request* request) noexcept {
  return take({.collective = Collective::broadcast_init,
               .source = buffer,
               .target = buffer,
               .count = count,
               .type = type,
               .root = root,
               .communicator = communicator},
              request);
}

bool take_reduce_init(const void* source, void* target, std::int64_t count, MPI_Datatype type,
                      MPI_Op op, int root, MPI_Comm communicator, MPI_Info,
                      MPI_Request* request) noexcept {
  return take({.collective = Collective::reduce_init,
               .source = source,
               .target = target,
               .count = count,
               .type = type,
               .op = op,
               .root = root,
               .communicator = communicator},
              request);
}

bool leave_persistent(Collective collective) noexcept {
  Interposer& interposed = interposer();
  interposed.counts(collective)
      .pass(interposed.takes_calls() || interposed.reports() ? Reason::not_persistent
                                                             : interposed.why_not());
  return false;
}

bool is_one_started(int count, const MPI_Request* requests) noexcept {
  for (int i = 0; i < count; ++i) {
    const Persistent* const persistent = find(requests[i]);
    if (persistent != nullptr && is_started(*persistent)) return true;
  }
  return false;
}

int start_persistent(int count, const MPI_Request* requests) noexcept {
  int refused = MPI_SUCCESS;
  for (int i = 0; i < count; ++i) {
    Persistent* const persistent = find(requests[i]);
    if (persistent == nullptr) continue;
    if (persistent->of_mpi) {
      const int result = start_verification(*persistent->of_mpi, persistent->request);
      if (result != MPI_SUCCESS) {
        refused = result;
        finish_persistent(*persistent);
        continue;
      }
    }
    ++persistent->counts->taken;
    persistent->counts->bytes_taken += persistent->request.bytes;
    start_request(*persistent->slot->instance, persistent->request);
  }
  return refused;
}

bool is_persistent_request(MPI_Request request) noexcept {
  return persistent_requests != 0 && find(request) != nullptr;
}

void forget_persistent(MPI_Request request) noexcept {
  PersistentRequests& all = all_persistent();
  Persistent* const persistent = find(request);
  all.by_handle.erase(request);
  all.last = nullptr;
  --persistent_requests;
  persistent->is_freed = true;
  persistent->request.handle = {};  // which may be another request's soon
  if (!is_started(*persistent)) end(*persistent);
}

// MPI calls this in the middle of its progress.  The receive is there, so that nothing waits.
void finish_persistent(Persistent& persistent) noexcept {
  own_mpi().Send(nullptr, 0, handles().byte, 0, persistent.tag, all_persistent().itself);
  if (persistent.is_freed) end(persistent);
}

void end_persistent() noexcept {
  PersistentRequests& all = all_persistent();
  for (std::unique_ptr<Persistent>& persistent : all.by_tag) {
    if (!persistent) continue;
    // What was not done by now cannot be: a rank has not started it.
    if (is_started(*persistent))
      own_mpi().Send(nullptr, 0, handles().byte, 0, persistent->tag, all.itself);
    if (!persistent->is_freed) own_mpi().Request_free(&persistent->request.handle);
    release_handles(persistent->request);
  }
  all.by_tag.clear();
  all.by_handle.clear();
  all.last = nullptr;
  persistent_requests = 0;
  if (all.itself != handles().no_comm) own_mpi().Comm_free(&all.itself);
}

}  // namespace tutti::interposer
