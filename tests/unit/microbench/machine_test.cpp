// Promise: CPU lists are read and written as the kernel writes them, and MPI's name stays short.
#include "microbench/machine.hpp"

#include <gtest/gtest.h>

#include "microbench/mpi_side.hpp"

namespace tutti::bench {
namespace {

TEST(Machine, cpu_lists_survive_a_round_trip) {
  for (const char* text : {"0", "0-3", "0-1,8,10-11", "1023", ""})
    EXPECT_EQ(text_of(parse_cpu_list(text)), text);
}

TEST(Machine, nonsense_in_a_cpu_list_ends_it) {
  EXPECT_EQ(text_of(parse_cpu_list("2,x,5")), "2");
  EXPECT_EQ(text_of(parse_cpu_list("4000000000")), "");
}

TEST(Machine, this_process_may_use_some_cpu) {
  EXPECT_FALSE(allowed_cpus().list().empty());
  EXPECT_EQ(by_core(allowed_cpus()).size(), allowed_cpus().list().size());
}

TEST(Machine, mpi_names_are_shortened) {
  EXPECT_EQ(shortened_library_version("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4"),
            "Open MPI 4.1.4");
  EXPECT_EQ(shortened_library_version("MPICH Version:\t4.0.2\nMPICH Release date:\tThu"),
            "MPICH 4.0.2");
}

}  // namespace
}  // namespace tutti::bench
