#include "interposer.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>

#include "calls.hpp"
#include "handles.hpp"
#include "loaded_mpi.hpp"
#include "progress_hook.hpp"
#include "report.hpp"
#include "requests.hpp"
#include "table.hpp"
#include "tutti/status.hpp"

/// Found by another interposer that was loaded before this one, which then takes nothing.
extern "C" {
__attribute__((visibility("default"))) extern const char tutti_mpi_interposer[];
const char tutti_mpi_interposer[] = "libtutti-mpi " TUTTI_VERSION;
}

namespace tutti::interposer {
namespace {

int forget_communicator(MPI_Comm handle, int, void*, void*) {
  interposer().forget(handle);
  return MPI_SUCCESS;
}

// MPI-1's null function, which Open MPI and MPICH have as macros over symbols of theirs.
int do_not_copy(MPI_Comm, int, void*, void*, void*, int* flag) {
  *flag = 0;
  return MPI_SUCCESS;
}

/// So many communicators that the program has freed are kept for a while.
constexpr std::size_t freed_max = 4;

/// What ranks have to have alike, in one number each; the last number need not be.
struct Alike {
  int values[6];
};

}  // namespace

const char* name_of(Reason reason) {
  switch (reason) {
    case Reason::not_initialized:
      return "MPI_Init was not called";
    case Reason::off:
      return "switched off, or ranks have other settings";
    case Reason::threads:
      return "MPI_THREAD_MULTIPLE";
    case Reason::intercommunicator:
      return "intercommunicator";
    case Reason::alone:
      return "one rank";
    case Reason::other_job:
      return "with ranks of another MPI_COMM_WORLD";
    case Reason::switched_off:
      return "switched off for the communicator";
    case Reason::communicators:
      return "communicator not adopted";
    case Reason::first_calls:
      return "first calls of their kind";
    case Reason::empty:
      return "no elements";
    case Reason::large:
      return "above TUTTI_MPI_BYTES";
    case Reason::undefined:
      return "not defined by MPI";
    case Reason::layout:
      return "layout of the type";
    case Reason::refused:
      return "no operation can be made";
    case Reason::long_block:
      return "blocks above 248 bytes";
    case Reason::not_persistent:
      return "no persistent operation of this kind";
    case Reason::requests:
      return "too many persistent requests";
    case Reason::no_progress:
      return "MPI calls nobody while it waits";
    case Reason::reported:
      return "TUTTI_MPI=report";
    case Reason::not_compared:
      return "not compared by TUTTI_MPI=verify";
  }
  return "";
}

Interposer& interposer() {
  static Interposer* const one = new Interposer;  // outlives what exit handlers call
  return *one;
}

void Interposer::begin() {
  has_begun_ = true;
  const MpiFunctions& mpi = own_mpi();
  if (const void* const next = dlsym(RTLD_NEXT, "tutti_mpi_interposer")) {  // that one does it
    if (std::strcmp(static_cast<const char*>(next), tutti_mpi_interposer) != 0 &&
        rank_by_launcher() == 0)
      std::fprintf(stderr,
                   "tutti: LD_PRELOAD has libtutti-mpi twice, in two versions; the last one takes "
                   "calls, and this one (%s) none\n",
                   tutti_mpi_interposer);
    return;
  }
  if (!is_expected_mpi()) {
    if (rank_by_launcher() == 0)
      std::fprintf(stderr,
                   "tutti: every call is left to MPI: this libtutti-mpi is for %s, and the program "
                   "runs on another MPI; tutti-mpirun takes the right one\n",
                   expected_mpi);
    return;
  }
  std::string wrong;
  try {
    settings_ = settings_of_environment();
  } catch (const Error& error) {
    wrong = error.what();
  }
  // All of MPI_COMM_WORLD decide alike; whoever sees other settings takes nothing.
  const Alike mine{{wrong.empty() ? static_cast<int>(settings_.mode) : -1,
                    static_cast<int>(settings_.after), static_cast<int>(settings_.bytes_max >> 31),
                    static_cast<int>(settings_.bytes_max & 0x7fffffff),
                    static_cast<int>(settings_.communicators_max), settings_.table ? 1 : 0}};
  Alike least{}, opposite = mine, greatest{};
  for (int& value : opposite.values) value = -value;
  const int number = static_cast<int>(std::size(mine.values));
  mpi.Allreduce(mine.values, least.values, number, handles().int32, handles().min, handles().world);
  mpi.Allreduce(opposite.values, greatest.values, number, handles().int32, handles().min,
                handles().world);
  prints_table_ = greatest.values[number - 1] != 0;  // one rank asks for it
  int rank = 0;
  mpi.Comm_rank(handles().world, &rank);
  bool is_alike = true;
  for (int i = 0; i < number - 1; ++i) is_alike &= least.values[i] == -greatest.values[i];
  if (!wrong.empty() && (rank == 0 || !is_alike))
    std::fprintf(stderr, "tutti: every call is left to MPI: %s\n", wrong.c_str());
  if (!is_alike && rank == 0)
    std::fprintf(stderr,
                 "tutti: every call is left to MPI: the ranks have different settings; set "
                 "TUTTI_MPI and TUTTI_MPI_... alike on all of them\n");
  if (!is_alike || !wrong.empty() || settings_.mode == Mode::off) {
    why_not_ = Reason::off;
    return;
  }
  // Ranks may have asked for different levels.
  int provided = MPI_THREAD_SINGLE;
  mpi.Query_thread(&provided);
  const int here[2] = {provided != MPI_THREAD_MULTIPLE, has_progress_hook()};
  int everywhere[2] = {};
  mpi.Allreduce(here, everywhere, 2, handles().int32, handles().min, handles().world);
  if (everywhere[0] == 0) {
    why_not_ = Reason::threads;
    return;
  }
  has_progress_ = everywhere[1] != 0;
  mpi.Comm_create_keyval(do_not_copy, forget_communicator, &keyval_, nullptr);
  takes_calls_ = settings_.mode != Mode::report;
  if (takes_calls_) return;
  reports_ = true;
  why_not_ = Reason::reported;
  report().begin();
}

void Interposer::end() {
  if (takes_calls_ || reports_) {
    forget_fast_ways();
    takes_calls_ = reports_ = false;
    why_not_ = Reason::not_initialized;
    own_mpi().Barrier(handles().world);
    end_requests();
    last_found_ = nullptr;
    communicators_.clear();
    freed_.clear();
    own_mpi().Comm_free_keyval(&keyval_);
  }
  if (prints_table_) print_table(*this);
  context_.reset();
}

bool Interposer::calls(std::string_view function, unsigned long long& taken,
                       unsigned long long& passed) const noexcept {
  for (std::size_t i = 0; i < collective_count; ++i) {
    if (function != name_of(static_cast<Collective>(i))) continue;
    taken = counts_[i].taken;
    passed = std::accumulate(counts_[i].passed.begin(), counts_[i].passed.end(), 0ull);
    return true;
  }
  return false;
}

void Interposer::heed(MPI_Comm handle, MPI_Info info) {
  const MpiFunctions& mpi = own_mpi();
  if (handle == handles().no_comm) return;
  ProgramCommunicator* const known = communicator(handle);
  if (known == nullptr) return;
  ProgramCommunicator& which = *known;
  if (which.passing() != Passing::no && which.passing() != Passing::switched_off) return;
  char value[8] = "";
  int is_there = 0;
  if (info != handles().no_info)
    mpi.Info_get(info, "tutti", static_cast<int>(sizeof value) - 1, value, &is_there);
  const bool is_off = is_there != 0 && std::strcmp(value, "off") == 0;
  const bool is_on = is_there != 0 && std::strcmp(value, "on") == 0;
  if (is_there != 0 && !is_off && !is_on && which.rank() == 0)
    std::fprintf(stderr, "tutti: info key \"tutti\": value \"%s\": expected on or off\n", value);
  // Ranks have to say the same; those that do not would wait for each other in vain.
  const int mine[2] = {is_off ? 0 : 1, is_on ? 0 : 1};
  int least[2] = {1, 1};
  mpi.Allreduce(mine, least, 2, handles().int32, handles().min, handle);
  if (least[0] == 0)
    which.switch_off(true);
  else if (least[1] == 0)
    which.switch_off(false);
  forget_fast_ways();
}

ProgramCommunicator* Interposer::find_communicator(MPI_Comm handle) {
  auto found = communicators_.find(handle);
  if (found == communicators_.end()) {
    // Without the attribute its end would not be seen, and another one may get its handle.
    if (own_mpi().Comm_set_attr(handle, keyval_, nullptr) != MPI_SUCCESS) return nullptr;
    found = communicators_.emplace(handle, std::make_unique<ProgramCommunicator>(handle)).first;
  }
  last_found_ = found->second.get();
  return last_found_;
}

void Interposer::forget(MPI_Comm handle) noexcept {
  const auto found = communicators_.find(handle);
  if (found == communicators_.end()) return;
  forget_fast_ways();
  last_found_ = nullptr;
  std::unique_ptr<ProgramCommunicator> communicator = std::move(found->second);
  communicator->free_ways();
  if (communicator->is_adopted()) --adopted_;
  communicators_.erase(found);
  for (std::unique_ptr<ProgramCommunicator>& kept : kept_without_calls()) retire(std::move(kept));
  if (communicator->calls_in_flight > 0)
    keep_while_in_flight(std::move(communicator));
  else if (communicator->is_adopted())
    retire(std::move(communicator));
}

// A communicator of tutti ends when its peers have read everything.  These have read by the time
// that a few more are freed.
void Interposer::retire(std::unique_ptr<ProgramCommunicator> communicator) noexcept {
  communicator->drop_operations();
  freed_.push_back(std::move(communicator));
  if (freed_.size() > freed_max) freed_.pop_front();
}

void Interposer::make_operation(ProgramCommunicator& communicator, Shape& shape, bool is_in_place) {
  forget_fast_ways();  // an operation may go
  adopt_and_make(communicator, [&](Vote vote) {
    communicator.make_operation(shape, context(), vote, is_in_place);
  });
}

void Interposer::make_wanted_operations(ProgramCommunicator& communicator) {
  forget_fast_ways();
  adopt_and_make(communicator,
                 [&](Vote vote) { communicator.make_wanted_operations(context(), vote); });
}

PersistentOperations::Claimed Interposer::claim_persistent(ProgramCommunicator& communicator,
                                                           const ShapeKey& key, bool has_room) {
  PersistentOperations::Claimed claimed;
  adopt_and_make(communicator, [&](Vote vote) {
    claimed = communicator.claim_persistent(key, has_room, context(), vote);
  });
  if (settings_.mode == Mode::verify && claimed.slot != nullptr &&
      !communicator.make_for_verify(*claimed.slot))
    return {nullptr, PersistentOperations::Refusal::not_compared};
  return claimed;
}

template <class Make>
void Interposer::adopt_and_make(ProgramCommunicator& communicator, Make&& make) {
  const bool was_adopted = communicator.is_adopted();
  const Vote vote = context() == nullptr || adopted_ >= settings_.communicators_max ? Vote::never
                    : early_adoptions_ < early_adoptions_max || communicator.was_put_off()
                        ? Vote::now
                        : Vote::later;
  make(vote);
  if (communicator.is_first_unable() && !context_problem_.empty()) {
    std::fprintf(stderr, "tutti: collectives are left to MPI: %s\n", context_problem_.c_str());
    context_problem_.clear();
  }
  if (was_adopted || !communicator.is_adopted()) return;
  ++adopted_;
  if (!communicator.was_put_off()) ++early_adoptions_;
}

Context* Interposer::context() noexcept {
  if (context_ || has_no_context_) return context_.get();
  try {
    // A program frees and reuses its buffers, so none is registered.
    ContextOptions options{.register_buffers = false};
    if (std::getenv("TUTTI_ARENA_BYTES") == nullptr) options.arena_bytes = std::size_t{64} << 20;
    context_ = std::make_unique<Context>(options);
  } catch (const std::exception& error) {
    has_no_context_ = true;
    context_problem_ = error.what();
  }
  return context_.get();
}

}  // namespace tutti::interposer
