#include <stdio.h>
#include <tutti/tutti.h>

/* Needs most of the library, and has no device of that name. */
int main(void) {
  tutti_context_options options = {.struct_size = sizeof options, .device = "no_such_device"};
  tutti_context* context;
  tutti_failure failure;
  if (tutti_context_create(&options, &context, &failure) == TUTTI_SETUP_FAILED) return 0;
  fprintf(stderr, "not refused\n");
  return 1;
}
