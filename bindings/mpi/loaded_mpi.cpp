#include "loaded_mpi.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "handles.hpp"

namespace tutti::interposer {
namespace {

/// The library of MPI, where a program has opened it for itself (RTLD_LOCAL), as interpreters do.
void* opened_library() {
  static void* library = nullptr;
  if (library != nullptr) return library;
  dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* result) {
        const char* const slash = std::strrchr(object->dlpi_name, '/');
        const char* const file = slash == nullptr ? object->dlpi_name : slash + 1;
        if (std::strncmp(file, "libmpi.so", 9) != 0 && std::strncmp(file, "libmpich.so", 11) != 0)
          return 0;
        *static_cast<void**>(result) = dlopen(object->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
        return 1;
      },
      &library);
  return library;
}

void* first_of(void* scope, const char* name) {
  void* const found = dlsym(scope, name);
  if (found != nullptr) return found;
  void* const library = opened_library();
  return library == nullptr ? nullptr : dlsym(library, name);
}

void* required_symbol(const char* name) {
  void* const address = function_of_mpi(name);
  if (address == nullptr) {
    std::fprintf(stderr,
                 "tutti: the program calls MPI, but no library with %s is loaded; start it without "
                 "libtutti-mpi in LD_PRELOAD, or link it with the shared library of %s\n",
                 name, expected_mpi);
    std::abort();
  }
  return address;
}

#define TUTTI_TEXT_OF(prefix) #prefix
#define TUTTI_TEXT(prefix) TUTTI_TEXT_OF(prefix)

/// Finds the functions of MPI, whose names follow "" or "P".
MpiFunctions functions_of(const char* first) {
  char whole[64];
  const auto named = [&](const char* name, const char* prefix = "MPI") {
    std::snprintf(whole, sizeof whole, "%s%s_%s", first, prefix, name);
    return whole;
  };
  MpiFunctions functions;
#define TUTTI_MPI_FIND(name) \
  functions.name = reinterpret_cast<decltype(functions.name)>(required_symbol(named(#name)));
#define TUTTI_MPI_FIND_IF_THERE(name) \
  functions.name = reinterpret_cast<decltype(functions.name)>(function_of_mpi(named(#name)));
  TUTTI_MPI_TAKEN(TUTTI_MPI_FIND)
  TUTTI_MPI_INFORMS(TUTTI_MPI_FIND)
  TUTTI_MPI_USED(TUTTI_MPI_FIND)
  // An MPI without them has no callers of them.
  TUTTI_MPI_TAKEN_LARGE(TUTTI_MPI_FIND_IF_THERE)
  TUTTI_MPI_USED_LARGE(TUTTI_MPI_FIND_IF_THERE)
#define TUTTI_MPI_FIND_INIT(name)                              \
  functions.name = reinterpret_cast<decltype(functions.name)>( \
      function_of_mpi(named(#name, TUTTI_TEXT(TUTTI_MPI_INIT_PREFIX))));
  TUTTI_MPI_INIT(TUTTI_MPI_FIND_INIT)
  TUTTI_MPI_INIT_LARGE(TUTTI_MPI_FIND_IF_THERE)
#undef TUTTI_MPI_FIND_INIT
#undef TUTTI_MPI_FIND
#undef TUTTI_MPI_FIND_IF_THERE
  return functions;
}

}  // namespace

#ifdef OPEN_MPI
const char* const expected_mpi = "Open MPI";
#else
const char* const expected_mpi = "MPICH";
#endif

void* function_of_mpi(const char* name) {
  return first_of(RTLD_NEXT, name);
}

// A program that names a variable of a library may have a copy of it, which the library then uses.
void* variable_of_mpi(const char* name) {
  return first_of(RTLD_DEFAULT, name);
}

const MpiFunctions& own_mpi() {
  static const MpiFunctions functions = functions_of("P");
  return functions;
}

const MpiFunctions& next_mpi() {
  static const MpiFunctions functions = functions_of("");
  return functions;
}

bool is_mpi_loaded() {
  return opened_library() != nullptr;
}

bool is_expected_mpi() {
  const bool is_open_mpi = variable_of_mpi("ompi_mpi_comm_world") != nullptr;
#ifdef OPEN_MPI
  return is_open_mpi;
#else
  return !is_open_mpi;  // MPICH, and what is derived from it
#endif
}

void progress_mpi() {
#ifdef OPEN_MPI
  static const auto progress =
      reinterpret_cast<void (*)()>(function_of_mpi("opal_progress"));  // exported by libopen-pal
  if (progress != nullptr) {
    progress();
    return;
  }
#endif
  // A look at a request that is never complete.  Looks for messages would do nothing where there is
  // one, and MPICH does nothing if they are looked for among this process's own.
  static MPI_Request endless = [] {
    MPI_Request request{};
    own_mpi().Grequest_start([](void*, MPI_Status*) { return MPI_SUCCESS; },
                             [](void*) { return MPI_SUCCESS; },
                             [](void*, int) { return MPI_SUCCESS; }, nullptr, &request);
    return request;
  }();
  int is_complete = 0;
  own_mpi().Test(&endless, &is_complete, MPI_STATUS_IGNORE);
}

}  // namespace tutti::interposer
