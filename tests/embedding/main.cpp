#include <tutti/tutti.hpp>

int main() {
  return tutti::index_of(tutti::Rank{0}) == 0 ? 0 : 1;
}
