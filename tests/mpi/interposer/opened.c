/* Programs that are not linked to MPI, but open it when they run.  Who looks MPI's functions up in
 * its library goes past the interposer, which sees no calls.  Calls of a plug-in that is linked to
 * MPI, as those of interpreters are, are taken.
 *
 * usage: opened local|global|PLUG_IN */
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { calls = 10, first_calls = 3 };

/* MPI_Abort is not linked. */
#define CHECK(condition, ...)                                                   \
  do {                                                                          \
    if (!(condition)) {                                                         \
      fprintf(stderr, "%s:%d: %s is not so: ", __FILE__, __LINE__, #condition); \
      fprintf(stderr, __VA_ARGS__);                                             \
      fprintf(stderr, "\n");                                                    \
      abort();                                                                  \
    }                                                                           \
  } while (0)

static void* found_in(void* library, const char* name) {
  void* const address = dlsym(library, name);
  CHECK(address != NULL, "%s", dlerror());
  return address;
}

/* Open MPI's handles are variables of its library, MPICH's are numbers. */
#ifdef OPEN_MPI
#define HANDLE(type, constant, name) ((type)found_in(library, "ompi_mpi_" #name))
static const char library_of_mpi[] = "libmpi.so.40";
#else
static const char library_of_mpi[] = "libmpich.so.12";
#define HANDLE(type, constant, name) constant
#endif
#define FUNCTION(name)               \
  __typeof__(&MPI_##name) name##_of; \
  *(void**)&name##_of = found_in(library, "MPI_" #name)

static void use(void* library) {
  FUNCTION(Init);
  FUNCTION(Comm_rank);
  FUNCTION(Comm_size);
  FUNCTION(Allreduce);
  FUNCTION(Finalize);
  const MPI_Comm world = HANDLE(MPI_Comm, MPI_COMM_WORLD, comm_world);
  int rank = -1, ranks = 0;
  Init_of(NULL, NULL);
  Comm_rank_of(world, &rank);
  Comm_size_of(world, &ranks);
  CHECK(ranks > 1, "%d rank", ranks);
  for (int call = 0; call < calls; ++call) {
    int mine = rank + call, sum = -1;
    Allreduce_of(&mine, &sum, 1, HANDLE(MPI_Datatype, MPI_INT, int),
                 HANDLE(MPI_Op, MPI_SUM, op_sum), world);
    CHECK(sum == ranks * call + ranks * (ranks - 1) / 2, "%d", sum);
  }
  Finalize_of();
}

int main(int argument_count, char** arguments) {
  CHECK(argument_count == 2, "%d arguments", argument_count);
  const int is_global = strcmp(arguments[1], "global") == 0;
  const int is_plug_in = !is_global && strcmp(arguments[1], "local") != 0;
  void* const library = dlopen(is_plug_in ? arguments[1] : library_of_mpi,
                               RTLD_NOW | (is_global ? RTLD_GLOBAL : RTLD_LOCAL));
  CHECK(library != NULL, "%s", dlerror());
  if (is_plug_in) {
    void (*use_plug_in)(void) = NULL;
    *(void**)&use_plug_in = found_in(library, "use_plug_in");
    use_plug_in();
  } else {
    use(library);
  }
  unsigned long long taken = 0, passed = 0;
  int (*counted)(const char*, unsigned long long*, unsigned long long*) = NULL;
  *(void**)&counted = found_in(RTLD_DEFAULT, "tutti_mpi_calls");
  CHECK(counted("MPI_Allreduce", &taken, &passed) == 0, "it is not known");
  CHECK(taken == (is_plug_in ? calls - first_calls : 0), "%llu were taken", taken);
  CHECK(passed == (is_plug_in ? first_calls : 0), "%llu were left", passed);
  return 0;
}
