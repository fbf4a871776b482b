#include "interposer.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "calls.hpp"
#include "handles.hpp"
#include "loaded_mpi.hpp"
#include "tutti/status.hpp"

/// Found by another interposer that was loaded before this one, which then takes nothing.
extern "C" {
extern const int tutti_mpi_interposer;
const int tutti_mpi_interposer = 1;
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

/// What ranks have to have alike, in one number each.
struct Alike {
  int values[5];
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
  }
  return "";
}

Interposer& interposer() {
  static Interposer* const one = new Interposer;  // outlives what exit handlers call
  return *one;
}

void Interposer::begin() {
  const MpiFunctions& mpi = own_mpi();
  if (dlsym(RTLD_NEXT, "tutti_mpi_interposer") != nullptr) return;  // that one does it
  if (!is_expected_mpi()) {
    std::fprintf(stderr,
                 "tutti: every call is left to MPI: this libtutti-mpi is for %s, and the program "
                 "runs on another MPI; tutti-mpirun takes the right one\n",
                 expected_mpi);
    return;
  }
  bool is_valid = true;
  try {
    settings_ = settings_of_environment();
  } catch (const Error& error) {
    is_valid = false;
    std::fprintf(stderr, "tutti: every call is left to MPI: %s\n", error.what());
  }
  // All of MPI_COMM_WORLD decide alike; whoever sees other settings takes nothing.
  const Alike mine{{is_valid ? static_cast<int>(settings_.mode) : -1,
                    static_cast<int>(settings_.after), static_cast<int>(settings_.bytes_max >> 31),
                    static_cast<int>(settings_.bytes_max & 0x7fffffff),
                    static_cast<int>(settings_.communicators_max)}};
  Alike least{}, opposite = mine, greatest{};
  for (int& value : opposite.values) value = -value;
  const int number = static_cast<int>(std::size(mine.values));
  mpi.Allreduce(mine.values, least.values, number, handles().int32, handles().min, handles().world);
  mpi.Allreduce(opposite.values, greatest.values, number, handles().int32, handles().min,
                handles().world);
  for (int i = 0; i < number; ++i)
    if (least.values[i] != -greatest.values[i]) {
      why_not_ = Reason::off;
      int rank = 0;
      mpi.Comm_rank(handles().world, &rank);
      if (rank == 0)
        std::fprintf(stderr,
                     "tutti: every call is left to MPI: the ranks have different settings; set "
                     "TUTTI_MPI and TUTTI_MPI_... alike on all of them\n");
      return;
    }
  if (!is_valid || settings_.mode == Mode::off) {
    why_not_ = Reason::off;
    return;
  }
  int provided = MPI_THREAD_SINGLE;
  mpi.Query_thread(&provided);
  if (provided == MPI_THREAD_MULTIPLE) {
    why_not_ = Reason::threads;
    return;
  }
  mpi.Comm_create_keyval(do_not_copy, forget_communicator, &keyval_, nullptr);
  takes_calls_ = true;
}

void Interposer::end() {
  if (takes_calls_) {
    forget_fast_ways();
    takes_calls_ = false;
    why_not_ = Reason::not_initialized;
    own_mpi().Barrier(handles().world);
    last_found_ = nullptr;
    communicators_.clear();
    freed_.clear();
    own_mpi().Comm_free_keyval(&keyval_);
  }
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
  if (found->second->is_adopted()) {
    --adopted_;
    // A communicator of tutti ends when its peers have read everything.  These have read by the
    // time that a few more are freed.
    found->second->drop_operations();
    freed_.push_back(std::move(found->second));
    if (freed_.size() > freed_max) freed_.pop_front();
  }
  communicators_.erase(found);
}

void Interposer::make_operation(ProgramCommunicator& communicator, Shape& shape, const void* source,
                                void* target) {
  forget_fast_ways();  // an operation may go
  const bool was_adopted = communicator.is_adopted();
  const Vote vote = context() == nullptr || adopted_ >= settings_.communicators_max ? Vote::never
                    : early_adoptions_ < early_adoptions_max || communicator.was_put_off()
                        ? Vote::now
                        : Vote::later;
  communicator.make_operation(shape, context(), vote, source, target);
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
    std::fprintf(stderr, "tutti: collectives are left to MPI: %s\n", error.what());
  }
  return context_.get();
}

}  // namespace tutti::interposer
