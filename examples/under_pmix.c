#include <stdio.h>
#include <tutti/pmix_exchange.h>

static int fail(const tutti_failure* failure) {
  fprintf(stderr, "%s: %s\n", tutti_status_name(failure->status), failure->text);
  return 1;
}

int main(void) {
  tutti_exchange* exchange = NULL;
  tutti_context* context = NULL;
  tutti_communicator* communicator = NULL;
  tutti_operation* dot = NULL;
  tutti_failure failure;
  if (tutti_pmix_exchange(0, &exchange, &failure) < 0 || /* 0: ranks wait 30 s for each other */
      tutti_context_create(NULL, &context, &failure) < 0 ||
      tutti_communicator_create(context, exchange, &communicator, &failure) < 0)
    return fail(&failure);
  double part[1000], mine = 0, whole = 0;
  for (int i = 0; i < 1000; ++i) part[i] = 0.5; /* this rank's part of a long vector */
  tutti_allreduce_arguments arguments = {
      .struct_size = sizeof arguments,
      .source = &mine,
      .target = &whole,
      .element_count = 1,
      .reduction = {.which = TUTTI_SUM, .type = TUTTI_DOUBLE},
  };
  if (tutti_allreduce_init(communicator, &arguments, &dot, &failure) < 0) return fail(&failure);
  for (int iteration = 0; iteration < 3; ++iteration) {
    mine = 0;
    for (int i = 0; i < 1000; ++i) mine += part[i] * part[i];
    tutti_status status = tutti_start(dot); /* never waits */
    if (status == TUTTI_OK) status = tutti_wait(dot, INT64_C(5000000000));
    if (status != TUTTI_OK) {
      tutti_describe(dot, failure.text, sizeof failure.text);
      failure.status = status;
      return fail(&failure);
    }
  }
  const int right = whole == 250.0 * tutti_rank_count(communicator);
  printf("rank %d: |x|^2 = %g\n", tutti_rank(communicator), whole);
  tutti_operation_free(dot);
  tutti_communicator_free(communicator);
  tutti_context_free(context);
  tutti_exchange_free(exchange);
  return right ? 0 : 1;
}
