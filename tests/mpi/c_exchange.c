/* Promise: a C program of MPI's has collectives of tutti's over its ranks. */
#include <bootstrap/mpi_exchange.h>
#include <stdio.h>
#include <string.h>

static int run(void) {
  tutti_exchange* exchange = NULL;
  tutti_context* context = NULL;
  tutti_communicator* communicator = NULL;
  tutti_operation* operation = NULL;
  tutti_failure failure;
  int rank = 0, size = 0, wrong = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (tutti_mpi_exchange(MPI_COMM_WORLD, -1, &exchange, &failure) != TUTTI_INVALID_ARGUMENT ||
      strstr(failure.text, "timeout_ns -1: expected 0 or more") == NULL)
    return 2;
  if (tutti_mpi_exchange(MPI_COMM_WORLD, 0, NULL, &failure) != TUTTI_INVALID_ARGUMENT) return 3;
  int64_t mine = rank + 1, sum = 0;
  const tutti_allreduce_arguments arguments = {
      .struct_size = sizeof arguments,
      .source = &mine,
      .target = &sum,
      .element_count = 1,
      .reduction = {.which = TUTTI_SUM, .type = TUTTI_INT64}};
  const tutti_context_options options = {
      .struct_size = sizeof options, .device = "soft0", .arena_bytes = 4 << 20};
  if (tutti_mpi_exchange(MPI_COMM_WORLD, 0, &exchange, &failure) != TUTTI_OK ||
      tutti_context_create(&options, &context, &failure) != TUTTI_OK ||
      tutti_communicator_create(context, exchange, &communicator, &failure) != TUTTI_OK ||
      tutti_allreduce_init(communicator, &arguments, &operation, &failure) != TUTTI_OK) {
    fprintf(stderr, "%s: %s\n", tutti_status_name(failure.status), failure.text);
    return 4;
  }
  if (tutti_rank(communicator) != rank || tutti_rank_count(communicator) != size) wrong = 5;
  for (int call = 0; call < 3; ++call)
    if (tutti_start(operation) != TUTTI_OK ||
        tutti_wait(operation, INT64_C(20000000000)) != TUTTI_OK || sum != size * (size + 1) / 2)
      wrong = 6;
  tutti_operation_free(operation);
  tutti_communicator_free(communicator);
  tutti_context_free(context);
  tutti_exchange_free(exchange);
  return wrong;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int wrong = run();
  if (wrong != 0) fprintf(stderr, "wrong: %d\n", wrong);
  MPI_Finalize();
  return wrong;
}
