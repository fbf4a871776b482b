/* The info key "tutti" switches communicators off and on. */
#include "check.h"

enum { calls = 6 };

/* How many of some calls on it are taken. */
static unsigned long long taken_on(MPI_Comm communicator) {
  const unsigned long long before = calls_taken("MPI_Allreduce");
  const int ranks = ranks_of(communicator);
  for (int call = 0; call < calls; ++call) {
    int one = 1, sum = 0;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, communicator);
    CHECK(sum == ranks, "%d of %d", sum, ranks);
  }
  return calls_taken("MPI_Allreduce") - before;
}

#define TAKES(communicator, count)                           \
  do {                                                       \
    const unsigned long long found = taken_on(communicator); \
    CHECK(found == (count), "%llu are taken", found);        \
  } while (0)

static MPI_Info info_saying(const char* value) {
  MPI_Info info;
  MPI_Info_create(&info);
  MPI_Info_set(info, "tutti", value);
  return info;
}

int main(int argument_count, char** arguments) {
  MPI_Init(&argument_count, &arguments);
  const int rank = rank_in(MPI_COMM_WORLD);
  MPI_Info off = info_saying("off"), on = info_saying("on"), wrong = info_saying("perhaps"), other;
  MPI_Info_create(&other);
  MPI_Info_set(other, "something", "off");
  MPI_Comm made[6];
  MPI_Comm_dup_with_info(MPI_COMM_WORLD, off, &made[0]);
  TAKES(made[0], 0);
  MPI_Comm_dup_with_info(MPI_COMM_WORLD, MPI_INFO_NULL, &made[1]);
  TAKES(made[1], calls - 3);
  MPI_Comm_dup_with_info(made[0], other, &made[2]);
  TAKES(made[2], calls - 3);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, off, &made[3]);
  TAKES(made[3], 0);
  /* Some get none. */
  MPI_Comm_split_type(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : MPI_COMM_TYPE_SHARED, 0, off,
                      &made[4]);
  CHECK((made[4] == MPI_COMM_NULL) == (rank == 0), "rank %d", rank);
  if (rank == 0) MPI_Comm_dup(MPI_COMM_SELF, &made[4]);
  TAKES(made[4], 0);
  /* Ranks that break the rule do not wait for each other. */
  MPI_Comm_dup_with_info(MPI_COMM_WORLD, rank == 1 ? off : other, &made[5]);
  TAKES(made[5], 0);
  /* Off and on, where there are operations already. */
  TAKES(MPI_COMM_WORLD, calls - 3);
  MPI_Comm_set_info(MPI_COMM_WORLD, other);
  TAKES(MPI_COMM_WORLD, calls);
  MPI_Comm_set_info(MPI_COMM_WORLD, wrong); /* is said, and changes nothing */
  TAKES(MPI_COMM_WORLD, calls);
  MPI_Comm_set_info(MPI_COMM_WORLD, off);
  TAKES(MPI_COMM_WORLD, 0);
  MPI_Comm_set_info(MPI_COMM_WORLD, other);
  TAKES(MPI_COMM_WORLD, 0);
  MPI_Comm_set_info(MPI_COMM_WORLD, on);
  TAKES(MPI_COMM_WORLD, calls);
  for (int i = 0; i < 6; ++i) MPI_Comm_free(&made[i]);
  MPI_Info_free(&off);
  MPI_Info_free(&on);
  MPI_Info_free(&wrong);
  MPI_Info_free(&other);
  MPI_Finalize();
  return 0;
}
