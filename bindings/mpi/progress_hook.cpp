#include "progress_hook.hpp"

#include <dlfcn.h>

#include <mpi.h>

#include "loaded_mpi.hpp"

namespace tutti::interposer {
namespace {

using Hook = void (*)() noexcept;
constinit Hook hooked = nullptr;

}  // namespace

#ifdef OPEN_MPI

namespace {

using Callback = int (*)();
using Register = int (*)(Callback);

Register register_function() {
  return reinterpret_cast<Register>(
      function_of_mpi("opal_progress_register"));  // exported by libopen-pal
}

int call_hooked() {
  hooked();
  return 0;  // no event that Open MPI has to count
}

}  // namespace

bool has_progress_hook() {
  return register_function() != nullptr;
}

void hook_progress(void (*function)() noexcept) {
  const bool is_registered = hooked != nullptr;
  hooked = function;
  if (!is_registered) register_function()(call_hooked);
}

#else

namespace {

constinit unsigned long long looks = 0;  // at the network

using WorkerProgress = unsigned (*)(void* worker);

}  // namespace

extern "C" __attribute__((visibility("default"))) unsigned ucp_worker_progress(void* worker) {
  static const auto next = [] {
    void* found = function_of_mpi("ucp_worker_progress");
    if (found == nullptr) {  // a program without MPI that has opened UCX for itself
      void* const library = dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD);
      if (library != nullptr) found = dlsym(library, "ucp_worker_progress");
    }
    return reinterpret_cast<WorkerProgress>(found);
  }();
  if (next == nullptr) return 0;
  ++looks;
  const unsigned events = next(worker);
  if (hooked != nullptr) hooked();
  return events;
}

bool has_progress_hook() {
  const unsigned long long before = looks;
  progress_mpi();
  return looks != before;
}

void hook_progress(void (*function)() noexcept) {
  hooked = function;
}

#endif

}  // namespace tutti::interposer
