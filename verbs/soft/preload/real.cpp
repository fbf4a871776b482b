#include "real.hpp"

#include <dlfcn.h>

namespace tutti::verbs::soft {

void* find_real(const char* name) noexcept {
  // It is opened by its path, because the name alone may lead to the file that this code is in.
  static void* const library = ::dlopen(TUTTI_REAL_LIBIBVERBS, RTLD_NOW | RTLD_LOCAL);
  return library ? ::dlsym(library, name) : nullptr;
}

}  // namespace tutti::verbs::soft
