// Promise: misuse of the public API that the compiler can see does not compile.
#include <span>
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

void use(tutti::Communicator& communicator, tutti::Operation& operation) {
  std::vector<double> doubles(4);
  const std::span<const double> source(doubles);
  const std::span<double> target(doubles);
  auto sum =
      tutti::allreduce<double>(communicator, source, target, tutti::sum, tutti::Agreement::relaxed);
  (void)sum.test();
  (void)operation.start();
#if CASE == 1  // bitwise operators are for integers
  auto wrong = tutti::allreduce<double>(communicator, source, target, tutti::bit_or);
#elif CASE == 2  // only what can be copied byte by byte travels
  std::vector<std::string> words(4);
  auto wrong = tutti::allreduce<std::string>(communicator, std::span<const std::string>(words),
                                             std::span<std::string>(words), tutti::sum);
#elif CASE == 3  // an operation has one owner
  tutti::Operation copy = operation;
#elif CASE == 4  // the target is written
  auto wrong = tutti::allreduce<double>(communicator, source, source, tutti::sum);
#elif CASE == 5  // a rank is not a number
  const tutti::Rank rank = 3;
#elif CASE == 6  // a context has one owner
  tutti::Context copy = static_cast<const tutti::Context&>(tutti::Context());
#endif
}
