// The C interface in a program at C++17, whatever tutti's own headers need.
#include <tutti/tutti.h>

#include <cstdio>

static_assert(__cplusplus == 201703L, "tutti::c leaves the language as it is");

int main() {
  tutti_context_options options{};
  options.struct_size = sizeof options;
  options.device = "no_such_device";
  tutti_context* context = nullptr;
  tutti_failure failure{};
  if (tutti_context_create(&options, &context, &failure) == TUTTI_SETUP_FAILED) return 0;
  std::fputs("not refused\n", stderr);
  return 1;
}
